"""How far a training is, and what two readings of it say: a window of speed, or whether it is solved and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import psutil


@dataclass(frozen=True, slots=True)
class Reading:
    """``seconds`` since the training's process began; ``cpu_seconds`` of all its processes. ``samples`` learned from, repeats
    included. ``mean_return``: of the last hundred training games, None before there are so many."""

    seconds: float
    frames: int
    samples: int
    cpu_seconds: float
    mean_return: float | None


class Watch(Protocol):
    """Notes readings until it has seen enough. It travels to the process that trains and back."""

    result: dict[str, Any]

    def note(self, reading: Reading) -> bool:
        """True: enough."""
        ...


@dataclass(slots=True)
class SpeedWindow:
    """The speed over ``seconds`` that begin ``warm_up_seconds`` after the first update; what else the machine did meanwhile."""

    warm_up_seconds: float
    seconds: float
    result: dict[str, Any] = field(default_factory=dict)
    _first: float | None = None
    _start: Reading | None = None
    _busy: float = 0.0

    def note(self, reading: Reading) -> bool:
        if reading.samples == 0:
            return False
        if self._first is None:
            self._first = reading.seconds
        if self._start is None:
            if reading.seconds - self._first >= self.warm_up_seconds:
                self._start, self._busy = reading, busy_seconds()
            return False
        start, elapsed = self._start, reading.seconds - self._start.seconds
        frames, cpu = reading.frames - start.frames, reading.cpu_seconds - start.cpu_seconds
        if elapsed < self.seconds or frames == 0:  # on a machine that others take up, no frame may have come yet
            return False
        self.result = {
            "frames_per_second": frames / elapsed,
            "frames_per_cpu_second": frames / cpu,
            "samples_per_frame": (reading.samples - start.samples) / frames,
            "cores": cpu / elapsed,
            "others_cores": max(0.0, (busy_seconds() - self._busy - cpu) / elapsed),
        }
        return True


@dataclass(slots=True)
class Solving:
    """Until the mean of the last hundred training games is ``target``, or ``limit_seconds`` are over."""

    target: float
    limit_seconds: float
    result: dict[str, Any] = field(default_factory=dict)

    def note(self, reading: Reading) -> bool:
        solved = reading.mean_return is not None and reading.mean_return >= self.target
        self.result = {
            "solved": solved,
            "minutes": reading.seconds / 60,
            "frames": reading.frames,
            "mean_return": reading.mean_return,
        }
        return solved or reading.seconds >= self.limit_seconds


def busy_seconds() -> float:
    """Seconds that the processors of this machine have been busy since its start, all together; stolen ones are not."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0))
