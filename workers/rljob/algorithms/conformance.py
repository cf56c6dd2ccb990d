"""Whether an algorithm gives the loops what they expect of it, tried on random observations: which function, what was expected,
what came. For one of the user's own, or a network of one's own, before anything is trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.decision import Decision, Inference
from rljob.algorithms.loss_result import LossResult
from rljob.algorithms.registry import algorithm, has_own_parts
from rljob.algorithms.shapes import first_difference, shapes_of, words_of
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters, RLJob
from rljob.api.problems import ManifestError
from rljob.envs.spec import EnvironmentSpec
from rljob.loading import PLUGIN_FAILURES, PluginProblem, authors_line, short, shown, told

_N = 3
_ROWS = 4
_CPU = torch.device("cpu")
_DIFFERENT = 16
_NOISE = (0.0, 0.1, 0.3, 1.0)
"""Standard deviations of what is added to all weights to see whether outputs depend on observations; 0: as they are."""
_ACROSS_ROWS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
T = TypeVar("T")


class _Game:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.memory: Any = None


def check_own_parts(job: RLJob, spec: EnvironmentSpec) -> None:
    """`check` of a job that has an algorithm or a network of its user's own; nothing where all is built in."""
    if not has_own_parts(job):
        return
    own = job.spec.algorithm
    name = own.name if own.type == "Custom" else own.parameters.network
    check(name, algorithm(own.name), own.parameters, spec, job.spec.environment.parameters)


def check(
    name: str, method: AnyAlgorithm, params: Any, spec: EnvironmentSpec, env_params: EnvironmentParameters
) -> None:
    """Build the network, act, judge and learn once, with a few observations. ``name`` is what messages begin with.

    Raises PluginProblem, with the author's own line where an exception was raised; leaves torch's global generator alone.
    """
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        _Check(name, method, params, spec, env_params).run()
    finally:
        torch.set_rng_state(state)


