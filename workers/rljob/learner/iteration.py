"""Iterations: which unrolls make the next batch, where all have to be of the newest weights, and who is asked to play them.

The batch that is learned from with the weights of version k is made of the first unrolls of version k - lag or newer, of any
actors. An actor begins an unroll only once it is asked to, by credits for all of its environments, and with weights new enough
for it. So no actor plays what will be too old; an actor that is slow, or gone, or lost an unroll with an environment that
failed, is not waited for: when an unroll of its takes longer than they usually do, all are asked in its place, itself too.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping

PATIENCE = 1.25
"""How much longer than usual an unroll may take before others are asked for it."""
_REMEMBERED = 32


class Iterations:
    """For one thread. ``version``: of the weights published last, 0 before any. ``waiting``: unrolls in the queue, all of
    which may be learned from."""

    def __init__(
        self,
        lag: int,
        batch_size: int,
        version: Callable[[], int],
        waiting: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lag, self._batch_size = lag, batch_size
        self._version, self._waiting, self._clock = version, waiting, clock
        self._assembled = 0
        self._asked_at: dict[bytes, float] = {}
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._in_part: deque[float] = deque(maxlen=_REMEMBERED)
        """What goes for how long they take until an actor has sent all that it was asked for, which it may never do: how long
        the first ones took."""
        self._asked_for: dict[bytes, int] = {}
        """How many unrolls each peer was asked for that has sent nothing since."""

    @property
    def next(self) -> int:
        """The version with which the next batch will be learned from."""
        return max(self._version(), self._assembled + 1)

    @property
    def least_version(self) -> int:
        """The oldest version that an unroll of the next batch may be of. Before the first weights: whatever comes."""
        return max(1, self.next - self._lag) if self._version() else 0

    def assembled(self) -> None:
        """The next batch is there: what comes from now on is for the one behind it."""
        self._assembled = self.next if self._version() else 0

    def begin_anew(self) -> None:
        """The learner has gone back to earlier weights."""
        self._assembled = 0

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """Credits by peer, all that is ``wanted`` of one after the other, beginning with peer ``turn``, until a batch was asked
        for. ``outstanding``: unrolls that were asked for and have not come."""
        now = self._clock()
        for peer in [peer for peer in self._asked_at if not outstanding.get(peer)]:
            asked_at = self._asked_at.pop(peer)
            self._asked_for.pop(peer, None)
            if peer in outstanding:
                self._took.append(now - asked_at)
        for peer in [peer for peer, count in self._asked_for.items() if outstanding[peer] < count]:
            del self._asked_for[peer]
            self._in_part.append(now - self._asked_at[peer])
        if self._version() < self.least_version:  # what began now would be too old when it is learned from
            return {}
        known = self._took or self._in_part
        patience = PATIENCE * statistics.median(known) if known else float("inf")
        prompt = (peer for peer, asked_at in self._asked_at.items() if now - asked_at <= patience)
        missing = self._batch_size - self._waiting() - sum(outstanding[peer] for peer in prompt)
        peers = list(wanted)
        grants = {}
        for peer in peers[turn % max(1, len(peers)) :] + peers[: turn % max(1, len(peers))]:
            if missing > 0 and wanted[peer] > 0:
                grants[peer] = wanted[peer]
                self._asked_at[peer] = now
                self._asked_for[peer] = outstanding.get(peer, 0) + wanted[peer]
                missing -= wanted[peer]
        return grants
