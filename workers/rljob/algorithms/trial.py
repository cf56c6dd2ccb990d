"""One algorithm that is tried: its functions are called, and what fails, or is not as it has to be, is told in its author's
words. And what it makes of experience: the minibatches of a batch of unrolls, and a loss with what has to come with it.
"""

import inspect
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, float32

from rljob.algorithms.base import AnyAlgorithm, ParameterGroup, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import LossResult, TransitionBatch, UnrollBatch
from rljob.algorithms.optimizer import Optimizer
from rljob.algorithms.trunk import FrameNetwork
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
                declares = next(each for each in reversed(type(self.method).__mro__) if function in vars(each))
                takes = list(inspect.signature(getattr(declares, function)).parameters)[1:]
                has = f"; it is called as {function}({', '.join(takes)})"
            raise PluginProblem(f"{self.name}: {function} failed: {told(error)}{has}") from error
        self._kept, before = _state(self.method), self._kept
        names = sorted(before.keys() | self._kept)
        changed = [f"self.{name}" for name in names if before.get(name, self) != self._kept.get(name, self)]
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


def _state(method: AnyAlgorithm) -> dict[str, Any]:
    """What an object has in its attributes: their content where that can be written down, else themselves. A cached property is
    none: it is what the class makes of itself."""
    found: dict[str, Any] = {}
    for name, value in getattr(method, "__dict__", {}).items():
        if not isinstance(inspect.getattr_static(type(method), name, None), cached_property):
            try:
                found[name] = pickle.dumps(value)
            except PLUGIN_FAILURES:  # as of a lock or a lambda, and whatever its own code for this raises
                found[name] = value
    return found


_ROWS = 4
_CPU = torch.device("cpu")
_MOST = 10
"""How many times as often as it says ``minibatches`` may go through a batch before it is no longer counted."""
_END = object()


