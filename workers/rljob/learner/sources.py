"""What the training loop is given: its settings from the job, how it ends where the job says so, and where it gets batches:
from a replay service, or from the learner's own queue of unrolls.

Around that source stands `InStep` in a learner of several processes: before each batch the ranks agree, and learn from it at the
same time or not at all. A rank that has no batch is waited for, `PATIENCE_SECONDS` at most, while experience comes to it. Then
the others go on without, and it computes beside them and adds nothing, so that all have made the same updates. Rank 0 leads: what
it changes (a checkpoint's weights, live values, a fork) the others take over whole, before the next batch.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from rljob.api.exit_codes import EXIT_NON_FINITE_LOSS, EXIT_SUPERSEDED
from rljob.checkpoints.location import Location
from rljob.errors import CommandRefused
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.client import ReplayClient
from rljob.learner.ranks import Ranks
from rljob.learner.shard_totals import replay_summary
from rljob.learner.unroll_queue import UnrollQueue
from rljob.strict_json import dumps

BatchSource: TypeAlias = ReplayClient | UnrollQueue
"""Every batch that ``next`` gives is handed back once, by ``give_back`` (learned from) or ``pass_over`` (only read)."""


class NonFiniteLoss(CommandRefused):
    """The loss is not finite and the job's policy is to fail, or there is nothing to restore."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_NON_FINITE_LOSS)


class Superseded(CommandRefused):
    """A learner of a later epoch has begun, and does this one's work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_SUPERSEDED)


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """``batch_size``: transitions that a batch is learned from, repeats included. ``publish_interval`` in updates, 0 where each
    batch is followed by a version.
    ``on_non_finite``: Fail, RestoreAndContinue or Ignore (skip the update). ``started_from``: the other run that the job began
    from, for its checkpoints' manifests."""

    batch_size: int
    publish_interval: int
    checkpoint_interval_seconds: float
    checkpoint_directory: Location
    centred: bool = False
    on_non_finite: str = "Fail"
    started_from: str = ""
    record_seconds: float = 2.0