class _Check:
    def __init__(
        self, name: str, method: AnyAlgorithm, params: Any, spec: EnvironmentSpec, env_params: EnvironmentParameters
    ) -> None:
        self._name, self._method, self._params, self._spec = short(name), method, params, spec
        self._env_params = env_params

    def run(self) -> None:
        method, params, spec = self._method, self._params, self._spec
        net = self._call("build", lambda: method.build(spec, params, self._env_params))
        self._expect("build", isinstance(net, FrameNetwork), "a rljob.plugins.FrameNetwork", net)
        expected = "a network that is centred (centred=env_params.centre_input), as spec.environment.centreInput says"
        self._expect("build", net.centred or not self._env_params.centre_input, expected, "one that is not")
        self._weights(net)
        self._same_again(net)
        self._acts(net)
        net.train()
        self._learns(net)

    def _weights(self, net: FrameNetwork) -> None:
        across = [module for module in net.modules() if isinstance(module, _ACROSS_ROWS)]
        expected = "layers that see each row by itself (GroupNorm and LayerNorm do)"
        self._expect("build", not across, expected, across[0] if across else None)
        other = {name: tensor for name, tensor in net.state_dict().items() if tensor.dtype != torch.float32}
        came = ", ".join(f"{name} of {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in other.items())
        self._expect("build", not other, "weights and buffers of float32", came)
        self._expect("build", next(net.parameters(), None) is not None, "a network with weights", "one without")
        frozen = [name for name, weight in net.named_parameters() if not weight.requires_grad]
        self._expect(
            "build", not frozen, "weights that all learn (what does not is a buffer)", f"frozen {', '.join(frozen)}"
        )

    def _acts(self, net: FrameNetwork) -> None:
        method, params, spec, draws = self._method, self._params, self._spec, np.random.default_rng(0)
        acting = net.eval()
        memory, outputs = method.memory_units(params), method.output_size(params, spec.num_actions)
        seen = _frames(draws, (_N, *spec.observation_shape), spec.frame_dtype)
        before = np.zeros((_N, 2, memory), np.float32)
        found = self._call("infer", lambda: method.infer(acting, seen, before))
        self._expect("infer", isinstance(found, Inference), "an Inference(outputs, state)", found)
        self._tensor("infer: outputs", found.outputs, (_N, outputs))
        self._expect(
            "infer: outputs", bool(torch.isfinite(found.outputs).all()), "finite numbers", found.outputs.tolist()
        )
        self._tensor("infer: state", found.state, (_N, 2, memory))
        again = self._call("infer", lambda: method.infer(acting, seen, before)).outputs
        # The last row, for which the first of a batch may not stand in.
        alone = self._call("infer of one row", lambda: method.infer(acting, seen[-1:], before[-1:])).outputs
        self._tensor("infer of one row: outputs", alone, (1, outputs))
        random = not torch.equal(again, found.outputs)  # as of a network with noise
        by_itself = random or torch.allclose(alone, found.outputs[-1:], rtol=0.01, atol=0.01)
        self._expect("infer", by_itself, "outputs of a row that do not depend on the others", "other ones for it alone")
        self._sees(net)
        self._tensor("infer: outputs", found.outputs, (_N, outputs), detached=True)
        self._tensor("infer: state", found.state, (_N, 2, memory), detached=True)
        numbers = found.outputs.numpy()
        epsilon = self._call("exploration", lambda: method.exploration(params, 0, 1, _N))
        self._array("exploration", epsilon, (_N,))
        self._decision("decide", self._call("decide", lambda: method.decide(numbers, epsilon, draws)))
        self._decision(
            "random_decision",
            self._call("random_decision", lambda: method.random_decision(_N, spec.num_actions, draws)),
        )
        self._array("state_values", self._call("state_values", lambda: method.state_values(numbers)), (_N,))
        preferred = self._call("preferences", lambda: method.preferences(found.outputs))
        self._tensor("preferences", preferred, (_N, spec.num_actions))
        games: Sequence[Any] = [_Game() for _ in range(_N)]
        actions = self._call("evaluation_action", lambda: method.evaluation_action(params, acting, seen, games))
        self._actions("evaluation_action", actions)

    def _same_again(self, net: FrameNetwork) -> None:
        """Every process of a run builds the network for itself, and takes the learner's weights."""
        again = self._call("build", lambda: self._method.build(self._spec, self._params, self._env_params))
        if difference := first_difference(shapes_of(net), shapes_of(again)):
            name, first, second = difference
            expected = "the same network from each call, of its arguments alone"
            self._expect("build", False, expected, f"{name} {words_of(first)} and then {words_of(second)}")

    def _sees(self, net: FrameNetwork) -> None:
        """Whether what it gives can depend on what it observes. With its first weights it need not, as where a head begins with
        zeros; so it is asked again with others."""
        weights = list(net.parameters())
        before = [weight.detach().clone() for weight in weights]
        generator = torch.Generator().manual_seed(0)
        seen = _different_frames(self._spec.observation_shape, self._spec.frame_dtype)
        try:
            for size in _NOISE:
                for weight, old in zip(weights, before, strict=True):
                    weight.data.copy_(old + size * torch.randn(old.shape, generator=generator))
                if self._tells_apart(net, seen):
                    return
        finally:
            for weight, old in zip(weights, before, strict=True):
                weight.data.copy_(old)
        same = f"the same ones for {len(seen)} different observations, also with other weights"
        self._expect("infer", False, "outputs that depend on the observation", same)

    def _tells_apart(self, net: FrameNetwork, seen: NDArray[Any]) -> bool:
        """Whether any observation gives something else than the first one."""
        memory = np.zeros((len(seen), 2, self._method.memory_units(self._params)), np.float32)
        try:
            found = self._method.infer(net, seen, memory)
        except PLUGIN_FAILURES:  # with numbers larger than it was made for; it has been tried with others
            return True
        each = torch.cat([found.outputs, found.state.flatten(1)], dim=1)
        return not torch.equal(each, each[:1].expand_as(each))

    def _learns(self, net: FrameNetwork) -> None:
        method, params, spec = self._method, self._params, self._spec
        batch = self._minibatch() if isinstance(method, UnrollAlgorithm) else method.example(spec, params, _CPU)
        rows = batch.action.shape[-1]
        batch = _random_actions(batch.split(max(1, rows // _ROWS))[0].batch, spec.num_actions)
        rows = batch.action.shape[-1]
        if isinstance(method, TransitionAlgorithm):
            result = self._call("loss", lambda: method.loss(params, net, net, batch), batch)
        else:
            result = self._call("loss", lambda: method.loss(params, net, batch), batch)  # type: ignore[attr-defined]
        self._expect("loss", isinstance(result, LossResult), "a LossResult", result)
        self._tensor("loss: value", result.value, ())
        self._expect("loss: value", bool(torch.isfinite(result.value)), "a finite number", float(result.value.detach()))
        self._expect("loss: value", result.value.requires_grad, "a number to differentiate", "one without a gradient")
        missing = [name for name in method.metrics if name not in result.metrics]
        expected = f"metrics {', '.join(method.metrics)}, as the attribute metrics says"
        self._expect("loss: metrics", not missing, expected, sorted(result.metrics))
        for name in method.metrics:
            self._tensor(f"loss: metrics[{name!r}]", result.metrics[name], (), detached=True)
        if isinstance(method, TransitionAlgorithm):
            errors: Any = result.td_abs
            self._tensor("loss: td_abs", errors, (rows,), detached=True)
            self._expect("loss: td_abs", bool((errors >= 0).all()), "errors of 0 or more", errors.tolist())
            self._tensor("priorities", self._call("priorities", lambda: method.priorities(errors)), (rows,))
        names, weights = zip(*net.named_parameters(), strict=True)
        gradients = self._call("loss", lambda: torch.autograd.grad(result.value, weights, allow_unused=True), batch)
        unused = [name for name, each in zip(names, gradients, strict=True) if each is None]
        self._expect("loss", not unused, "a gradient for every weight", f"none for {', '.join(unused)}")
        broken = [name for name, each in zip(names, gradients, strict=True) if not torch.isfinite(each).all()]
        self._expect(
            "loss", not broken, "finite gradients", f"others for {', '.join(broken)}, with a loss that is finite"
        )

    def _minibatch(self) -> UnrollBatch:
        """The first of those that an algorithm of unrolls learns from."""
        method: Any = self._method
        whole = method.example_batch(self._spec, self._params, _CPU)
        found = self._call("minibatches", lambda: method.minibatches(self._params, whole), whole)
        fits = isinstance(found, Iterable) and not isinstance(found, tuple | Tensor)
        came = "one that is returned" if isinstance(found, UnrollBatch) else found
        self._expect("minibatches", fits, "batches that are yielded", came)
        first: Any = self._call("minibatches", lambda: next(iter(found), "none at all"), whole)
        self._expect("minibatches", isinstance(first, UnrollBatch), "each to be an UnrollBatch", first)
        steps, unrolls = whole.action.shape
        came = f"an empty one of a batch of {unrolls} unrolls of {steps} steps"
        self._expect("minibatches", first.action.numel() > 0, "batches with something in them", came)
        return first  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------------------- words

    def _call(self, function: str, call: Callable[[], T], batch: Any = None) -> T:
        try:
            return call()
        except (PluginProblem, ManifestError):
            raise
        except PLUGIN_FAILURES as error:
            has = ""
            if isinstance(error, AttributeError) and batch is not None and isinstance(error.obj, type(batch)):
                kind = "an UnrollBatch" if isinstance(batch, UnrollBatch) else f"a {type(batch).__name__}"
                has = f"; {kind} has {', '.join(batch._fields)}"
            if isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray):
                has = "; it is given arrays here, and may be given tensors: torch.as_tensor(...) takes both"
            if isinstance(error, TypeError) and not authors_line(error):  # it was not even entered
                function = function.split(" ")[0]
                takes = list(inspect.signature(getattr(_base(self._method), function)).parameters)[1:]
                has = f"; it is called as {function}({', '.join(takes)})"
            raise PluginProblem(f"{self._name}: {function} failed: {told(error)}{has}") from error

    def _expect(self, function: str, holds: bool, expected: str, came: object) -> None:
        if not holds:
            words = came if isinstance(came, str) else shown(came)
            raise PluginProblem(f"{self._name}: {function}: expected {expected}, got {words}")

    def _tensor(self, function: str, found: Any, shape: tuple[int, ...], *, detached: bool = False) -> None:
        expected = f"a tensor float32 {list(shape)}"
        fits = isinstance(found, Tensor) and found.dtype == torch.float32 and tuple(found.shape) == shape
        self._expect(function, fits, expected, found)
        if detached:
            self._expect(
                function, not found.requires_grad, "a detached tensor", "one with a gradient; .detach() takes it off"
            )

    def _array(self, function: str, found: Any, shape: tuple[int, ...]) -> None:
        fits = isinstance(found, np.ndarray) and found.dtype == np.float32 and found.shape == shape
        self._expect(function, fits, f"an array float32 {list(shape)}", found)

    def _actions(self, function: str, found: Any) -> None:
        fits = isinstance(found, np.ndarray) and found.dtype == np.int64 and found.shape == (_N,)
        self._expect(function, fits, f"an array of actions int64 [{_N}]", found)
        inside = bool(((found >= 0) & (found < self._spec.num_actions)).all())
        self._expect(function, inside, f"actions from 0 to {self._spec.num_actions - 1}", found.tolist())

    def _decision(self, function: str, found: Any) -> None:
        self._expect(function, isinstance(found, Decision), "a Decision(action, taken, value)", found)
        self._actions(f"{function}: action", found.action)
        self._array(f"{function}: taken", found.taken, (_N,))
        self._array(f"{function}: value", found.value, (_N,))


def _frames(draws: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    return draws.integers(0, 255, shape).astype(dtype) if dtype == "uint8" else draws.normal(size=shape).astype(dtype)


def _different_frames(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Observations [16, S, *F] that any network which looks at them can tell apart: of bytes, dark to bright; of floats, of sizes
    from a hundredth to hundreds."""
    draws = np.random.default_rng(0)
    sizes = np.geomspace(0.01, 1.0 if dtype == "uint8" else 300.0, _DIFFERENT).reshape(-1, *(1 for _ in shape))
    of_bytes = dtype == "uint8"
    drawn = draws.integers(0, 256, (_DIFFERENT, *shape)) if of_bytes else draws.normal(size=(_DIFFERENT, *shape))
    found: NDArray[Any] = (sizes * drawn).astype(dtype)
    return found


def _random_actions(batch: Any, actions: int) -> Any:
    if isinstance(batch, TransitionBatch | UnrollBatch):
        return batch._replace(action=torch.randint(0, actions, batch.action.shape))
    return batch


def _base(method: AnyAlgorithm) -> type[AnyAlgorithm]:
    return TransitionAlgorithm if isinstance(method, TransitionAlgorithm) else UnrollAlgorithm
