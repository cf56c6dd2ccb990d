"""More ends at once than there is room for in the status: each is counted once, and the status stays small."""

import json
from copy import copy
from dataclasses import replace

import pytest
from rljob.api.controller_memory import MAX_REMEMBERED_MEMBERS
from rljob_operator.core.member import Member, Phase

from tests.support.controller import Controller, make_job, member, members

ACTORS = 3000
SETS = (f"spec.actors.replicas={ACTORS}", "spec.replay.capacity=10000000")
LARGEST_STATUS_BYTES = 512 * 1024
"""A third of what an API server takes for a whole object."""


def ended(seen: tuple[Member, ...], *, now: float, life: str = "1", **fields: object) -> tuple[Member, ...]:
    """All of them with a pod's uid for an incarnation, ended a moment ago."""
    uid = f"0b1f7a52-6f0e-4c1d-9d5e-{life.zfill(12)}"
    given = {"since_seconds": now, "ready_seconds": None, "exit_code": 1, "last_words": "boom"} | fields
    return tuple(replace(m, phase=Phase.EXITED, incarnation=uid, **given) for m in seen)


@pytest.fixture(scope="module")
def started() -> Controller:
    controller = Controller(make_job(*SETS), members=members(ACTORS))
    controller.trained()
    return controller


@pytest.fixture
def controller(started: Controller) -> Controller:
    """A job that is up, the looks at which change no other test's."""
    job = copy(started)
    job.world = dict(started.world)
    return job


def test_each_of_three_thousand_ends_is_counted_once(controller: Controller) -> None:
    dead = ended(members(ACTORS), now=controller.now)
    for _ in range(4):
        controller.after(0.05, {"members": dead}, end="")
    controller.expect(counted=3, ignored=ACTORS)  # the learner, its replay shard and the evaluator
    assert {f.role for f in controller.status.failures} >= {"Learner", "Replay"}, "what matters is still listed"


def test_the_core_is_remembered_before_actors_that_ended_more_often(controller: Controller) -> None:
    dead: tuple[Member, ...] = ()
    for life in range(3):
        actors = ended(members(ACTORS)[2:-1], now=controller.now + 1.0, life=str(life))
        dead = (*members(0), *actors)
        controller.look(1.0, members=dead)
    dead = (*ended(members(0)[1:2], now=controller.now), *members(0)[:1], member("evaluator"), *dead[3:])
    for _ in range(4):
        controller.after(0.05, {"members": dead}, end="")
    controller.expect(counted=1)


def test_the_status_stays_small(controller: Controller) -> None:
    for life in range(3):
        controller.look(1.0, members=ended(members(ACTORS), now=controller.now + 1.0, life=str(life)))
    assert len(controller.status.controller.members) == MAX_REMEMBERED_MEMBERS
    assert len(json.dumps(controller.status.document(), separators=(",", ":"))) < LARGEST_STATUS_BYTES
