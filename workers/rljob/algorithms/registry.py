"""The built-in algorithms by the name that a manifest gives them (``spec.algorithm.type``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rljob.algorithms.base import AnyAlgorithm

BUILT_IN = {
    "ApeXDQN": "rljob.algorithms.apex_dqn:ApeXDQN",
    "IMPALA": "rljob.algorithms.impala:IMPALA",
}


def algorithm(name: str) -> AnyAlgorithm:
    """The algorithm called ``name``. Raises ValueError naming those that exist."""
    try:
        module, _, factory = BUILT_IN[name].partition(":")
    except KeyError:
        raise ValueError(f"there is no algorithm {name!r}; there is {', '.join(sorted(BUILT_IN))}") from None
    made: Any = getattr(import_module(module), factory)()
    return made  # type: ignore[no-any-return]
