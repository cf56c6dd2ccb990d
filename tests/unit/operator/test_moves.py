"""Protected members on a node that is being emptied: who moves when, and what is waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.rules import moves

from tests.support.controller import START, Controller, exited, members, running, verified

CORDONED = START + 100.0
"""When the drain began, which is after all of `members` did."""


def on_emptied_node(*names: str, seen: tuple[Member, ...] | None = None, since: float = CORDONED) -> tuple[Member, ...]:
    given: dict[str, Any] = {"node_emptied_seconds": since, "node_name": "cpu-1", "leaving_node": True}
    return tuple(replace(m, **given) if m.name in names else m for m in (members() if seen is None else seen))


def emptying(*sets: str, names: tuple[str, ...] = ("learner",), **world: Any) -> Controller:
    """A job that trains, at the first look after the drain of these members' node has begun."""
    controller = running(*sets)
    controller.look(CORDONED - controller.now, members=on_emptied_node(*names), **world)
    return controller


def test_the_learner_is_asked_for_a_checkpoint_first_and_moves_when_it_is_verified() -> None:
    controller = emptying(checkpoint=verified(START - 5.0))
    first = controller.last
    assert first is not None
    assert (first.checkpoint_seconds, first.drain) == (CORDONED, ())
    assert controller.reason("Ready") == ("True", "Degraded")
    ready = controller.status.condition("Ready")
    assert ready is not None
    assert ready.message == "learner leaves cpu-1, which is being emptied, after a checkpoint"

    moved = controller.look(5.0, checkpoint=verified(CORDONED + 1.0))
    assert (moved.drain, moved.checkpoint_seconds) == (("learner",), None)

    gone = exited("learner", members(), since_seconds=controller.now, asked=True, exit_code=0)
    anew = controller.look(5.0, members=gone)
    assert "learner" in anew.start
    assert (anew.status.restarts.counted, anew.status.restarts.ignored) == (0, 0), "to be asked to move is no failure"


def test_a_drain_does_not_wait_for_ever_for_a_checkpoint() -> None:
    controller = emptying(checkpoint=verified(START - 5.0))
    assert controller.look(moves.CHECKPOINT_SECONDS - 1.0).drain == ()
    assert controller.look(1.0).drain == ("learner",)


def test_a_learner_whose_checkpoints_would_go_with_it_stays_and_says_so() -> None:
    controller = emptying(keeps_checkpoints=False)
    late = controller.look(10 * moves.CHECKPOINT_SECONDS)
    assert (late.drain, late.checkpoint_seconds) == ((), None)
    ready = late.status.condition("Ready")
    assert ready is not None
    assert ready.message.startswith("learner stays on cpu-1, which is being emptied: its checkpoints are in its pod")


@pytest.mark.parametrize("kept", [True, False])
def test_a_learner_that_has_learned_nothing_has_nothing_to_lose(kept: bool) -> None:
    controller = Controller(running().job, members=on_emptied_node("learner"), keeps_checkpoints=kept)
    assert controller.look().drain == ("learner",)


def test_shards_move_at_once_and_actors_are_left_to_the_drain() -> None:
    controller = emptying(names=("replay-0", "actor-0", "evaluator"))
    assert controller.last is not None
    assert controller.last.drain == ("replay-0",)
    assert controller.last.checkpoint_seconds is None


def test_without_protection_nobody_is_moved() -> None:
    controller = emptying("spec.learner.disruptionBudget=None", names=("learner", "replay-0"))
    assert controller.last is not None
    assert (controller.last.drain, controller.last.checkpoint_seconds) == ((), None)


def test_one_that_began_on_the_emptied_node_tolerates_that_and_stays() -> None:
    seen = tuple(replace(m, since_seconds=CORDONED + 10.0) if m.name == "learner" else m for m in members())
    controller = running()
    seen = on_emptied_node("learner", seen=seen)
    controller.look(CORDONED + 20.0 - controller.now, members=seen, checkpoint=verified(CORDONED + 15.0))
    assert controller.last is not None
    assert controller.last.drain == ()
    assert controller.status.state == "Running"


def test_a_suspension_under_way_has_its_own_order() -> None:
    controller = running()
    job = controller.job
    controller.job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    decision = controller.look(CORDONED - controller.now, members=on_emptied_node("learner", "replay-0"))
    assert set(decision.drain) == {"actor-0", "actor-1", "evaluator"}


def test_a_lost_node_is_a_reason_of_each_role_that_has_a_member_there() -> None:
    controller = running()
    lost = tuple(
        replace(m, node_lost=True, node_name="cpu-1") if m.name in ("learner", "actor-1") else m for m in members()
    )
    decision = controller.look(1.0, members=lost)
    assert controller.reason("LearnerReady") == ("False", "NodeLost")
    assert controller.reason("ReplayReady") == ("True", "PodsReady")
    assert controller.reason("ActorsReady") == ("False", "NodeLost")
    assert controller.reason("Ready") == ("True", "Degraded")
    told = {c.type: c.message for c in decision.status.conditions}
    assert told["LearnerReady"] == "1 needed; not ready: learner (nothing is heard of cpu-1)"
    assert told["ActorsReady"] == "2 of 2 ready, 1 needed; not ready: actor-1 (nothing is heard of cpu-1)"
    assert told["Ready"] == (
        "learner is on cpu-1, of which nothing is heard, 1 of 2 actors are not ready (NodeLost, actor-1)"
    )
    assert (decision.drain, decision.start, decision.replace) == ((), (), ()), "it may well work; its taint will tell"

    controller.look(1.0, members=members())
    assert controller.status.state == "Running"


def test_an_actor_that_is_needed_on_a_lost_node_is_not_ready() -> None:
    controller = running("spec.autoscaling.minReplicas=2")
    seen = members(actor_0=Phase.READY)
    controller.look(1.0, members=tuple(replace(m, node_lost=True) if m.name == "actor-0" else m for m in seen))
    assert controller.reason("ActorsReady") == ("False", "NodeLost")
