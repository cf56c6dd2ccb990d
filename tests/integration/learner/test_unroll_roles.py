"""IMPALA's and PPO's roles as processes of their own: they learn, they survive a kill, and every unroll is accounted for.

Two learners of one job, of which the earlier one ends.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from rljob.api.exit_codes import EXIT_SUPERSEDED
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.names import order
from rljob.checkpoints.saved_policy import load_policy

from tests.support.jobs import job_of
from tests.support.roles import Roles
from tests.support.waiting import known

LEFT = 128 + signal.SIGTERM
"""The exit code of a role that was told to leave and did so in good order."""


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Callable[..., Roles]]:
    with ExitStack() as made:

        def make(spec: dict[str, Any], **algorithm: Any) -> Roles:
            job = {
                "preset": "CartPoleIMPALA",
                "algorithm": algorithm,
                "checkpoint": {"intervalSeconds": 1},
                **spec,
            }
            roles = Roles(tmp_path, job_of(job))
            made.callback(roles.close)
            return roles

        yield make


QUEUE = {"capacity": 32, "maxPolicyLagUpdates": 50}


def assert_each_unroll_is_accounted_for(queue: dict[str, Any]) -> None:
    assert queue["received"] == queue["learned"] + sum(queue["dropped"].values()) + queue["in_flight"]


def test_each_unroll_counts_once_whatever_is_killed_and_observations_far_from_zero_are_learned_from(
    roles: Callable[..., Roles],
) -> None:
    """Without normalisation the return of this job stays below 10."""
    far = {"environment": {"id": "tests.support.toys:shifted_cartpole"}, "successPolicy": {"rawFrames": 100_000_000}}
    both = {"normalizeObservations": True, "normalizeReturns": True}
    job = roles(far | {"actors": {"envsPerActor": 16}}, impala={"unrollQueue": QUEUE}, **both)
    job.start("learner", "learner", resume="latest")
    first = played_and_received(job)
    job.start("actor", "actor-1")
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
    job.start("learner", "learner", resume="latest")
    # the actor's unrolls of the weights before the kill are refused by their epoch, then it goes on with new ones
    after = job.until("learner", lambda s: s["updates"] > before["updates"] and s["queue"]["dropped"].get("epoch"))
    assert after["epoch"] == before["epoch"] + 1
    # What the actor played between the checkpoint and the kill counts, though no checkpoint has it.
    learned = job.until(
        "learner",
        lambda s: s["steps"] >= before["steps"] and (s["mean_return"] or 0) > 80 and "production_per_second" in s,
        200,
    )
    assert learned["left_out_batches"] == 0
    assert job.end("actor-1") == LEFT
    # Nothing is counted twice, nothing is missing: the steps are those of both actors' whole lives.
    steps = first + final(job, "actor-1")["steps"]
    job.until("learner", lambda s: s["steps"] >= steps)
    time.sleep(3.0)  # longer than the learner takes to add up: what it would count twice would be there
    assert job.status("learner")["steps"] == steps
    assert_each_unroll_is_accounted_for(job.until("learner", lambda s: s["queue"]["waiting"] < 16)["queue"])
    assert job.end("learner") == LEFT
    saved = known(checkpoint.latest_valid(job.directory / "checkpoints"))
    # The first batch of all is measured, before there are weights to act with.
    batches = 1 + saved.manifest["counters"]["updates"]
    assert float(saved.tensors["statistics.count"]) == batches * 16 * 20
    network: Any = load_policy(job.directory).module
    assert ((network.observation_mean - 5e3).abs() < 500).all()
    assert network.return_scale > 3  # of up to 20 rewards of 1


def final(job: Roles, actor: str) -> dict[str, Any]:
    """What it wrote at its end."""
    return dict(json.loads((job.directory / "roles" / f"{actor}.final.json").read_text()))


def played_and_received(job: Roles) -> int:
    """The steps of an actor that comes and goes while one learner lives, which receives what it has produced."""
    job.start("actor", "actor-0")
    job.until("learner", lambda s: s["updates"] > 30)
    assert job.end("actor-0") == LEFT
    left = final(job, "actor-0")
    assert left["produced"] == left["acknowledged"] + left["unacknowledged"]
    assert left["steps"] == left["produced"] + left["cut_steps"]
    sent = left["acknowledged"] // 20
    queue = job.until("learner", lambda s: s["queue"]["received"] >= sent)["queue"]  # its page is a moment old
    assert sent <= queue["received"] <= left["produced"] // 20
    assert_each_unroll_is_accounted_for(queue)
    return int(left["steps"])


@pytest.mark.long
@pytest.mark.parametrize("lag", [0, 1])
def test_iterations_go_on_without_a_killed_actor_and_with_it_once_it_is_back(tmp_path: Path, lag: int) -> None:
    """How long each waits for it, tests/unit/learner/test_iteration.py says by a clock of its own."""
    of_all = {"type": "PPO", "batchSize": 12, "unrollLength": 16, "epochs": 1, "hiddenUnits": 16}
    spec = {
        "environment": {"id": "CartPole-v1"},
        "algorithm": {**of_all, "ppo": {"maxPolicyLag": lag}},
        "actors": {"envsPerActor": 4, "replicas": 3},
        "successPolicy": {"rawFrames": 1_000_000_000},
    }
    with closing(Roles(tmp_path, job_of(spec))) as job:
        job.start("learner", "learner")
        for number in range(3):
            job.start("actor", f"actor-{number}")
        for number in range(3):
            job.until(f"actor-{number}", lambda status: status["steps"] > 100)
        job.end("actor-1", signal.SIGKILL)
        before = job.status("learner")["updates"]
        job.until("learner", lambda status: status["updates"] > before + 20)
        job.start("actor", "actor-1")
        job.until("actor-1", lambda status: status["steps"] > 100)
        assert_each_unroll_is_accounted_for(
            job.until("learner", lambda status: status["updates"] > before + 40)["queue"]
        )


def test_a_learner_that_comes_back_ends_and_nothing_of_it_gets_through(roles: Callable[..., Roles]) -> None:
    """As when a node was cut off: it stands still, a later one begins in its place, and it goes on."""
    job = roles({"actors": {"envsPerActor": 8}}, impala={"unrollQueue": QUEUE})
    job.start("learner", "old", resume="latest", epoch=1)
    job.start("actor", "actor-0")
    job.until("old", lambda told: told["updates"] > 30 and told["checkpoint"]["state"] == "Valid")
    job.processes["old"].send_signal(signal.SIGSTOP)
    job.start("learner", "new", resume="latest", epoch=2)
    before = job.until("new", lambda told: told["epoch"] == 2)
    saved = {path.name for path in checkpoint.stored(job.directory / "checkpoints")}
    job.processes["old"].send_signal(signal.SIGCONT)
    assert job.processes["old"].wait() == EXIT_SUPERSEDED
    words = (job.directory / "old.log").read_text()
    assert "a learner of epoch 2 has begun after this one, of epoch 1, which ends here" in words
    job.until("new", lambda told: told["updates"] > before["updates"] + 20)  # with the actor of the earlier one
    here = {path.name for path in checkpoint.stored(job.directory / "checkpoints")}
    assert {name for name in here if known(order(name)).epoch == 1} <= saved, "it has written none since"
