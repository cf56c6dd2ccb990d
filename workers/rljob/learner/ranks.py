"""The processes that are one learner, its ranks: how they meet, and what they add up.

Rank 0 leads. Every exchange takes all ranks, in the same order. Where one has ended, or has not come to an exchange for
`WAIT_SECONDS`, the others end, too (`RankLost`), and the controller starts all of them together, in a later epoch. So a rank
that is left over from an earlier epoch meets nobody.

Nothing that ranks exchange is executable, but the links are torch.distributed's own: neither encrypted nor authenticated.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from rljob.algorithms.batches import LossResult, TransitionBatch, UnrollBatch
from rljob.api.exit_codes import EXIT_RANK_LOST
from rljob.errors import CommandRefused, UsageError, first_line
from rljob.threads import start_contained

log = logging.getLogger(__name__)

MEET_SECONDS: Final = 600.0
"""A rank may come so much later than another: its image is pulled, its libraries are loaded, its updates are measured."""
WAIT_SECONDS: Final = 60.0
"""For a rank that does not come to an exchange. One that has ended is noticed at once by its connection."""
_LOOPBACK: Final = "127.0.0.1"
LEAVE_SECONDS: Final = 5.0
"""After so long a rank that has lost another is ended, whatever still holds it."""


class RankLost(CommandRefused):
    """Another rank has ended, or does not answer; this one can't go on alone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_RANK_LOST)


@contextlib.contextmanager
def _lost(what: str) -> Iterator[None]:
    """Any failure to reach the other ranks is a `RankLost`; the process ends soon, also where a library's thread hangs."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # of which torch.distributed's own errors are
        start_contained("rank-lost", _end_soon)
        said = first_line(error)
        why = said.rpartition(".cc:")[2].partition("] ")[2] or said  # gloo's own begin with a place in its source
        raise RankLost(
            f"{what}: {why.partition('. ')[0]}; all of the learner's processes start again together"
        ) from None


def _end_soon() -> None:
    time.sleep(LEAVE_SECONDS)
    os._exit(EXIT_RANK_LOST)


class Meeting:
    """The ranks of one epoch on their way to each other: ``rank`` of ``count``, by a store that rank 0 serves at ``address``.

    ``about``: what has to be the same for all; ``stop``: this rank is to leave. Closed by the end of the process. Whatever waits
    here raises `RankLost` in the end.
    """

    def __init__(
        self,
        rank: int,
        count: int,
        address: tuple[str, int],
        epoch: int,
        about: Mapping[str, Any],
        stop: threading.Event | None = None,
    ) -> None:
        self.rank, self.count = rank, count
        self._about, self._stop = {"WORLD_SIZE": count, **about}, stop or threading.Event()
        if rank > 0:
            self._wait_for(lambda: _listens(address), f"rank 0 at {address[0]}:{address[1]}")
        with _lost(f"rank {rank} of {count} can't meet the others at {address[0]}:{address[1]}"):
            host = _LOOPBACK if address[0] == _LOOPBACK else ""
            listening = socket.create_server((host, address[1])).detach() if rank == 0 else None
            store = dist.TCPStore(  # type: ignore[attr-defined]
                address[0] if rank > 0 else _LOOPBACK,  # by its own name rank 0 may not be known yet
                address[1],
                is_master=rank == 0,
                timeout=timedelta(seconds=WAIT_SECONDS),
                wait_for_workers=False,
                master_listen_fd=listening,
            )
        self._store = dist.PrefixStore(f"epoch-{epoch}", store)  # type: ignore[attr-defined]

    def agree(self, word: str = "") -> str:
        """Rank 0's ``word``, once all ranks know that they are of one job. Raises UsageError where they are not."""
        with _lost(f"rank {self.rank} of {self.count} has lost rank 0"):
            self._store.set(f"rank-{self.rank}", json.dumps(self._about))
            if self.rank == 0:
                self._wait_for_keys(f"rank-{rank}" for rank in range(self.count))
                others = [json.loads(self._store.get(f"rank-{rank}")) for rank in range(self.count)]
                self._store.set("word", json.dumps([word, others]))
            self._wait_for_keys(["word"])
            word, all_ranks = json.loads(self._store.get("word"))
            self._store.add("read", 1)
            lead = all_ranks[0]
            for rank, its in [*enumerate(all_ranks), (self.rank, self._about)]:
                apart = [
                    f"{name} {its[name]} (rank 0: {lead[name]})" for name in self._about if its[name] != lead[name]
                ]
                if apart:
                    if self.rank == 0:  # it serves the store, by which the others hear why it ends
                        with contextlib.suppress(RankLost):
                            self._wait_for(lambda: self._store.add("read", 0) >= self.count, "others", LEAVE_SECONDS)
                    words = ", ".join(apart)
                    raise UsageError(f"rank {rank} is of another job than rank 0: {words}; start all from one manifest")
        return str(word)

    def group(self, device: torch.device) -> "Ranks":
        """All ranks, once each is ready to learn on its ``device``."""
        with _lost(f"rank {self.rank} of {self.count} has lost another"):
            self._store.set(f"ready-{self.rank}", "")
            self._wait_for_keys(f"ready-{rank}" for rank in range(self.count))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=dist.PrefixStore("group", self._store),  # type: ignore[attr-defined]
                rank=self.rank,
                world_size=self.count,
                timeout=timedelta(seconds=WAIT_SECONDS),
            )
        log.info("rank %d of %d: all are there", self.rank, self.count)
        return Ranks(self.rank, self.count)

    def _wait_for_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._wait_for(partial(self._store.check, [key]), key.replace("-", " "))

    def _wait_for(self, there: Callable[[], bool], what: str, seconds: float = MEET_SECONDS) -> None:
        """Unlike torch's own waiting it ends when the process is told to leave, and says nothing meanwhile."""
        deadline = time.monotonic() + seconds
        while not there():
            if self._stop.wait(0.1) or time.monotonic() > deadline:
                who = f"rank {self.rank} of {self.count}"
                raise RankLost(
                    f"{who} has waited for {what} in vain; all of the learner's processes start again together"
                )


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1.0).close()
    except OSError:  # its name may not be known yet
        return False
    return True


