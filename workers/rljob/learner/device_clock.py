"""Where a GPU's time goes, by the stages of the loop that feeds it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rljob.telemetry.clock import StageClock


class DeviceStageClock(StageClock):
    """A stage clock that also marks every change of stage on the device's own timeline, by an event in the current stream.

    The host's clock says for what the host waited; a kernel runs later than the host asked for it. Between two events lies what
    the device did, or waited for, because of what the host did between them, and all of it together is the time between the
    first event and the last: ``device_seconds`` adds up to the wall's time, but for the few updates that are under way.

    Nothing waits: an event is read once it has happened. ``event`` makes one. One thread, the loop's, enters stages; any may call
    ``device_seconds``.
    """

    __slots__ = ("_device", "_event", "_marks", "_spare")

    def __init__(
        self,
        stages: Sequence[str],
        event: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call]
    ) -> None:
        super().__init__(stages)
        self._event = event
        self._device = dict.fromkeys(self.stages, 0.0)
        self._marks: deque[tuple[str | None, Any]] = deque()
        self._spare: list[Any] = []

    def enter(self, stage: str) -> None:
        """As of ``StageClock``."""
        before = self.current
        super().enter(stage)
        if stage != before:
            self._mark(stage)

    def stop(self) -> None:
        """As of ``StageClock``; what the device does until the next ``enter`` belongs to no stage either."""
        running = self.current is not None
        super().stop()
        if running:
            self._mark(None)

    def device_seconds(self) -> dict[str, float]:
        """Total seconds of the device's time a stage, as far as they have been read."""
        return dict(self._device)

    def of_wall(self) -> float | None:
        """All of the device's time that has been read, as a share of the host's: 1, less what has not been read yet. None at
        first."""
        wall = sum(self.seconds().values())
        return sum(self._device.values()) / wall if wall > 0 else None

    def _mark(self, stage: str | None) -> None:
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        self._marks.append((stage, event))
        while len(self._marks) > 1 and self._marks[1][1].query():
            ended, began = self._marks.popleft()
            if ended is not None:
                self._device[ended] += 1e-3 * began.elapsed_time(self._marks[0][1])
            self._spare.append(began)
