"""One batch on its way: how it is divided among shards so that K of them are drawn from as if they were one table, its buffer,
the rows that shards have sent, and those that are still to come.

The draws of a batch go to the shards by their share of the whole priority mass. What a batch costs the rate limiters is
divided by another rule, which keeps the shards level: were each to pay for what it is drawn, the one with the most mass would
be given the most inserts, and by them still more mass.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rljob.learner.batch_thread import Ready
from rljob.learner.shard import MOST_REQUESTS, ShardSession
from rljob.learner.staging import TransitionStaging
from rljob.wire.schema import DRAWN


def draws_by_mass(masses: Sequence[float], draws: int, offset: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How many of ``draws`` each shard makes, int64 [K], and its share of the mass, float64 [K].

    Systematic sampling: with ``offset`` uniform in [0, 1), each shard's expected number is exactly ``draws * share`` and its
    number differs from that by less than one, as in one table whose draws are stratified.
    """
    mass = np.asarray(masses, np.float64)
    below = np.cumsum(mass)
    edges = np.zeros(len(mass) + 1, np.int64)
    edges[1:] = np.minimum(np.floor(below / below[-1] * draws + offset), draws)  # just below 1, an offset may round up
    return edges[1:] - edges[:-1], mass / below[-1]


def charges_by_error(errors: Sequence[float] | NDArray[np.float64], amount: int) -> NDArray[np.int64]:
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReadyBatch(Ready):
    """A batch of transitions, and what is needed to send its new priorities back: ``parts`` and ``drawn``, ``DRAWN`` [B], name
    its transitions. ``least``: the least chance of any of them in a draw."""

    parts: tuple[Part, ...]
    drawn: NDArray[Any]
    least: float = 0.0

    def newest_frames(self) -> Any:
        """The newest frame of every observation, [B, *F*]; of observations of one column."""
        return self.wait().observation[:, -1]


class _Asked(NamedTuple):
    """Rows to be drawn, and what they cost the rate limiters, in transitions. ``share``: the chance that a draw of this batch
    went to the shard that was asked."""

    start: int
    stop: int
    charge: int
    share: float = 0.0


class Assembly:
    """B rows of ``staging``, filled by the shards' answers as they come, in any order; used by the prefetch thread.

    ``drawn`` ``DRAWN`` [B] names the transitions in their shards, with each row's chance in one draw over all shards: the shard's
    share of the mass when it was asked times the chance within the shard. ``unasked``: rows that no shard is asked for now;
    ``asked``: how many requests for others are under way.
    """

    def __init__(self, staging: TransitionStaging, batch_size: int) -> None:
        self.staging = staging
        self.parts: list[Part] = []
        self.origins: list[str] = []
        self.drawn: NDArray[Any] = np.zeros(batch_size, DRAWN)
        self.unasked = [_Asked(0, batch_size, batch_size)]
        self.asked = 0

    @property
    def complete(self) -> bool:
        """Whether every shard that was asked has answered and every row is there."""
        return not self.unasked and not self.asked

    def fill(self, rows: slice, share: float, session: ShardSession, drawn: NDArray[Any]) -> None:
        """Fill in ``rows`` that ``session`` has drawn; a draw of this batch went there with the chance ``share``."""
        assert session.ring is not None, "a batch is accepted only where there is a mirror"
        self.staging.fill(rows, drawn["slot"], session.ring)
        self.drawn[rows] = drawn
        self.drawn["value"][rows] *= share
        self.origins += session.first_used(drawn["slot"])
        self.parts.append(Part(session.index, session.resubscriptions, rows))


class Requests:
    """What the shards were asked for and have not answered, by shard and number."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], tuple[Assembly, _Asked]] = {}

    def ask(
        self, assemblies: Sequence[Assembly], sessions: Sequence[ShardSession], random: np.random.Generator, now: float
    ) -> None:
        """Ask ``sessions``, those that can be drawn from now, for every row of the ``assemblies`` that no shard is asked for, in
        one message to each.

        Rows that can't be asked for now are asked for later. A shard may be asked for no row, so that its limiter allows a batch.
        """
        masses, errors = [session.mass for session in sessions], np.array([session.error for session in sessions])
        asks: list[list[tuple[Assembly, _Asked]]] = [[] for _ in sessions]
        for assembly in assemblies:
            for wanted in assembly.unasked:
                rows, shares = draws_by_mass(masses, wanted.stop - wanted.start, random.random())
                charges, start = charges_by_error(errors, wanted.charge), wanted.start
                errors -= charges
                for asked, count, share, charge in zip(
                    asks, rows.tolist(), shares.tolist(), charges.tolist(), strict=True
                ):
                    if count or charge:
                        asked.append((assembly, _Asked(start, start + count, charge, share)))
                    start += count
            assembly.unasked = []
        for session, of_one in zip(sessions, asks, strict=True):
            room = MOST_REQUESTS - len(session.outstanding)
            asked_now = [(part.stop - part.start, part.charge) for _, part in of_one][:room]
            first = session.ask(asked_now, now) if asked_now else None
            for number, (assembly, part) in enumerate(of_one):
                if first is None or number >= len(asked_now):
                    assembly.unasked.append(part)
                else:
                    assembly.asked += 1
                    self._asked[session.index, first + number] = assembly, part

    def recover(self, sessions: Sequence[ShardSession], given_up: Container[int]) -> None:
        """Mark rows to be asked for again: those that a session has forgotten, and all of the sessions ``given_up``."""
        for index, request in list(self._asked):
            if index in given_up or request not in sessions[index].outstanding:
                assembly, part = self._asked.pop((index, request))
                assembly.asked -= 1
                assembly.unasked.append(part)

    def take(self, session: ShardSession, request: int, drawn: NDArray[Any]) -> Assembly | None:
        """Fill in the rows that ``session`` was asked for by ``request``. Returns their batch, None where nobody wants them."""
        assembly, part = self._asked.pop((session.index, request), (None, None))
        if assembly is not None and part is not None:
            assembly.asked -= 1
            if part.stop > part.start:
                assembly.fill(slice(part.start, part.stop), part.share, session, drawn)
        return assembly
