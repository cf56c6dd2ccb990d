"""Whether the operator is alive and ready, told on `/healthz` and `/readyz` beside `/metrics`.

The pages are served by threads (`rljob.telemetry.server`), so that an event loop which stands still is told of instead of being
silent about it. Alive is judged by the loop alone: an API server that does not answer is waited for, by watches and by the Lease,
and a process that begins again would find it no sooner.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from rljob.telemetry.server import TelemetryServer

from rljob_operator.kube.reporting.metrics import OperatorMetrics

PERIOD_SECONDS: Final = 1.0
LOOP_LAG_SECONDS: Final = 5.0
"""A loop that is later than this does not count as alive."""


class Health:
    """Checks once a second.

    Args:
        metrics: what `/metrics` shows; the loop's lag is set here.
        ready: whether it could take over, or, of one that leads, whether it does its work.
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
        look: Callable[[], None] = lambda: None,
        host: str = "*",
        port: int = 0,
        lag_seconds: float = LOOP_LAG_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics, self._ready, self._look, self._longest, self._steady = metrics, ready, look, lag_seconds, steady
        self._is_ready = False
        self.server = (
            TelemetryServer(
                "operator",
                port,
                lambda: {"ready": self._is_ready},
                lambda: self._is_ready,
                metrics.registry,
                host=host,
            )
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
        """Check once: set the figures, and give a sign of life."""
        self._metrics.loop_lag_seconds.set(lag_seconds)
        self._look()
        self._is_ready = self._ready()
        if self.server is not None:
            self.server.beat(self._longest + PERIOD_SECONDS)
