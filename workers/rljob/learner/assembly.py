"""One batch on its way: its buffer, the rows that shards have sent, and those that are still to come."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rljob.learner.division import charges_by_error, draws_by_mass
from rljob.learner.shard import ShardSession
from rljob.learner.staging import Part, TransitionBuffers
from rljob.wire import Message


@dataclass(frozen=True, slots=True)
class _RowRange:
    """Rows to be drawn, and what they cost the rate limiters, in transitions."""

    start: int
    stop: int
    charge: int


@dataclass(frozen=True, slots=True)
class _Asked(_RowRange):
    """``share``: the chance that a draw of this batch fell to that shard."""

    share: float


class Assembly:
    """B rows of ``staging``, filled by the shards' answers as they come, in any order; used by the prefetch thread.

    ``probability`` float64 [B]: each row's chance in one draw over all shards, which is the shard's share of the mass when it
    was asked times the chance within the shard. ``slots`` and ``generations`` uint32 [B] name the transitions in their shards.
    """

    def __init__(self, staging: TransitionBuffers, batch_size: int) -> None:
        self.staging = staging
        self.parts: list[Part] = []
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
        """Ask ``sessions``, those that can be drawn from now, for every row that nobody has been asked for.

        What can not be sent stays to be asked for. A shard that no row falls to may be asked all the same, for its limiter's
        leave.
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
        """What will not come is to be asked for again: whatever a session has forgotten, and all of those ``given_up``."""
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
            self.staging.fill(rows, columns, session.ring)
            self.slots[rows], self.generations[rows] = columns["slot"], columns["gen"]
            np.multiply(columns["prob"], asked.share, out=self.probability[rows])
            self.parts.append(Part(session.index, session.resubscriptions, rows))
        return True
