"""What an update needs of its device: 16-bit weights that compute, an update that is recorded once and replayed, and the way of
its numbers to the host.

A graph reads and writes the same memory each time. So a minibatch and the learning rate are copied to where it was recorded with
them, everything else that an update changes keeps its place, and the next replay overwrites the results.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.sharded_optimizer import ParameterSlice


class HalfWeightsCopy:
    """Stands in for ``network`` where it computes in bf16 or fp16: a copy whose trunk is stored so, converted once an update.

    Where ``network`` computes in float32 there is no copy, and it stands for itself. ``network`` keeps the float32 weights that
    learn, are published and are saved. Used by one thread at a time, but for ``update``; several may compute with ``module``.
    """

    def __init__(self, network: FrameNetwork) -> None:
        self._copied = network.plan.half is not None
        self.module = network.working_copy() if self._copied else network
        self._masters, self._copies = _state_of(network), _state_of(self.module)
        self.parameters: list[Tensor] = list(self.module.parameters())
        """Those to differentiate by, in the order of the network's own."""
        self._versions: list[int] = []

    @torch.no_grad()
    def update(self, shard: Sequence[ParameterSlice]) -> None:
        """Bring a shard of the parameters up to date. Several threads may, each with its own; then call ``mark_updated``."""
        if self._copied:
            copies, masters = ([each.select(tensors) for each in shard] for tensors in (self._copies, self._masters))
            torch._foreach_copy_(copies, masters)

    def mark_updated(self) -> None:
        """All shards have been brought up to date: ``refresh`` need not do it."""
        self._versions = self._master_versions()

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring ``module`` up to date if the network has changed since it was."""
        if self._copied and self._master_versions() != self._versions:
            self.convert()

    @torch.no_grad()
    def convert(self) -> None:
        """Bring all of ``module`` up to date, whether or not the network has changed."""
        if self._copied:
            torch._foreach_copy_(self._copies, self._masters)
            self.mark_updated()

    def _master_versions(self) -> list[int]:
        return [tensor._version for tensor in self._masters]


def _state_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


FIRST: Final = 2.0**16
GROWTH_UPDATES: Final = 2000
"""So many updates without an overflow double it: an update in so many is tried and lost."""


class LossScale:
    """By how much a loss is multiplied before it is differentiated in fp16, so that small gradients do not round to nothing.

    As in Micikevicius et al. 2018 ("Mixed Precision Training", section 3.2): as large as possible, halved whenever a gradient
    overflows and that update is skipped. torch's own ``GradScaler`` is made for optimisers that it steps itself; here the
    gradients of several threads are added up in float32 first.

    ``factor``, float32 on ``device``: 1 or more, a power of two, so that scaling rounds nothing. The host never waits for it.

    Its numbers keep their place in memory, where a CUDA graph of the update reads and changes them.
    """

    def __init__(self, device: torch.device, first: float = FIRST, growth_updates: int = GROWTH_UPDATES) -> None:
        self._growth_updates = growth_updates
        self.factor = torch.tensor(first, device=device)
        """That of the next update; ``follow`` changes it in place."""
        self._good = torch.zeros((), device=device)

    @torch.no_grad()
    def follow(self, norm: Tensor) -> None:
        """An update has ended whose gradient had this norm; one that is not finite was skipped."""
        fits = torch.isfinite(norm)
        good = torch.where(fits, self._good + 1.0, 0.0)
        grows = good >= self._growth_updates
        change = torch.where(fits, torch.where(grows, 2.0, 1.0), 0.5)
        self.factor.mul_(change).clamp_(min=1.0)
        self._good.copy_(torch.where(grows, 0.0, good))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        return {"factor": self.factor, "good_updates": self._good}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Go on with what ``state`` gave."""
        self.factor.copy_(saved["factor"])
        self._good.copy_(saved["good_updates"])


Batch = TypeVar("Batch", TransitionBatch, UnrollBatch)
Result = TypeVar("Result")

WARM_UPS: Final = 3
"""Updates before one is recorded: libraries make their handles and workspaces in the first ones, and a compiler its kernels."""


class Learned(NamedTuple):
    """What an update gives, on the device.

    priorities: float32 [B], empty where there are none. figures: float32 [K]. divergence: see ``LossResult``.
    """

    priorities: Tensor
    figures: Tensor
    divergence: Tensor | None


Capturer: TypeAlias = Callable[[Callable[[], Learned]], tuple[Learned, Callable[[], object]]]
"""Records a function: its results, and a function that does all of it again and puts its results into the same tensors.
Afterwards the function may have been done, any number of times."""


