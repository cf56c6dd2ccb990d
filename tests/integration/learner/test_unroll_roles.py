"""IMPALA's roles as processes of their own: they learn, they survive a kill, and every unroll is accounted for."""

from __future__ import annotations

import json
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import load_policy

from tests.support.unroll_roles import Roles

LEFT = 128 + signal.SIGTERM
"""The exit code of a role that was told to leave and did so in good order."""


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Callable[..., Roles]]:
    made: list[Roles] = []

    def make(
        parameters: dict[str, Any] | None = None, inference: str = "Local", environment: str = "", **queue: Any
    ) -> Roles:
        limits = {"capacity": 32, "maxPolicyLagUpdates": 50, **queue}
        bounds = {name: value for name, value in limits.items() if value is not None}
        spec = {
            "preset": "CartPoleIMPALA",
            "algorithm": {"impala": {**(parameters or {}), "unrollQueue": bounds}},
            "actors": {"envsPerActor": 16, "inference": inference},
            "checkpoint": {"intervalSeconds": 1},
            "inference": {"timeoutSeconds": 120},  # a busy machine needs a while to start a learner
        }
        if environment:
            spec |= {"environment": {"id": environment}, "successPolicy": {"rawFrames": 100_000_000}}
        made.append(Roles(tmp_path, spec))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.timeout(300)
def test_a_killed_learner_comes_back_and_takes_nothing_of_its_former_life(roles: Callable[..., Roles]) -> None:
    job = roles()
    job.start("learner", "learner", "--resume", "latest")
    job.start("actor", "actor-0")
    figures = ("entropy", "policy_lag_updates_p50", "policy_lag_updates_p95")  # none before there is a window of them
    before = job.until(
        "learner",
        lambda s: (
            s["updates"] > 60
            and s["checkpoint"]["state"] == "Valid"
            and all(s.get(figure) is not None for figure in figures)
        ),
    )
    assert 0 <= before["policy_lag_updates_p50"] <= before["policy_lag_updates_p95"] <= 50
    assert before["entropy"] > 0.1
    assert before["queue_bound_batches"] == 2.0
    job.end("learner", signal.SIGKILL)
    job.start("learner", "learner", "--resume", "latest")
    # the actor's unrolls of the weights before the kill are refused by their epoch, then it goes on with new ones
    after = job.until("learner", lambda s: s["updates"] > before["updates"] and s["queue"]["dropped"].get("epoch"))
    assert after["epoch"] == before["epoch"] + 1
    saved_steps = before["steps"]
    # What the actor played between the checkpoint and the kill counts, though no checkpoint has it.
    job.until(
        "learner",
        lambda s: s["steps"] >= saved_steps and s["updates"] > after["updates"] + 60 and "production_per_second" in s,
    )
    assert job.end("actor-0") == LEFT
    # Nothing is counted twice, nothing is missing: the steps are those of the one actor's whole life.
    steps = json.loads((job.directory / "roles" / "actor-0.final.json").read_text())["steps"]
    job.until("learner", lambda s: s["steps"] >= steps)
    time.sleep(3.0)  # longer than the learner takes to add up: what it would count twice would be there
    assert job.status("learner")["steps"] == steps
    queue = job.until("learner", lambda s: s["queue"]["waiting"] < 16)["queue"]
    assert queue["received"] == queue["learned"] + sum(queue["dropped"].values()) + queue["in_flight"]
    assert job.end("learner") == LEFT


@pytest.mark.timeout(300)
def test_observations_far_from_zero_are_learned_from_and_each_batch_counts_once_whatever_is_killed(
    roles: Callable[..., Roles],
) -> None:
    """Without normalisation the return of this job stays below 10."""
    both = {"normalizeObservations": True, "normalizeReturns": True}
    job = roles(both, environment="tests.support.toys:shifted_cartpole")
    job.start("learner", "learner", "--resume", "latest")
    job.start("actor", "actor-0")
    before = job.until("learner", lambda s: s["updates"] > 20 and s["checkpoint"]["state"] == "Valid")
    job.end("learner", signal.SIGKILL)
    job.start("learner", "learner", "--resume", "latest")
    after = job.until("learner", lambda s: s["updates"] > before["updates"] and (s["mean_return"] or 0) > 80, 200)
    assert after["left_out_batches"] == 0
    assert job.end("actor-0") == LEFT
    assert job.end("learner") == LEFT
    saved = checkpoint.latest_valid(job.directory / "checkpoints")
    assert saved is not None
    batches = (
        1 + saved.manifest["counters"]["updates"]
    )  # the first of all is measured, before there are weights to act with
    assert float(saved.tensors["statistics.count"]) == batches * 16 * 20
    network: Any = load_policy(job.directory).module
    assert ((network.observation_mean - 5e3).abs() < 500).all()
    assert network.return_scale > 5


