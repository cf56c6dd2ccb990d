"""Updates that are made only to see what they do: from one state, on minibatches that differ, and with that state put back; and
whether the kernels of an update can be started on a GPU all at once, as a CUDA graph.

An update has hundreds of kernels, and the host that starts them one by one mostly takes longer than they do. A graph is used only
where it was seen to learn what the update itself learns; whatever speaks against it is logged, and the learner goes on without.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from rljob.errors import first_line
from rljob.learner.optim.base_updater import counts
from rljob.learner.optim.on_device import CapturedUpdate, Capturer, cuda_graph
from rljob.learner.optim.updater import AnyUpdater

log = logging.getLogger(__name__)

TRIAL_LOSS_SCALE: Final = 16.0
"""In fp16. A run begins with as large a scale as goes, so that its first updates may all be skipped, and would show nothing."""
_RATES: Final = (1.0, 0.5, 0.25)


class KeptState:
    """What updates change of ``updater``, to be put back in place: every tensor stays where it is in memory."""

    def __init__(self, updater: AnyUpdater) -> None:
        self._updater = updater
        self._tensors = {name: tensor.clone() for name, tensor in tensors_of(updater).items()}
        self._updates, self._rate = updater.updates, updater.learning_rate.scale
        self.random = torch.get_rng_state()
        """The host's; the device's is kept and put back as well."""
        self._random_there = torch.cuda.get_rng_state() if updater.device.type == "cuda" else None

    @torch.no_grad()
    def put_back(self) -> None:
        """May be called any number of times. Moments that an optimiser has begun to keep since then are set to zero, their first
        value."""
        for name, tensor in tensors_of(self._updater).items():
            if name in self._tensors:
                tensor.copy_(self._tensors[name])
            else:
                tensor.zero_()
        self._updater.updates, self._updater.learning_rate.scale = self._updates, self._rate
        torch.set_rng_state(self.random)
        if self._random_there is not None:
            torch.cuda.set_rng_state(self._random_there)


def outcome(updater: AnyUpdater, minibatch: Any) -> dict[str, Tensor]:
    """What three updates do, each with another learning rate and on other numbers than the one before.

    By name: the loss, the gradient's norm and the priorities that they give, and how far they move each network, each kind of
    what the optimiser keeps, and the loss's scale.
    """
    if updater.loss_scale is not None:
        updater.loss_scale.load({"factor": torch.tensor(TRIAL_LOSS_SCALE), "good_updates": torch.tensor(0.0)})
    before = {name: tensor.clone() for name, tensor in tensors_of(updater).items()}
    other = unlike(minibatch)
    given: dict[str, list[Tensor]] = {"loss": [], "gradient norm": [], "priorities": []}
    for rate, each in zip(_RATES, (other, minibatch, other), strict=True):
        updater.learning_rate.scale = rate
        learned = updater.learn(each, 0)
        for name, value in zip(given, (learned.figures[:1], learned.figures[1:2], learned.priorities), strict=True):
            given[name].append(value.clone())
    for name, tensor in tensors_of(updater).items():
        moved = tensor.float() - before[name].float() if name in before else tensor.float()
        given.setdefault(name.split(".", 1)[0], []).append(moved.flatten())
    return {name: torch.cat(values) for name, values in given.items()}


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, float]:
    """How far two outcomes are apart, by name, as a share of the length of the first. What is not finite in both is equal."""

    def number(values: Tensor) -> Tensor:
        return values.double().nan_to_num(nan=0.0)

    return {
        name: float((number(values) - number(other[name])).norm() / number(values).norm().clamp(min=1e-30))
        for name, values in one.items()
    }


def unlike(minibatch: Any) -> Any:
    """Another minibatch that a job could have: every number but the actions is another. Frames of bytes become negatives."""

    def changed(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not (tensor.is_floating_point() or tensor.dtype == torch.uint8):
            return tensor
        return tensor.bitwise_not() if tensor.dtype == torch.uint8 else tensor - 0.1

    return tree_map(changed, minibatch)


def first_minibatch(updater: AnyUpdater, batch: Sequence[Any]) -> Any:
    """What the first update from ``batch`` is made from, in memory of its own, as ``learn`` hands it on. The order of later ones
    does not depend on it."""
    with torch.random.fork_rng([]):
        minibatch: Any = next(updater.minibatches(batch))  # type: ignore[arg-type]
    return tree_map_only(Tensor, torch.clone, minibatch._replace(**counts(0, 1, updater.device)))


def tensors_of(updater: AnyUpdater) -> dict[str, Tensor]:
    """All that an update changes on the device, itself and not a copy. The first part of a name says of what kind it is."""
    tensors = network_tensors(updater) | updater.optimizer.tensors()
    if updater.loss_scale is not None:
        tensors |= {f"loss scale.{name}": tensor for name, tensor in updater.loss_scale.state().items()}
    return tensors


def network_tensors(updater: AnyUpdater) -> dict[str, Tensor]:
    """The weights and buffers of all networks, not copied, by ``section.name``."""
    return {
        f"{section}.{name}": tensor
        for section, network in updater.networks().items()
        for name, tensor in network.state_dict().items()
    }


TOLERANCE: Final = 0.01
"""So much of what is learned (and of each other outcome) may differ in a graph. One that reads a single column of
an old batch was off by 0.05 to 0.36 in tests, one with an old learning rate, an old batch or a lost step by 0.4 and more."""
OF_NOISE: Final = 4.0
"""So many times as much as an update differs from itself may be added to that: kernels may add up in any order."""


class CaptureProblem(Exception):
    """There is no graph of an update that can be used. ``str()`` says why."""


def captured_and_checked(
    updater: AnyUpdater, batch: Any, capture: Capturer = cuda_graph
) -> tuple[CapturedUpdate[Any], float]:
    """A graph of the updates that ``batch``, a whole one, is learned from; and the largest of its ``differences`` from them.

    ``updater`` is as it was afterwards, and does not use the graph. Raises CaptureProblem.
    """
    kept = KeptState(updater)
    minibatch = first_minibatch(updater, batch)

    def tried(way: CapturedUpdate[Any] | None) -> dict[str, torch.Tensor]:
        kept.put_back()
        updater.captured = way
        return outcome(updater, minibatch)

    try:
        updater.learn(minibatch, 0)
        if not torch.equal(torch.get_rng_state(), kept.random):
            raise CaptureProblem("its loss draws random numbers on the host, which a graph would use again and again")
        plain, again = tried(None), tried(None)
        if not plain["online"].any():
            raise CaptureProblem("three updates on trial moved no weight, so that a graph can't be compared with them")
        try:
            captured: CapturedUpdate[Any] = CapturedUpdate(updater.compute, minibatch, capture)
            replayed = tried(captured)
        except RuntimeError as error:
            raise CaptureProblem(f"it can't be captured ({first_line(_origin(error))})") from error
    finally:
        updater.captured = None
        kept.put_back()
    noise, found = differences(plain, again), differences(plain, replayed)
    for name, difference in found.items():
        allowed = TOLERANCE + OF_NOISE * noise[name]
        if not difference <= allowed:
            apart = f"by {difference:.2g} of it, where {allowed:.2g} is allowed"
            raise CaptureProblem(f"replayed, updates differ in what became of: {name} ({apart})")
    return captured, max(found.values())


def capture_if_it_learns_the_same(updater: AnyUpdater, batch: Any, capture: Capturer = cuda_graph) -> None:
    """Let ``updater`` replay its updates from now on where a graph of them does what they do, for ``batch``, a whole one of the
    job's shape. It has learned nothing from it afterwards. One sentence in the log says what became of it."""
    try:
        updater.captured, difference = captured_and_checked(updater, batch, capture)
    except CaptureProblem as problem:
        log.warning("the kernels of an update are started one by one, without a CUDA graph: %s", problem)
    else:
        log.info(
            "the kernels of an update are started as a CUDA graph; what it learns differs by %.2g of it", difference
        )
    if updater.device.type == "cuda":
        torch.cuda.empty_cache()  # of what was tried


def _origin(error: BaseException) -> BaseException:
    """What went wrong first: after a failure inside a capture, its end fails too, and says less."""
    while error.__context__ is not None:
        error = error.__context__
    return error