def check_learning(trial: Trial, net: FrameNetwork) -> None:
    """Differentiate the loss of a few rows. Raises PluginProblem."""
    method, params, call, expect, tensor = trial.method, trial.params, trial.call, trial.expect, trial.tensor
    batch = (
        _minibatch(trial, net) if isinstance(method, UnrollAlgorithm) else method.example(trial.spec, params, net, _CPU)
    )
    batch = _drawn(batch.split(max(1, _rows(batch) // _ROWS))[0].batch, trial.spec.action_sizes)
    rows = _rows(batch)

    def loss(of: Any) -> Any:
        networks = (net, net) if isinstance(method, TransitionAlgorithm) else (net,)
        return call("loss", lambda: method.loss(params, *networks, of), of)  # type: ignore[attr-defined]

    kept = _kept(net)
    result = loss(batch)
    changed = sorted(name for name, value in _kept(net).items() if kept.get(name) != value)
    expect(
        "loss",
        not changed,
        "a network that keeps nothing from one call to the next (actors, learner and threads have one each)",
        f"one that changed {', '.join(changed)}",
    )
    expect("loss", isinstance(result, LossResult), "a LossResult", result)
    tensor("loss: value", result.value, ())
    expect("loss: value", bool(torch.isfinite(result.value)), "a finite number", float(result.value.detach()))
    expect("loss: value", result.value.requires_grad, "a number to differentiate", "one without a gradient")
    _metrics(trial, net, result.metrics)
    if isinstance(method, UnrollAlgorithm):
        _looks(trial, result)
    if isinstance(method, TransitionAlgorithm):
        errors: Any = result.td_abs
        tensor("loss: td_abs", errors, (rows,), detached=True)
        expect("loss: td_abs", bool((errors >= 0).all()), "errors of 0 or more", errors.tolist())
        tensor("priorities", call("priorities", lambda: method.priorities(errors)), (rows,))
        expect(
            "build",
            net.return_scale is None,
            "a network without normalize_returns: transitions do not say what returns were",
            "one with it",
        )
        call(
            "memory_units",
            lambda: method.memory_units(params),
            holds=lambda units: units == 0,
            expected="0: transitions, which are drawn one by one, come with no memory",
        )
    _halves(trial, loss, batch, result)
    _groups(trial, net)
    names, weights = zip(*net.named_parameters(), strict=True)
    gradients = call("loss", lambda: torch.autograd.grad(result.value, weights, allow_unused=True))
    unused = [name for name, each in zip(names, gradients, strict=True) if each is None]
    expect("loss", not unused, "a gradient for every weight", f"none for {', '.join(unused)}")
    broken = [name for name, each in zip(names, gradients, strict=True) if not torch.isfinite(each).all()]
    expect("loss", not broken, "finite gradients", f"others for {', '.join(broken)}, with a loss that is finite")


def _kept(net: FrameNetwork) -> dict[str, Any]:
    """Attributes and buffers of all modules of a network, by their places, as far as changes of them can be seen."""
    found: dict[str, Any] = {}
    for place, module in net.named_modules():
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")} | module._buffers
        for name, value in own.items():
            seen = (id(value), value._version) if isinstance(value, Tensor) else repr(value)
            found[f"{place}.{name}".removeprefix(".")] = seen
    return found


def _halves(trial: Trial, loss: Callable[[Any], LossResult], batch: Any, whole: LossResult) -> None:
    """Parts of a batch are learned from by several threads: their losses have to add up to that of the whole. A loss that draws
    numbers of its own is not asked."""
    again = loss(batch)
    if not torch.equal(again.value, whole.value):
        return
    parts = batch.split(2)
    joined = LossResult.joined([loss(part.batch) for part in parts], [part.share for part in parts])
    expected = f"the {'sum' if whole.summed else 'mean'} of the losses of its two halves, {float(joined.value):.6g}"
    fits = torch.allclose(joined.value, whole.value, rtol=1e-3, atol=1e-5)
    trial.expect("loss: value", fits, expected, f"{float(whole.value.detach()):.6g} for a batch of both")
    if whole.td_abs is not None and joined.td_abs is not None:
        fits = torch.allclose(joined.td_abs, whole.td_abs, rtol=1e-3, atol=1e-5)
        trial.expect(
            "loss: td_abs", fits, "errors of a row that do not depend on the other rows", "others in half of the batch"
        )


def _groups(trial: Trial, net: FrameNetwork) -> None:
    """Every weight is in one group."""
    groups = trial.call(
        "groups",
        lambda: list(trial.method.groups(trial.params, net)),
        holds=lambda groups: all(isinstance(each, ParameterGroup) for each in groups),
        expected="ParameterGroups",
    )
    odd_intervals = [each.every for each in groups if not (isinstance(each.every, int) and each.every > 0)]
    trial.expect("groups: every", not odd_intervals, "an integer of 1 or more", odd_intervals)
    for make in [each.optimizer for each in groups if each.optimizer is not None]:
        try:
            made: Any = make([torch.zeros(2)], 1e-3)
        except PLUGIN_FAILURES as error:
            made = told(error)
        trial.expect(
            "groups: optimizer",
            isinstance(made, Optimizer),
            "what makes an Optimizer of weights and a learning rate",
            made,
        )
    times = Counter(id(weight) for group in groups for weight in group.parameters)
    odd = [f"{name} in {times[id(weight)]}" for name, weight in net.named_parameters() if times[id(weight)] != 1]
    trial.expect("groups", not odd, "every weight of the network that learns in one group", ", ".join(odd))
    own = {id(weight) for weight in net.parameters()}
    trial.expect("groups", times.keys() <= own, "weights of the network that learns", "others, too")


def _metrics(trial: Trial, net: FrameNetwork, found: Any) -> None:
    """The metrics that are declared, and no others: those would not be shown."""
    declared = trial.call("metrics_of", lambda: trial.method.metrics_of(net))
    trial.expect("loss: metrics", isinstance(found, Mapping), "a dict of metrics by name", found)
    names = f"metrics {', '.join(declared)}" if declared else "no metrics"
    trial.expect(
        "loss: metrics", set(found) == set(declared), f"{names}, as the attribute metrics says", sorted(map(str, found))
    )
    for name in declared:
        trial.tensor(f"loss: metrics[{name!r}]", found[name], (), detached=True)


def _looks(trial: Trial, result: LossResult) -> None:
    """How old unrolls may be, of how many versions one is, and when a batch is left early."""
    method: Any = trial.method
    params, call, expect = trial.params, trial.call, trial.expect
    lag = call(
        "iteration_lag",
        lambda: method.iteration_lag(params),
        holds=lambda lag: lag is None or (isinstance(lag, int) and lag in (0, 1)),
        expected="None, 0 or 1",
    )
    queued = hasattr(params, "unroll_queue")
    expect("iteration_lag", lag is not None or queued, "0 or 1, since its parameters have no unroll_queue", lag)
    steps = call(
        "refresh_steps",
        lambda: method.refresh_steps(params),
        holds=lambda steps: isinstance(steps, int) and steps >= 0,
        expected="an integer of 0 or more",
    )
    expect(
        "refresh_steps",
        lag is None or steps == 0,
        f"0, since iteration_lag() is {lag}: the unrolls of an iteration are of one version each",
        steps,
    )
    limit = call(
        "largest_divergence",
        lambda: method.largest_divergence(params),
        holds=lambda limit: isinstance(limit, int | float) and limit >= 0,
        expected="a number of 0 or more",
    )
    expect(
        "loss: divergence",
        limit == 0 or result.divergence is not None,
        f"a divergence, since largest_divergence() is {limit}",
        result.divergence,
    )


def _minibatch(trial: Trial, net: FrameNetwork) -> UnrollBatch:
    """The first of those that an algorithm of unrolls learns from, all of which are counted."""
    method: Any = trial.method
    call, expect = trial.call, trial.expect
    whole: UnrollBatch = method.example_batch(trial.spec, trial.params, _CPU)
    found = call("minibatches", lambda: method.minibatches(trial.params, net, whole), whole)
    fits = isinstance(found, Iterable) and not isinstance(found, tuple | Tensor)
    expect(
        "minibatches",
        fits,
        "batches that are yielded",
        "one that is returned" if isinstance(found, UnrollBatch) else found,
    )
    passes = call(
        "passes",
        lambda: method.passes(trial.params),
        holds=lambda passes: isinstance(passes, int) and passes > 0,
        expected="an integer of 1 or more",
    )
    steps, unrolls = whole.log_prob.shape
    size, counted, first = whole.log_prob.numel(), 0, None
    rest = iter(found)
    while counted <= _MOST * passes * size:
        each: Any = call("minibatches", lambda: next(rest, _END), whole)
        if each is _END:
            break
        expect("minibatches", isinstance(each, UnrollBatch), "each to be an UnrollBatch", each)
        expect(
            "minibatches",
            each.log_prob.numel() > 0,
            "batches with something in them",
            f"an empty one of a batch of {unrolls} unrolls of {steps} steps",
        )
        for name in ("advantage", "value_target"):
            target = getattr(each, name)
            with_one = isinstance(target, Tensor) and target.requires_grad
            expect(
                f"minibatches: {name}",
                not with_one,
                "a detached tensor",
                "one with a gradient; torch.no_grad() where online is asked leaves it out",
            )
        counted, first = counted + each.log_prob.numel(), each if first is None else first
    expect("minibatches", first is not None, "each to be an UnrollBatch", "none at all")
    # What does not divide evenly is left out, and that may add up to less than one pass.
    expect(
        "minibatches",
        (passes - 1) * size < counted <= passes * size,
        f"{passes * size} steps in all, since passes() is {passes} and a batch has {unrolls} unrolls of {steps} steps",
        f"{counted}",
    )
    return first  # type: ignore[return-value]


def _rows(batch: Any) -> int:
    """Rows of a batch, or unrolls."""
    return (batch.n_step_return if isinstance(batch, TransitionBatch) else batch.log_prob).shape[-1]


def _drawn(batch: Any, sizes: tuple[int, ...]) -> Any:
    """``batch`` with actions, rewards and noise at random, where an example has the same in every row."""
    if not isinstance(batch, TransitionBatch | UnrollBatch):
        return batch
    chosen = torch.rand((*batch.action.shape, 1) if len(sizes) == 1 else batch.action.shape) * torch.tensor(sizes)
    batch = batch._replace(action=chosen.long().reshape(batch.action.shape))
    if batch.control is not None:
        batch = batch._replace(control=torch.randn(batch.control.shape))
    if isinstance(batch, UnrollBatch):
        return batch._replace(reward=torch.randn(batch.reward.shape))
    noise = None if batch.noise is None else torch.randn(batch.noise.shape)
    returns = torch.randn(batch.n_step_return.shape)
    return batch._replace(n_step_return=returns, discount=torch.rand(returns.shape), noise=noise)