@pytest.mark.timeout(300)
def test_an_actor_whose_actions_the_learner_computes_waits_for_it_and_goes_on(roles: Callable[..., Roles]) -> None:
    job = roles(inference="Central")
    job.start("learner", "learner", "--resume", "latest")
    job.start("actor", "actor-0")
    job.until("learner", lambda s: s["updates"] > 5 and s["checkpoint"]["state"] == "Valid", 120)
    job.end("learner", signal.SIGKILL)
    before = job.until("actor-0", lambda s: s["state"] == "Blocked")
    waiting = job.until("actor-0", lambda s: s["blocked_seconds"] > before["blocked_seconds"] + 2)
    # The wait is time without an answer, and shown as that; nothing is made up meanwhile.
    assert waiting["inference_wait_seconds"] > before["inference_wait_seconds"] + 1
    assert (waiting["state"], waiting["steps"]) == ("Blocked", before["steps"])
    job.start("learner", "learner", "--resume", "latest")
    job.until("learner", lambda s: s["state"] != "", 120)
    after = job.until("actor-0", lambda s: s["state"] == "Running" and s["steps"] > before["steps"] + 500)
    assert after["inference_resent"] >= 1
    assert after["incarnation"] == before["incarnation"], "the same process went on"
    assert job.until("learner", lambda s: s["queue"]["learned"] > 100)["epoch"] == 2


@pytest.mark.timeout(300)
def test_what_the_actor_produced_is_what_the_learner_received(roles: Callable[..., Roles]) -> None:
    job = roles({"unrollLength": 5}, overflow="DropOldest", maxPolicyLagUpdates=1000)
    job.start("learner", "learner")
    job.start("actor", "actor-0")
    job.until("learner", lambda s: s["updates"] > 30)
    assert job.end("actor-0") == LEFT
    final = json.loads((job.directory / "roles" / "actor-0.final.json").read_text())
    assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
    assert final["steps"] == final["produced"] + final["cut_steps"]
    sent = final["acknowledged"] // 5
    queue = job.until("learner", lambda s: s["queue"]["received"] >= sent)["queue"]  # its page is a moment old
    assert sent <= queue["received"] <= final["produced"] // 5
    assert queue["received"] == queue["learned"] + sum(queue["dropped"].values()) + queue["in_flight"]
    assert job.end("learner") == LEFT


class SlowRoad:
    """A way over TCP on which everything that comes back takes ``seconds`` longer."""

    def __init__(self, target: int, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._carry, args=(near, far, 0.0), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, self._seconds), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket, seconds: float) -> None:
        """Pass on what comes, each part so long after it came; parts do not wait for each other."""
        coming: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def deliver() -> None:
            with suppress(OSError):
                while True:
                    due, part = coming.get()
                    time.sleep(max(0.0, due - time.monotonic()))
                    sink.sendall(part)

        threading.Thread(target=deliver, daemon=True).start()
        with suppress(OSError):
            while part := source.recv(65536):
                coming.put((time.monotonic() + seconds, part))

    def close(self) -> None:
        self._listener.close()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("written", [50, None])
def test_weights_that_travel_long_cost_unrolls_only_where_the_user_set_a_limit(
    roles: Callable[..., Roles], written: int | None
) -> None:
    job = roles({"epochs": 4}, maxPolicyLagUpdates=written)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    job.start("learner", "learner", "--weights", f"tcp://127.0.0.1:{port}")
    job.until("learner", lambda s: "queue" in s)
    road = SlowRoad(port, seconds=2.5)
    try:
        for name in ("actor-0", "actor-1"):
            job.start("actor", name, "--weights", f"tcp://127.0.0.1:{road.port}")
        if written is None:
            status = job.until("learner", lambda s: s["updates"] > 1000 and stale(s) < 0.1, 200.0)
        else:
            status = job.until("learner", lambda s: stale(s) > 0.1 and "too old" in s["given_up"], 200.0)
    finally:
        road.close()
    told = status["queue"]["arrival_age_updates"], status["lag_limit_updates"], stale(status), status["given_up"]
    print(told)
    assert (stale(status) > 0.1) == (written is not None), told
    assert ("too old" in status["given_up"]) == (written is not None), told


def stale(status: dict[str, Any]) -> float:
    """The part of what came, of some hundred unrolls at least, that was too old; 0 before."""
    received = status["queue"]["received"]
    return float(status["queue"]["dropped"].get("stale", 0) / received) if received > 500 else 0.0
