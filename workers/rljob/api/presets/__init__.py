"""Whole jobs to start from: ``spec.preset`` names one, and what is written beside it wins. Each is in the folder of its
algorithm."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.declaration import Preset

PRESETS: Final[Mapping[str, Preset]] = {each.name: each for declared in BUILT_IN.values() for each in declared.presets}
"""Every preset by its name, in the order in which people are shown them."""

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]

__all__ = ["PRESETS", "Preset", "PresetName"]