def cuda_graph(work: Callable[[], Result]) -> tuple[Result, Callable[[], object]]:
    """A CUDA graph of ``work``. Raises RuntimeError where that can't be captured, as it waits for the device."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    # The outer context gives the caller's stream back even where a capture fails; torch's own does not then.
    # Warm-up and capture share a stream, for which some libraries make their handles.
    with torch.cuda.stream(stream):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable=True")  # of an optimiser that is not captured yet
            for _ in range(WARM_UPS):
                work()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            learned = work()
    torch.cuda.current_stream().wait_stream(stream)
    return learned, graph.replay


class CapturedUpdate(Generic[Batch]):
    """``compute(minibatch, rate)`` for minibatches of the shapes of ``like``: ``capture`` records it, a call replays it.

    ``inputs``: the minibatch of the last call. What a call gives is overwritten by the next.
    """

    def __init__(self, compute: Callable[[Batch, Tensor], Learned], like: Batch, capture: Capturer) -> None:
        self._forms = _forms(like)
        self.inputs: Batch = tree_map_only(Tensor, torch.clone, like)
        self.rate = torch.zeros((), device=like.action.device)
        self._learned, self._replay = capture(lambda: compute(self.inputs, self.rate))

    def fits(self, minibatch: Batch) -> bool:
        """Whether it can be replayed for this one."""
        return _forms(minibatch) == self._forms

    def __call__(self, minibatch: Batch, rate: float) -> Learned:
        """One update; the host does not wait for it."""
        # By one call: after each the host's other threads may hold up the next.
        torch._foreach_copy_(_tensors(self.inputs), _tensors(minibatch), non_blocking=True)
        self.rate.fill_(rate)
        self._replay()
        return self._learned


def _tensors(minibatch: TransitionBatch | UnrollBatch) -> list[Tensor]:
    return [tensor for tensor in tree_leaves(minibatch) if tensor is not None]


def _forms(minibatch: TransitionBatch | UnrollBatch) -> list[Any]:
    return [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tree_leaves(minibatch)]


DEPTH: Final = 4
"""Updates that the host may be ahead of the device. With fewer, a device whose updates are short waits for the host's next turn;
with more, new priorities would come later than they need to."""


Arrived: TypeAlias = tuple[Any, NDArray[np.float32], NDArray[np.float32]]
"""(item, priorities float32[B], figures float32[K])"""


class Readback:
    """Brings what updates computed to the host, in their order.

    On a CPU ``push`` gives the numbers at once. On CUDA it starts a copy into pinned memory and gives what has arrived by then;
    only where more than ``DEPTH`` copies are under way does it wait, for the oldest, so that a host that is faster than its
    device keeps step with it. ``event`` makes what says that a copy has finished; None: copies are not needed.
    """

    def __init__(self, device: torch.device, event: Callable[[], Any] | None = None) -> None:
        self._event = event or (torch.cuda.Event if device.type == "cuda" else None)
        self._pinned = device.type == "cuda"
        self._under_way: deque[tuple[Any, Tensor, Any, int]] = deque()

    def push(self, item: Any, priorities: Tensor, figures: Tensor) -> Iterator[Arrived]:
        """Each ``item`` that was pushed comes back once, with its numbers.

        The copy begins when the iteration does. What ``drain`` forgets meanwhile does not come any more.
        """
        if self._event is None:
            yield item, priorities.numpy(), figures.numpy()
            return
        host = torch.empty(len(priorities) + len(figures), pin_memory=self._pinned)
        host.copy_(torch.cat([priorities, figures]), non_blocking=True)
        event = self._event()
        event.record()
        self._under_way.append((item, host, event, len(priorities)))
        yield from self.arrived()

    def arrived(self) -> Iterator[Arrived]:
        """What has come by now, and what is too far behind."""
        while self._under_way and (len(self._under_way) > DEPTH or self._under_way[0][2].query()):
            yield self._oldest()

    def rest(self) -> Iterator[Arrived]:
        """All that is under way, each waited for."""
        while self._under_way:
            yield self._oldest()

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._under_way.clear()

    def _oldest(self) -> Arrived:
        item, host, event, priorities = self._under_way.popleft()
        event.synchronize()
        numbers = host.numpy()
        return item, numbers[:priorities], numbers[priorities:]


class LateNumber:
    """One number of each batch: on a CPU at once, on CUDA once it has arrived.

    As with ``Readback`` the caller does not wait, unless more than ``DEPTH`` are under way, or it ``waits`` for each.
    """

    def __init__(self, device: torch.device, event: Callable[[], Any] | None = None, *, waits: bool = False) -> None:
        self._readback, self._waits = Readback(device, event), waits
        self._nothing = torch.empty(0, device=device)

    def push(self, number: Tensor) -> list[float]:
        """Takes a batch's number; those that have arrived by now, oldest first."""
        arrived = [*self._readback.push(None, self._nothing, number.detach().reshape(1))]
        arrived += self._readback.rest() if self._waits else ()
        return [float(came[0]) for _, _, came in arrived]

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._readback.drain()
