"""One batch on its way: how it is divided among shards so that K of them are drawn from as if they were one table, its buffer,
the rows that shards have sent, and those that are still to come.

The draws of a batch go to the shards by their share of the whole priority mass. What a batch costs the rate limiters is
divided by another rule, which keeps the shards level: were each to pay for what it is drawn, the one with the most mass would
be given the most inserts, and by them still more mass.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import TransitionBatch
from rljob.learner.shard import ShardSession
from rljob.learner.staging import TransitionBuffers, on_current_stream
from rljob.wire import Message


def draws_by_mass(masses: Sequence[float], draws: int, offset: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How many of ``draws`` each shard makes, int64 [K], and its share of the mass, float64 [K].

    Systematic sampling: with ``offset`` uniform in [0, 1), each shard's expected number is exactly ``draws * share`` and its
    number differs from that by less than one, as in one table whose draws are stratified. Raises ValueError without mass.
    """
    mass = np.asarray(masses, np.float64)
    below = np.cumsum(mass)
    if not (mass >= 0.0).all() or not 0.0 < below[-1] < np.inf:
        raise ValueError(f"priority masses {list(masses)}: each must be 0 or more, and one of them more than 0")
    edges = np.zeros(len(mass) + 1, np.int64)
    edges[1:] = np.minimum(np.floor(below / below[-1] * draws + offset), draws)  # just below 1, an offset may round up
    return edges[1:] - edges[:-1], mass / below[-1]


def charges_by_error(errors: Sequence[float], amount: int) -> NDArray[np.int64]:
    """How many samples of ``amount`` each shard's limiter counts, int64 [K]: as many as bring the errors down to one level.

    ``errors``: by how many samples each shard's inserts are ahead of its ratio. Those furthest ahead pay first, so that all stay
    level and the whole waits as one limiter would: a shard that few inserts reach pays little and holds no other up.
    """
    error = np.array(errors, np.float64)
    if amount == 0:
        return np.zeros(len(error), np.int64)
    error -= error.max()  # only differences matter, and small numbers are exact
    highest = np.sort(error)[::-1]
    # The level at which the n highest alone would pay everything; right is the largest n of which all lie above it.
    levels = (np.cumsum(highest) - amount) / np.arange(1, len(error) + 1)
    level = levels[np.flatnonzero(highest > levels)[-1]]
    paid = np.cumsum(np.maximum(error - level, 0.0))
    # Rounding the running sum, not each part, keeps the whole exact.
    edges = np.zeros(len(error) + 1, np.int64)
    edges[1:] = np.rint(paid / paid[-1] * amount)
    return edges[1:] - edges[:-1]


@dataclass(frozen=True, slots=True)
class Part:
    """The ``rows`` of a batch that came from replay shard ``shard``, in subscription number ``subscription`` to it."""

    shard: int
    subscription: int
    rows: slice


@dataclass(frozen=True, slots=True, eq=False)
class ReadyBatch:
    """A batch to learn from, and what is needed to send its new priorities back.

    ``batch`` is on the device. ``parts``, ``slots`` u4[B] and ``generations`` u4[B] name its transitions; ``policy_version``
    int64[B] is the behaviour version of each, 0 for a random actor. ``least``: the least chance of any of them in a draw.
    """

    batch: TransitionBatch
    parts: tuple[Part, ...]
    slots: NDArray[np.uint32]
    generations: NDArray[np.uint32]
    policy_version: NDArray[np.int64]
    staging: TransitionBuffers
    ready: Any = None
    origins: Sequence[str] = ()
    least: float = 0.0

    def wait(self) -> TransitionBatch:
        """The batch, once the device has it; the host does not wait."""
        batch: TransitionBatch = on_current_stream(self.batch, self.ready)
        return batch

    def newest_frames(self) -> Tensor:
        """The newest frame of every observation, [B, *F*]; of observations of one column."""
        frames: Tensor = self.wait().observation[:, -1]
        return frames


@dataclass(frozen=True, slots=True)
class _RowRange:
    """Rows to be drawn, and what they cost the rate limiters, in transitions."""

    start: int
    stop: int
    charge: int


@dataclass(frozen=True, slots=True)
class _Asked(_RowRange):
    """``share``: the chance that a draw of this batch went to that shard."""

    share: float


class Assembly:
    """B rows of ``staging``, filled by the shards' answers as they come, in any order; used by the prefetch thread.

    ``probability`` float64 [B]: each row's chance in one draw over all shards, which is the shard's share of the mass when it
    was asked times the chance within the shard. ``slots`` and ``generations`` uint32 [B] name the transitions in their shards.
    """

    def __init__(self, staging: TransitionBuffers, batch_size: int) -> None:
        self.staging = staging
        self.parts: list[Part] = []
        self.origins: list[str] = []
        self.slots: NDArray[np.uint32] = np.zeros(batch_size, np.uint32)
        self.generations: NDArray[np.uint32] = np.zeros(batch_size, np.uint32)
        self.probability: NDArray[np.float64] = np.zeros(batch_size, np.float64)
        self._unasked = [_RowRange(0, batch_size, batch_size)]
        self._asked: dict[tuple[int, int], _Asked] = {}

    @property
    def complete(self) -> bool:
        """Whether every shard that was asked has answered and every row is there."""
        return not self._unasked and not self._asked

    def ask(self, sessions: Sequence[ShardSession], offset: float) -> None:
        """Ask ``sessions``, those that can be drawn from now, for every row that no shard was asked for.

        Rows that can't be asked for now are asked for later. A shard may be asked for no row, so that its limiter allows the
        batch.
        """
        unasked, self._unasked = self._unasked, []
        for wanted in unasked:
            rows, shares = draws_by_mass([session.mass for session in sessions], wanted.stop - wanted.start, offset)
            charges = charges_by_error([session.error for session in sessions], wanted.charge)
            start = wanted.start
            for session, count, share, charge in zip(
                sessions, rows.tolist(), shares.tolist(), charges.tolist(), strict=True
            ):
                row_range = _RowRange(start, start + count, charge)
                start += count
                if not count and not charge:
                    continue
                request = session.ask(count, charge)
                if request is None:
                    self._unasked.append(row_range)
                else:
                    self._asked[session.index, request] = _Asked(row_range.start, row_range.stop, charge, share)

    def recover(self, sessions: Sequence[ShardSession], given_up: Container[int]) -> None:
        """Mark rows to be asked for again: those that a session has forgotten, and all of the sessions ``given_up``."""
        for index, request in list(self._asked):
            session = sessions[index]
            if index in given_up or request not in session.outstanding:
                session.forget(request)
                asked = self._asked.pop((index, request))
                self._unasked.append(_RowRange(asked.start, asked.stop, asked.charge))

    def take(self, session: ShardSession, message: Message) -> bool:
        """Fill in the rows of ``message``, a batch that ``session`` has accepted; False where it belongs to another assembly."""
        asked = self._asked.pop((session.index, int(message.fields["req"])), None)
        if asked is None:
            return False
        rows, columns = slice(asked.start, asked.stop), message.columns
        if asked.stop > asked.start:
            assert session.ring is not None, "a batch is accepted only where there is a mirror"
            self.staging.fill(rows, columns["slot"], session.ring)
            self.slots[rows], self.generations[rows] = columns["slot"], columns["gen"]
            np.multiply(columns["prob"], asked.share, out=self.probability[rows])
            self.origins += session.first_used(columns["slot"])
            self.parts.append(Part(session.index, session.resubscriptions, rows))
        return True
