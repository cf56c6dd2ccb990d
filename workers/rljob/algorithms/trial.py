"""One algorithm that is tried: its functions are called, and what fails, or is not as it has to be, is told in its author's
words."""

import inspect
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, float32

from rljob.algorithms.acting_rules import ActionValueAlgorithm
from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.api import EnvironmentParameters
from rljob.api.problems import ManifestError
from rljob.choices import GroupedDraws
from rljob.envs.spec import EnvironmentSpec
from rljob.loading import PLUGIN_FAILURES, PluginProblem, authors_line, short, shown, told

_NO_STATE = "an algorithm that keeps no state (networks and parameters are handed to every call)"
T = TypeVar("T")


class Trial:
    """What is tried, with what: ``name`` is what messages begin with. All methods raise PluginProblem."""

    def __init__(
        self, name: str, method: AnyAlgorithm, params: Any, spec: EnvironmentSpec, env_params: EnvironmentParameters
    ) -> None:
        self.name, self.method, self.params, self.spec = short(name), method, params, spec
        self.env_params = env_params
        self._kept = _state(method)

    def call(
        self,
        function: str,
        call: Callable[[], T],
        batch: Any = None,
        holds: Callable[[Any], bool] = lambda found: True,
        expected: str = "",
    ) -> T:
        """What ``call`` gives, which calls ``function`` of the author's, with ``batch`` where that is given; what is ``expected``
        where it does not hold."""
        try:
            found = call()
        except (PluginProblem, ManifestError):
            raise
        except PLUGIN_FAILURES as error:
            has = _about(error, batch)
            if isinstance(error, TypeError) and not authors_line(error):  # it was not even entered
                function = function.split(" ")[0]
                takes = list(inspect.signature(getattr(_base(self.method), function)).parameters)[1:]
                has = f"; it is called as {function}({', '.join(takes)})"
            raise PluginProblem(f"{self.name}: {function} failed: {told(error)}{has}") from error
        self._kept, before = _state(self.method), self._kept
        changed = [f"self.{name}" for name in sorted(before.keys() | self._kept) if _differs(name, before, self._kept)]
        self.expect(function, not changed, _NO_STATE, f"one that changed {', '.join(changed)}")
        self.expect(function, holds(found), expected, found)
        return found

    def expect(self, function: str, holds: bool, expected: str, came: object) -> None:
        if not holds:
            words = came if isinstance(came, str) else shown(came)
            raise PluginProblem(f"{self.name}: {function}: expected {expected}, got {words}")

    def tensor(self, function: str, found: Any, shape: tuple[int, ...], *, detached: bool = False) -> None:
        fits = isinstance(found, Tensor) and found.dtype == float32 and tuple(found.shape) == shape
        self.expect(function, fits, f"a tensor float32 {list(shape)}", found)
        if detached:
            self.expect(
                function, not found.requires_grad, "a detached tensor", "one with a gradient; .detach() takes it off"
            )

    def array(self, function: str, found: Any, shape: tuple[int, ...]) -> None:
        fits = isinstance(found, np.ndarray) and found.dtype == np.float32 and found.shape == shape
        self.expect(function, fits, f"an array float32 {list(shape)}", found)


def _about(error: BaseException, batch: Any) -> str:
    """What the author of a function that failed may want to know of what it was given; nothing where that is not the cause."""
    if isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray):
        return "; it is given arrays here, and may be given tensors: torch.as_tensor(...) takes both"
    if GroupedDraws.__name__ in str(error):
        return "; the generator has random(size) and integers(low, high, size), with the number of environments first"
    if not hasattr(batch, "_asdict"):
        return ""
    kind = type(batch).__name__
    if isinstance(error, AttributeError) and isinstance(error.obj, type(batch)):
        return f"; {'an' if kind[0] in 'AEIOU' else 'a'} {kind} has {', '.join(batch._fields)}"
    of_shapes = isinstance(error, RuntimeError | IndexError)  # as torch raises where shapes do not fit each other
    if of_shapes and not isinstance(error, NotImplementedError | RecursionError):
        shapes = [f"{name} {list(each.shape)}" for name, each in batch._asdict().items() if isinstance(each, Tensor)]
        return f"; the {kind} has {', '.join(shapes)}"
    return ""


def _state(method: AnyAlgorithm) -> dict[str, tuple[Any, bytes | None]]:
    """What an object has in its attributes, each with its content where that can be written down. A cached property is none: it
    is what the class makes of itself."""
    found: dict[str, tuple[Any, bytes | None]] = {}
    for name, value in getattr(method, "__dict__", {}).items():
        if isinstance(inspect.getattr_static(type(method), name, None), cached_property):
            continue
        try:
            found[name] = value, pickle.dumps(value)
        except PLUGIN_FAILURES:  # as of a lock or a lambda, and whatever its own code for this raises
            found[name] = value, None
    return found


def _differs(
    name: str, before: dict[str, tuple[Any, bytes | None]], after: dict[str, tuple[Any, bytes | None]]
) -> bool:
    if name not in before or name not in after:
        return True
    (was, old), (now, new) = before[name], after[name]
    return was is not now if old is None or new is None else old != new


def _base(method: AnyAlgorithm) -> type[AnyAlgorithm]:
    if isinstance(method, ActionValueAlgorithm):
        return ActionValueAlgorithm
    return TransitionAlgorithm if isinstance(method, TransitionAlgorithm) else UnrollAlgorithm