class Ranks:
    """What all ranks, ``count`` of them, do together; ``rank`` is this one. For the training loop's thread.

    ``present``: whether this rank learns from a batch of its own now. Where it does not, it adds nothing.
    """

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self.present = True

    def sum(self, numbers: Tensor) -> Tensor:
        """``numbers`` of all ranks added up, in place. (Not gloo's average, which is wrong without a word: pytorch#162338.)"""
        with _lost(f"rank {self.rank} of {self.count} has lost another"):
            dist.all_reduce(numbers)
        return numbers

    def rows(self, row: Tensor) -> Tensor:
        """``row`` [n] of each rank, [count, n]; of one without a batch zeros."""
        found = torch.zeros(self.count, *row.shape, dtype=row.dtype, device=row.device)
        if self.present:
            found[self.rank] = row
        return self.sum(found)

    def moments(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation over all ranks' values."""
        own = values.double()
        sums = torch.stack([own.new_tensor(float(own.numel())), own.sum(), own.square().sum()])
        count, total, squares = self.rows(sums).sum(dim=0)
        mean = total / count
        spread = (squares / count - mean.square()).clamp(min=0.0).sqrt()
        return mean.to(values.dtype), spread.to(values.dtype)

    def gather(self, content: bytes) -> list[bytes]:
        """Every rank's ``content``, by rank."""
        sizes = self.sum(torch.eye(self.count, dtype=torch.int64)[self.rank] * len(content)).tolist()
        found = torch.zeros(self.count, max(sizes) + 1, dtype=torch.uint8)
        found[self.rank, : len(content) + 1] = torch.frombuffer(bytearray(content + b"\0"), dtype=torch.uint8)
        return [row[:size].numpy().tobytes() for row, size in zip(self.sum(found), sizes, strict=True)]

    close = staticmethod(dist.destroy_process_group)
    """Leave the others, which end then."""


def rows_of(minibatch: TransitionBatch | UnrollBatch) -> int:
    """The transitions or single steps that a mean over it is of."""
    return len(minibatch.weight) if isinstance(minibatch, TransitionBatch) else minibatch.log_prob.numel()


@torch.no_grad()
def over_ranks(
    ranks: Ranks, result: LossResult, gradients: Sequence[Sequence[Tensor]], like: Sequence[Tensor], rows: int
) -> tuple[LossResult, list[Tensor]]:
    """The loss and gradient of the whole minibatch, of which this rank has ``rows``; but for ``td_abs``, which is of these rows.

    ``gradients`` of each of its micro-batches one tensor a parameter, whose shapes and precision ``like`` has. All goes in one
    sum: means count by the rows that they are of, so that parts may be uneven, and a rank without a batch adds zeros. A number
    that is not finite makes the sum so for every rank.
    """
    own = [
        sum((each[index].to(of.dtype) for each in gradients[1:]), gradients[0][index].to(of.dtype))
        for index, of in enumerate(like)
    ]
    means = [*result.metrics.values(), *([] if result.divergence is None else [result.divergence])]
    counted = torch.stack([*means, torch.ones_like(result.value)]).to(like[0].dtype) * rows
    of_loss = torch.cat([each.flatten() for each in (*own, result.value.detach().to(like[0].dtype))])
    flat = torch.cat([of_loss if result.summed else of_loss * rows, counted])
    if not ranks.present:
        flat.zero_()
    ranks.sum(flat)
    of_loss, counted = flat[: len(of_loss)], flat[len(of_loss) : -1] / flat[-1]
    if not result.summed:
        of_loss /= flat[-1]
    *whole, value = torch.split(of_loss, [*(each.numel() for each in like), 1])
    kept = counted.to(result.value.dtype)
    return (
        result._replace(
            value=value[0],
            metrics=dict(zip(result.metrics, kept, strict=False)),
            divergence=None if result.divergence is None else kept[-1],
        ),
        [each.view(of.shape) for each, of in zip(whole, like, strict=True)],
    )
