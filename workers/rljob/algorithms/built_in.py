"""The registry of built-in algorithms: each is a folder beside this file, and a line here.

A folder has ``DECLARED`` (`rljob.api.declaration`) with its presets, ``parameters``, and ``rules`` where there are some, none of
which needs torch; and its code: ``loss``, where the class has the algorithm's name, and ``network`` where that is its own.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from rljob.api.declaration import BuiltIn

_FOLDERS: Final = (
    "apex_dqn",
    "impala",
    "ppo",
    "sac",
)
_PLACES: Final = {
    f"rljob.algorithms.{folder}": import_module(f"rljob.algorithms.{folder}").DECLARED for folder in _FOLDERS
}
BUILT_IN: Final[Mapping[str, BuiltIn]] = {declared.name: declared for declared in _PLACES.values()}
"""``spec.algorithm.type`` -> the algorithm."""


def parts(module: str, name: str = "") -> Iterator[ModuleType]:
    """The modules called ``module`` in the folders of all algorithms, or of the one called ``name``."""
    for place, declared in _PLACES.items():
        if declared.name == (name or declared.name) and find_spec(f"{place}.{module}") is not None:
            yield import_module(f"{place}.{module}")
