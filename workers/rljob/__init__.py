"""Reinforcement-learning training as one manifest. ``rljob.run`` trains it from Python, ``rljob.attach`` finds a run again,
``rljob.compare`` puts several beside each other, and ``rljob.load_policy`` brings back what was trained.

Importing this package imports nothing else: torch and the environments are loaded when a policy is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rljob_operator.python.handle import Run
    from rljob_operator.python.start import Experiment, attach, run

    from rljob.api import ManifestError
    from rljob.comparison.comparison import compare
    from rljob.errors import UsageError
    from rljob.policy import load_policy
    from rljob.policy.trained import Policy

    __version__: str

__all__ = ["Experiment", "ManifestError", "Policy", "Run", "UsageError", "attach", "compare", "load_policy", "run"]

_MODULES: Final = {
    "Experiment": "rljob_operator.python.start",
    "ManifestError": "rljob.api",
    "Policy": "rljob.policy.trained",
    "Run": "rljob_operator.python.handle",
    "UsageError": "rljob.errors",
    "attach": "rljob_operator.python.start",
    "compare": "rljob.comparison.comparison",
    "load_policy": "rljob.policy",
    "run": "rljob_operator.python.start",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("rljob")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # the next look finds it without coming here
    return value
