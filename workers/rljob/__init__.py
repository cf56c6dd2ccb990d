"""Reinforcement-learning training as one manifest. What it trained comes back to Python with ``rljob.load_policy``.

Importing this package imports nothing else: torch and the environments are loaded when a policy is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rljob.policy import load_policy
    from rljob.policy.trained import Policy

__all__ = ["Policy", "load_policy"]

_MODULES: Final = {"Policy": "rljob.policy.trained", "load_policy": "rljob.policy"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # the next look finds it without coming here
    return value
