"""One server that answers `/status` for a thousand learners, told apart by the address that was asked; every answer is another.

    python -m benchmarks.operator_at_scale.learners 9090

Figures are those of a learner that trains at a steady pace, with noise, so that no two samples are alike.
"""

from __future__ import annotations

import json
import random
import sys
import time

from aiohttp import web
from rljob.api.live import digest

UPDATES_PER_SECOND = 150.0
ACTORS = 2


def status(seconds: float, draw: random.Random) -> dict[str, object]:
    """What a learner says that began ``seconds`` ago."""
    updates = int(UPDATES_PER_SECOND * seconds * draw.uniform(0.999, 1.0))

    def about(value: float) -> float:
        return value * draw.gauss(1.0, 0.05)

    return {
        "updates": updates,
        "raw_frames_total": updates * 32,
        "mean_return": min(500.0, about(20.0 + seconds)),
        "learner_wait_fraction": min(1.0, abs(draw.gauss(0.02, 0.01))),
        "actors_blocked_fraction": min(1.0, abs(draw.gauss(0.02, 0.01))),
        "consumption_per_second": about(19_200.0),
        "production_per_second": about(4_800.0),
        "queue_depth_batches": about(8.0),
        "queue_bound_batches": 16.0,
        "policy_lag_updates_p95": about(30.0),
        "standstill": "",
        "evaluations": [],
        "actors": [
            {"name": f"actor-{number}", "policy_version": updates // 50 - draw.randrange(2), "steps_per_second": about(2_400.0)}
            for number in range(ACTORS)
        ],
    }  # fmt: skip


def application() -> web.Application:
    """The server."""
    began, draw = time.monotonic(), random.Random(1)
    offsets: dict[str, float] = {}

    following: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        offset = offsets.setdefault(request.host, draw.uniform(0.0, 600.0))
        document = status(time.monotonic() - began + offset, draw) | {"following": following.get(request.host, "")}
        return web.Response(body=json.dumps(document).encode(), content_type="application/json")

    async def follow(request: web.Request) -> web.Response:
        following[request.host] = digest(await request.json())
        return web.Response(status=202)

    app = web.Application()
    app.router.add_get("/status", answer)
    app.router.add_post("/changes", follow)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="0.0.0.0", port=int(sys.argv[1]), access_log=None, print=None)
