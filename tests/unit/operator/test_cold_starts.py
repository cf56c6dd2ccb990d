"""A shard whose volume is lost is given up once, starts anew on another, and is told of until it serves."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase

from tests.support.controller import START, gone, make_job, member, members, running

WORDS = "node cpu-1 of its volume is gone for 600 s"
LOST = {"replay-0": WORDS}


def with_shard(shard: Member) -> tuple[Member, ...]:
    return (shard, *gone("replay-0"))


def waits(life: str = "new") -> Member:
    """The shard as it waits for its volume."""
    return member(
        "replay-0",
        Phase.STARTING,
        incarnation=life,
        since_seconds=START,
        waiting=Reason.UNSCHEDULABLE,
        ready_seconds=None,
    )


def test_it_is_asked_to_go_once_and_its_next_life_has_another_volume() -> None:
    controller = running()
    decision = controller.look(1.0, members=with_shard(waits()))
    assert (decision.start, decision.drain) == ((), ())
    assert controller.reason("ReplayReady") == ("False", "Unschedulable")

    decision = controller.look(1.0, lost_volumes=LOST)
    assert (decision.start, decision.drain) == ((), ("replay-0",))
    assert any(f"replay-0 starts without what it held: {WORDS}" in note.text for note in decision.notes), (
        "an event tells it"
    )
    (known,) = controller.status.controller.cold_starts
    assert (known.name, known.number, known.incarnation, known.ready) == ("replay-0", 1, "new", False)
    assert controller.reason("ReplayReady") == ("False", "VolumeLost")
    assert controller.look(1.0, lost_volumes={}).drain == ("replay-0",), "the request may have been lost"

    asked = replace(waits(), phase=Phase.EXITED, asked=True)
    assert controller.look(1.0, members=with_shard(asked), keeps_remains=True).start == ("replay-0",)
    fresh = member("replay-0", Phase.STARTING, incarnation="cold", ready_seconds=None)
    assert controller.look(1.0, members=with_shard(fresh)).drain == ()
    assert controller.reason("ReplayReady") == ("False", "VolumeLost")
    controller.look(1.0, members=with_shard(replace(fresh, phase=Phase.READY, ready_seconds=START)))
    assert controller.reason("ReplayReady") == ("True", "PodsReady")
    assert controller.status.restarts.counted == 0

    controller.look(1.0, members=with_shard(replace(fresh, phase=Phase.STARTING, incarnation="later")))
    assert controller.reason("ReplayReady") == ("False", "PodsPending"), "that it once lost a volume is not why"
    controller.look(1.0, members=with_shard(waits("again")), lost_volumes=LOST)
    assert [each.number for each in controller.status.controller.cold_starts] == [2]


def test_nothing_is_given_up_while_the_job_is_being_suspended() -> None:
    controller = running()
    controller.job = make_job("spec.suspend=true")
    controller.look(1.0, members=with_shard(waits()), lost_volumes=LOST)
    assert not controller.status.controller.cold_starts


def test_a_shard_that_serves_is_left_alone() -> None:
    controller = running()
    assert controller.look(1.0, members=members(), lost_volumes=LOST).drain == ()
    assert not controller.status.controller.cold_starts
