"""PPO's iterations with real actors, one of which is killed: the others are asked in its place, and it is not waited for."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.unroll_roles import Roles

STEP_SECONDS, ENVS, UNROLL = 0.005, 4, 16
UNROLL_SECONDS = STEP_SECONDS * ENVS * UNROLL


def spec(lag: int) -> dict[str, Any]:
    return {
        "environment": {
            "id": "tests.support.slow_game:make",
            "kwargs": {"step_seconds": STEP_SECONDS},
            "backend": "Sync",
        },
        "algorithm": {
            "type": "PPO",
            "ppo": {"batchSize": 3 * ENVS, "unrollLength": UNROLL, "maxPolicyLag": lag, "epochs": 1, "hiddenUnits": 16},
        },
        "actors": {"envsPerActor": ENVS, "replicas": 3},
        "successPolicy": {"rawFrames": 1_000_000_000},
    }


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Roles]:
    roles = Roles(tmp_path, spec(request.param))
    yield roles
    roles.close()


class Iterations:
    """When each new version was announced."""

    def __init__(self, notice: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.connect(notice)
        self._socket.subscribe(b"")
        self.times: list[float] = []

    def watch(self, seconds: float) -> list[float]:
        """The gaps between those that come in ``seconds``, the one from the last before included."""
        first, end = max(0, len(self.times) - 1), time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._socket.poll(1e3 * left):
                self._socket.recv_multipart()
                self.times.append(time.monotonic())
        return [after - before for before, after in zip(self.times[first:], self.times[first + 1 :], strict=False)]

    def close(self) -> None:
        self._socket.close(0)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("job", [0, 1], indirect=True)
def test_a_killed_actor_holds_an_iteration_up_no_longer_than_an_unroll_takes(job: Roles) -> None:
    job.start("learner", "learner")
    for number in range(3):
        job.start("actor", f"actor-{number}")
    for number in range(3):
        job.until(f"actor-{number}", lambda status: status["steps"] > 100)
    iterations = Iterations(job.notice)
    iterations.watch(2.0)
    usual = statistics.median(iterations.watch(4.0))
    job.end("actor-1", signal.SIGKILL)
    after = iterations.watch(6.0)
    slower = statistics.median(after[2:])  # two of three play what three have played
    assert max(after) < max(usual, slower) + UNROLL_SECONDS + 0.5
    job.start("actor", "actor-1")
    job.until("actor-1", lambda status: status["steps"] > 100)
    assert statistics.median(iterations.watch(4.0)) < usual + UNROLL_SECONDS / 2
    queue = job.until("learner", lambda status: status["updates"] > 20)["queue"]
    assert queue["received"] == queue["learned"] + sum(queue["dropped"].values()) + queue["in_flight"]
    iterations.close()
