"""Whole jobs to start from: ``spec.preset`` names one, and what is written beside it wins. Each is in the folder of its
algorithm."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.declaration import Preset

PRESETS: Final[Mapping[str, Preset]] = {each.name: each for declared in BUILT_IN.values() for each in declared.presets}
"""Every preset by its name, in the order in which people are shown them."""

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]

__all__ = ["PRESETS", "Preset", "PresetName"]


def is_set(path: str) -> bool:
    """Whether any preset sets ``path``, or something below it."""
    return path in by_path() or any(known.startswith(f"{path}.") for known in by_path())


@cache
def by_path() -> Mapping[str, Mapping[str, Any]]:
    """Path (``spec.algorithm.learningRate``) -> preset -> the value that it sets there, in the order in which presets do. Lists
    are values; sections are not."""
    found: dict[str, dict[str, Any]] = {}
    for name, preset in PRESETS.items():
        for path, value in leaves(preset.spec):
            found.setdefault(f"spec.{path}", {})[name] = value
    return found


def leaves(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value in a section, with its path there. Lists are values."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{path}", below) for path, below in leaves(value))
        else:
            yield key, value


REMOVABLE = tuple(
    dict.fromkeys(
        place
        for steps in (path.split(".")[1:] for path in by_path())
        for depth in range(1, len(steps) + 1)
        if (place := ".".join(steps[:depth])) not in ("algorithm", "algorithm.type", "environment", "environment.id")
    )
)
"""Every place below ``spec`` that a preset sets, and every section with some, without what each job must have."""
