"""An update that is recorded once and replayed: on CUDA as a graph, all of whose kernels the host starts by one call.

A graph reads and writes the same memory each time. So a minibatch and the learning rate are copied to where it was recorded with
them, everything else that an update changes keeps its place, and the next replay overwrites the results.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from rljob.algorithms.batches import TransitionBatch, UnrollBatch

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