PATIENCE_SECONDS: Final = 5.0
STATUS_SECONDS: Final = 1.0
_WORDS: Final = (
    "has", "hopes", "tired", "leaves", "stands", "news", "asks", "produced", "consumed", "steps", "raw_frames",
)  # fmt: skip
"""What a rank says, each a number; all are added up."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedBatch:
    """A rank's part of a batch: ``own``, with weights ``weight`` times as large; or, where it has none, ``stand_in`` of the same
    shape, from which nothing is learned."""

    own: Any
    stand_in: Any
    weight: float

    @property
    def policy_version(self) -> NDArray[np.int64]:
        return np.zeros(0, np.int64) if self.own is None else self.own.policy_version

    @property
    def origins(self) -> Sequence[str]:
        return () if self.own is None else self.own.origins

    def wait(self) -> Any:
        batch = self.stand_in if self.own is None else self.own.wait()
        return batch if self.weight == 1.0 else batch._replace(weight=batch.weight * self.weight)


class InStep:
    """A ``BatchSource`` of all ranks, around this rank's own ``source``; see the protocol. For the training loop's thread, but
    for ``statuses`` and ``section``.

    ``asked``: this process is to leave; ``left`` is set once all know. ``example`` makes a batch of a rank's size. ``weigh(least,
    least_of_all)``: how large the largest importance weight of a batch is beside that of all ranks, by their least chances.
    ``news``, of rank 0: all are to take over what it is now, by ``on_news``, which they call at the same time.
    """

    def __init__(
        self,
        ranks: Ranks,
        source: BatchSource,
        asked: threading.Event,
        example: Callable[[], Any],
        weigh: Callable[[float, float], float] | None,
    ) -> None:
        self.ranks, self.leads = ranks, ranks.rank == 0
        self._source, self._asked, self._weigh = source, asked, weigh
        self._stand_in = example()
        self.left = threading.Event()
        self.news = self.leads
        self.on_news: Callable[[], None] = lambda: None
        self.counts = 0, 0
        """(agent steps, raw frames) of the run: rank 0 says them, the others hear them."""
        self.produced = self.consumed = self._seen = self._next_status = 0.0
        self.learners = 0
        """How many ranks have a part of the latest batch."""
        self._held: Any = None
        self._moved = self._held_since = time.monotonic()
        self._late = self._others_have = False
        self._others: list[ShardStatus] = []

    def next(self, timeout_seconds: float) -> SharedBatch | None:
        """This rank's part of the next batch, once all ranks learn from theirs; None where they do not within about the time."""
        now = time.monotonic()
        if self._source.produced != self._seen:
            self._seen, self._moved = self._source.produced, now
        # That a batch comes soon. One who was late once is not waited for, but in iterations, which it would always miss.
        hopes = now - self._moved < PATIENCE_SECONDS and (self.needs_weights_first or not self._late)
        if self._held is None:
            self._held = self._source.next((0.01 if hopes else 0.0) if self._others_have else timeout_seconds)
            self._held_since = now
        has = self._held is not None
        said, least = self._agree(
            has=has, hopes=hopes and not has, tired=has and now - self._held_since > PATIENCE_SECONDS
        )
        self.learners = int(said["has"])
        self._others_have = self.learners > has
        if not self.learners or said["news"] or said["leaves"] or said["stands"]:
            return None
        if said["hopes"] and not said["tired"]:
            return None
        own, self._held, self._late, self._others_have = self._held, None, not has, False
        self.ranks.present = has
        weight = self._weigh(own.least, least) if has and self._weigh is not None else 1.0
        return SharedBatch(own, None if has else self._stand_in, weight)

    def idle(self, seconds: float) -> None:
        """Training stands still for so long, for all ranks."""
        self._agree(stands=True)
        time.sleep(seconds)

    def _agree(self, **flags: bool) -> tuple[dict[str, float], float]:
        """What all ranks say, added up, and the least chance of a transition in their batches. What does not depend on a batch is
        done at once."""
        now = time.monotonic()
        steps, raw_frames = self.counts if self.leads else (0, 0)
        mine: dict[str, float] = {
            "leaves": self._asked.is_set(),
            "news": self.news,
            "asks": self.leads and now >= self._next_status,
            "produced": self._source.produced,
            "consumed": self._source.consumed,
            "steps": steps,
            "raw_frames": raw_frames,
            **flags,
        }
        chances = [0.0] * self.ranks.count
        chances[self.ranks.rank] = getattr(self._held, "least", 0.0)
        numbers = torch.tensor([*(float(mine.get(word, 0.0)) for word in _WORDS), *chances], dtype=torch.float64)
        told = self.ranks.sum(numbers).tolist()
        said = dict(zip(_WORDS, told, strict=False))
        self.produced, self.consumed = said["produced"], said["consumed"]
        self.counts = int(said["steps"]), int(said["raw_frames"])
        if said["leaves"]:
            self.left.set()
        if said["news"]:
            self.news = False
            self.on_news()
        if said["asks"]:
            self._next_status = now + STATUS_SECONDS
            documents = [] if self.leads else [each.to_document() for each in self._source.statuses()]
            found = self.ranks.gather(b"\n".join(dumps(each).encode() for each in documents))
            self._others = [ShardStatus.from_json(line) for each in found for line in each.splitlines()]
        return said, min((chance for chance in told[len(_WORDS) :] if chance > 0.0), default=0.0)

    def give_back(self, batch: SharedBatch) -> None:
        if batch.own is not None:
            self._source.give_back(batch.own)

    def pass_over(self, batch: SharedBatch) -> None:
        if batch.own is not None:
            self._source.pass_over(batch.own)

    def learned(self, batch: SharedBatch, priority: NDArray[np.float32]) -> None:
        if batch.own is not None:
            self._source.learned(batch.own, priority)

    def __getattr__(self, name: str) -> Any:
        """All else is this rank's own."""
        return getattr(self._source, name)

    def statuses(self) -> list[ShardStatus]:
        """Of rank 0: those of all ranks' shards or queues, which are a second old."""
        return [*self._source.statuses(), *(self._others if self.leads else ())]

    def section(self) -> dict[str, Any]:
        found = self._source.section()
        return {**found, "replay": replay_summary(self.statuses())} if "replay" in found else found
