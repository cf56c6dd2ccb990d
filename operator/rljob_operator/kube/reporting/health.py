"""Whether the operator is alive and ready, told on `/healthz` and `/readyz` beside `/metrics`.

The pages are served by threads (`rljob.telemetry.server`), so that an event loop which stands still is told of instead of being
silent about it. A sign of life is given only while the loop turns and the API server is heard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rljob.telemetry.server import TelemetryServer

from rljob_operator.kube.reporting.metrics import OperatorMetrics

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """What counts as alive: a loop that is never later than this, and an API server that was heard since."""

    loop_lag_seconds: float = 5.0
    watch_age_seconds: float = 120.0


class Health:
    """Checks once a second.

    Args:
        metrics: what `/metrics` shows; the loop's lag and the watch's age are set here.
        ready: whether it could take over, or, of one that leads, whether it does its work.
        watch_age_seconds: since the API server was last heard; None while nothing is watched, as by one that does not lead.
        look: sets the other figures that are states, each time.
        port: where to serve; 0 serves nothing.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        metrics: OperatorMetrics,
        *,
        ready: Callable[[], bool],
        watch_age_seconds: Callable[[], float | None],
        look: Callable[[], None] = lambda: None,
        host: str = "*",
        port: int = 0,
        limits: HealthLimits | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics, self._ready, self._age, self._look = metrics, ready, watch_age_seconds, look
        self._limits, self._steady = limits or HealthLimits(), steady
        self._problem = ""
        self._is_ready = False
        self.server = (
            TelemetryServer("operator", port, self._status, lambda: self._is_ready, metrics.registry, host=host)
            if port
            else None
        )

    async def run(self) -> None:
        """Never ends by itself. Raises ``ThreadEnded`` where a thread has ended that the operator can't do without."""
        due = self._steady()
        try:
            while True:
                self.tick(max(0.0, self._steady() - due))
                due = self._steady() + PERIOD_SECONDS
                await asyncio.sleep(PERIOD_SECONDS)
        finally:
            if self.server is not None:
                self.server.close()

    def tick(self, lag_seconds: float) -> None:
        """Check once: set the figures, and give a sign of life where all is well."""
        age = self._age()
        self._metrics.loop_lag_seconds.set(lag_seconds)
        self._metrics.watch_age_seconds.set(age or 0.0)
        self._look()
        self._is_ready = self._ready()
        cut_off = age is not None and age >= self._limits.watch_age_seconds
        problem = f"the API server was not heard for {age:.0f} s" if cut_off else ""
        if problem and not self._problem:
            log.error("not healthy: %s", problem)
        self._problem = problem
        if self.server is not None and not problem:
            self.server.beat(self._limits.loop_lag_seconds + PERIOD_SECONDS)

    def _status(self) -> Mapping[str, Any]:
        return {"healthy": not self._problem, "problem": self._problem or None, "ready": self._is_ready}
