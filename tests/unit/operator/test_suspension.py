"""Suspend: drain, checkpoint, verify, stop; resume at the same step.

What pods are made with is fixed when a job comes up from nothing, and by nothing else.
"""

from dataclasses import replace

import pytest
import yaml
from rljob.api import dump_manifest, parse_job
from rljob.api.conditions import Reason
from rljob.api.controller_memory import RenderingMemory
from rljob_operator.core.desired import Refusal
from rljob_operator.core.observed import Admission, CheckpointFacts, CheckpointState
from rljob_operator.core.rules.suspension import RETRY_SECONDS

from tests.support.controller import START, Controller, exited, gone, make_job, members, running, sample, verified

CORE = members(0)[:2]
GAMMA = "spec.algorithm.gamma=0.9"


def suspending(*sets: str, **world: object) -> Controller:
    """A trained job (update 1000) whose user has just asked for its suspension, with actors and evaluator gone."""
    controller = running(*sets, **world)
    controller.looks({"job": make_job("spec.suspend=true", *sets)}, {"members": CORE})
    return controller


@pytest.fixture
def leaving() -> Controller:
    return suspending()


def test_the_whole_way_down_and_up(controller: Controller) -> None:
    out, asked = ("actor-0", "actor-1", "evaluator"), controller.now + 2.0
    failed = replace(verified(asked + 1, 1000), state=CheckpointState.STORAGE_ERROR)
    # Nothing new; one that is older than the training, one from before the request, and one after which another failed.
    of_no_use = (verified(START - 100, 900), verified(asked + 1, 999), verified(asked - 1, 1000), failed)
    draining = {"start": (), "checkpoint_seconds": None, "Suspended": ("False", "Draining"), "state": "Suspending"}
    checkpointing = {"drain": (), "checkpoint_seconds": asked, "Suspended": ("False", "Checkpointing")}
    suspended = {"Suspended": ("True", "UserRequested"), "Ready": ("False", "Suspended"), "requeue_seconds": None}
    controller.story(
        (1.0, {"job": make_job("spec.suspend=true")}, {"drain": out, **draining}),
        (1.0, {"members": CORE, "checkpoint": verified(START - 100, 900)}, checkpointing),
        *((1.0, {"checkpoint": facts}, {"drain": ()}) for facts in of_no_use),
        (1.0, {"checkpoint": verified(asked + 1, 1003)}, {"drain": ("learner",), "checkpoint_seconds": None}),
        (1.0, {"members": CORE[:1]}, {"drain": ("replay-0",)}),
        (1.0, {"members": ()}, {"start": (), "drain": (), **suspended}),
    )
    still = controller.status
    controller.look(10_000.0)
    assert controller.status == still, "nothing is written while nothing happens"

    resumed = {"start": ("replay-0", "learner", "actor-0"), "state": "Restoring", "Suspended": ("False", "Resumed")}
    controller.after(0.0, {"job": make_job()}, **resumed)
    back = {"members": members(), "learner": sample(controller.now + 5, 1003)}
    controller.story(
        (5.0, back, {"Progressing": ("False", "WarmingUp")}),  # 1003 is where it was, no advance
        (1.0, {"learner": sample(controller.now + 6, 1004)}, {"state": "Running", "suspension": None}),
    )


def test_it_waits_and_asks_again(leaving: Controller) -> None:
    first = leaving.now
    broken = CheckpointFacts(CheckpointState.STORAGE_ERROR, message="no space left")
    again = {"checkpoint_seconds": first + RETRY_SECONDS, "drain": (), "CheckpointValid": ("False", "StorageError")}
    leaving.story((RETRY_SECONDS - 1, {"checkpoint": broken}, {"checkpoint_seconds": first}), (1.0, {}, again))
    assert leaving.said("Suspended")[2].startswith("no verified checkpoint yet: no space left")
    saved = verified(leaving.now + RETRY_SECONDS + 1)
    leaving.story((RETRY_SECONDS, {}, {"drain": ()}), (1.0, {"checkpoint": saved}, {"drain": ("learner",)}))


def said_at_last(controller: Controller) -> str:
    """What Suspended says when all have left; an event has the same words."""
    controller.look(1.0, members=CORE[:1])
    notes = controller.look(1.0, members=()).notes
    *said, message = controller.said("Suspended")
    assert said == ["True", "UserRequested"]
    assert any(message in note.text for note in notes)
    return message


def test_it_waits_no_longer_than_it_may_and_says_what_that_cost() -> None:
    """A full volume would else keep a GPU for ever, for a job that its user does not want to run."""
    controller = suspending(checkpoint=verified(START - 100, 900))
    broken = replace(verified(START - 100, 900), state=CheckpointState.STORAGE_ERROR, message="no space left")
    assert (controller.look(590.0, checkpoint=broken).drain, controller.look(10.0).drain) == ((), ("learner",))
    assert said_at_last(controller) == "no checkpoint was verified within 600 s: resuming continues from update 900"
    controller.look(1.0, checkpoint=verified(controller.now, 1010))
    assert controller.said("Suspended")[2] == "", "the learner's last words told of one after all"


def test_what_ends_with_the_learners_pod_is_not_lost_before_its_user_could_think_again() -> None:
    controller = suspending(checkpoints_are="", checkpoint=verified(START + 5, 1000))
    assert controller.look(590.0).drain == ()
    assert "suspend: false keeps them" in controller.said("Suspended")[2]
    assert controller.look(20.0).drain == ("learner",)
    assert said_at_last(controller).endswith("resuming starts from zero")

    evicted = running(checkpoints_are="")
    evicted.look(1.0, admission=Admission(False, Reason.EVICTED, "preempted"))
    assert evicted.look(1.0, members=CORE).drain == ("learner",), "a queue is not kept waiting for nothing"


def test_a_learner_that_never_learned_or_is_gone_has_nothing_to_save(leaving: Controller) -> None:
    controller = Controller(make_job(), learner=sample(updates=0))
    controller.look()
    controller.look(1.0, job=make_job("spec.suspend=true"))
    assert controller.look(1.0, members=CORE).drain == ("learner",)
    assert leaving.look(1.0, members=exited("learner", CORE)).drain == ("replay-0",)


@pytest.mark.parametrize("changes", [[], [GAMMA]], ids=["no change", "a change that is taken back"])
def test_a_change_of_mind_halfway_restarts_nothing(changes: list[str], leaving: Controller) -> None:
    """The learner went on all the time; its actors come back."""
    for change in changes:
        leaving.look(1.0, job=make_job("spec.suspend=true", change))
    leaving.after(
        1.0, {"job": make_job()}, start=("actor-0", "actor-1", "evaluator"), suspension=None, state="Degraded"
    )


def test_time_in_a_suspension_that_was_called_off_is_no_standstill() -> None:
    """Found by the search: it has waited for a checkpoint, for less than what counts as a gap."""
    patient = ("spec.progressDeadlineSeconds=100",)
    controller = suspending(*patient)
    controller.look(110.0)
    controller.job = make_job(*patient)
    assert controller.ends(1.0, 99.0, 2.0) == ["", "", "ProgressDeadlineExceeded"], "from then on it counts"


@pytest.mark.parametrize("seen", ["while suspending", "with the resuming"])
def test_what_is_changed_before_everything_has_left_is_used_after_resuming(seen: str, leaving: Controller) -> None:
    """The learner that is still there has read the old parameters, so the change of mind has to wait until it has gone."""
    if seen == "while suspending":
        assert leaving.look(1.0, job=make_job("spec.suspend=true", GAMMA)).start == ()
    request = leaving.status.controller.suspension.checkpoint_time
    leaving.after(1.0, {"job": make_job(GAMMA)}, start=(), checkpoint_seconds=request, state="Suspending")
    assert "changed during the suspension" in leaving.said("Ready")[2]
    leaving.story(
        (1.0, {"checkpoint": verified(leaving.now, 1003)}, {"drain": ("learner",)}),
        (1.0, {"members": CORE[:1]}, {"drain": ("replay-0",)}),
        # With the new parameters, and once.
        (1.0, {"members": ()}, {"start": ("replay-0", "learner", "actor-0"), "state": "Restoring"}),
        (1.0, {"members": members(), "learner": sample(leaving.now + 3, 1003)}, {"drain": ()}),
    )


def test_a_suspension_and_a_change_that_no_look_saw_still_restart_everything() -> None:
    """Three edits within half a second: all that the controller sees is another spec, which only a start can bring about."""
    running().after(1.0, {"job": make_job(GAMMA)}, drain=("actor-0", "actor-1", "evaluator"), state="Suspending")


def test_what_may_change_at_any_time_restarts_nothing(controller: Controller) -> None:
    assert controller.look(
        1.0, job=make_job("spec.actors.replicas=3", "spec.backoffLimit=9", "spec.autoscaling.pause=All")
    ).start == ("actor-2",)
    document = yaml.safe_load(dump_manifest(controller.job))
    document["spec"]["algorithm"]["apeXDQN"] = dict(reversed(document["spec"]["algorithm"]["apeXDQN"].items()))
    assert controller.look(1.0, job=parse_job(document), members=members(3)).drain == (), (
        "the order of parameters says nothing"
    )


def test_what_runs_is_left_alone_while_no_spec_is_known_to_run_it_by(controller: Controller) -> None:
    """As after an upgrade to a release with other fields: nothing may be judged by what is left of the spec."""
    known, job = controller.status.environment, controller.job
    left = {"job": make_job("spec.actors.replicas=1", "spec.successPolicy.rawFrames=1"), "generation": 7}
    unknown = {**left, "refusal": Refusal(Reason.RENDERING_UNKNOWN, "of another release")}
    said = {"Accepted": ("False", "RenderingUnknown"), "Ready": ("False", "Accepting")}
    fatal = exited("actor-0", members(), exit_code=78)
    controller.after(1.0, {**unknown, "members": fatal}, start=(), drain=(), outcome=None, **said)
    assert (controller.status.environment, controller.status.observed_generation) == (known, 7)
    back = {"job": job, "refusal": None, "members": members()}
    controller.after(1.0, back, Accepted=("True", "Valid"), Ready=("True", "Running"))


def test_a_job_that_goes_on_as_its_last_member_leaves_comes_up_in_order(leaving: Controller) -> None:
    assert leaving.look(1.0, job=make_job(), members=()).start == ("replay-0", "learner", "actor-0")
    assert leaving.status.state in ("Starting", "Restoring")


def test_created_suspended() -> None:
    controller = Controller(make_job("spec.suspend=true"), members=())
    controller.after(0.0, start=(), requeue_seconds=None, Suspended=("True", "UserRequested"), start_time=None)


def test_the_queue_takes_its_quota_back_and_gives_it_again() -> None:
    waiting = Admission(False, Reason.WAITING_FOR_QUOTA, "2 jobs are before it")
    held = Admission(True, Reason.QUOTA_RESERVED, workload="rljob-pong", actor_blocks=1)
    waits = ("False", "WaitingForQuota")
    controller = Controller(make_job(), members=(), admission=waiting)
    controller.story(
        (0.0, {}, {"start": (), "Ready": waits, "Admitted": waits}),
        (60.0, {"admission": held}, {"start": ("replay-0", "learner", "actor-0")}),
        (0.0, {"members": members()}, {}),
    )
    controller.trained()
    assert (controller.status.state, controller.status.admission is None) == ("Running", False)
    controller.story(
        (1.0, {"admission": Admission(False, Reason.EVICTED, "preempted")}, {}),
        (1.0, {"members": CORE}, {}),
        (1.0, {"checkpoint": verified(controller.now + 2)}, {}),
        (1.0, {"members": ()}, {"Suspended": ("True", "QuotaEvicted"), "Ready": waits}),
    )
    assert not controller.job.spec.suspend, "the user's field is the user's"


def test_a_job_whose_first_pod_found_no_quota_was_never_suspended() -> None:
    """Another job like it was admitted a moment before, so its own pods were not tried."""
    controller = Controller(make_job(), members=())
    assert controller.look().start == ("replay-0", "learner", "actor-0")
    controller.look(1.0, admission=Admission(False, Reason.QUOTA_EXCEEDED, "exceeded quota: pods"))
    assert controller.status.start_time is not None
    assert (controller.reason("Suspended"), controller.reason("Ready")[0]) == (("", ""), "False")


def test_a_checkpoint_on_request() -> None:
    controller = running(checkpoint_requested_at="2026-11-21T16:00:00Z")
    controller.story(
        (1.0, {"checkpoint": verified(START - 10)}, {"checkpoint_seconds": START}),
        (1.0, {"members": gone("learner")}, {"checkpoint_seconds": None}),  # no learner is there to be asked
        (1.0, {"members": members(), "checkpoint": verified(START + 3)}, {"checkpoint_seconds": None}),
        (100.0, {}, {"checkpoint_seconds": None}),
        (1.0, {"checkpoint_requested_at": "again"}, {"checkpoint_seconds": controller.now + 104.0}),
        (1.0, {"checkpoint_requested_at": ""}, {"checkpoint_request": None}),
    )


OLD, NEW = (RenderingMemory(version=number, image=f"rl:{number}") for number in (1, 2))


@pytest.fixture
def controller() -> Controller:
    """A job that trains, with an operator that would make pods in another way."""
    controller = running(rendering=OLD, written="a-1")
    controller.world["rendering"] = NEW
    return controller


def test_it_stands_from_the_first_start_and_no_other_operator_changes_it(controller: Controller) -> None:
    controller.expect(rendering=OLD)
    controller.story(
        (100.0, {}, {}),
        (1.0, {"job": make_job("spec.actors.replicas=3")}, {"start": ("actor-2",), "rendering": OLD}),
        (1.0, {"members": CORE}, {}),
        (1.0, {"members": ()}, {"rendering": OLD}),  # that all members are gone is no suspension
    )


def test_a_suspension_changes_it_once_nothing_runs_and_not_when_it_is_called_off(controller: Controller) -> None:
    suspend = {"job": make_job("spec.suspend=true")}
    controller.story(
        (1.0, suspend, {}),
        (1.0, {"job": make_job()}, {"rendering": OLD}),
        (1.0, suspend, {}),
        (1.0, {"members": CORE}, {}),
        (1.0, {"checkpoint": verified(controller.now + 5, 2000)}, {}),
        (1.0, {"members": ()}, {"Suspended": ("True", "UserRequested"), "rendering": OLD}),
        (1.0, {"job": make_job()}, {"start": ("replay-0", "learner", "actor-0"), "rendering": NEW}),
    )


def test_a_queue_that_takes_the_quota_back_changes_it_too(controller: Controller) -> None:
    controller.story(
        (1.0, {"admission": Admission(False, Reason.EVICTED), "checkpoint": CheckpointFacts()}, {}),
        (120.0, {"members": ()}, {}),
        (1.0, {"admission": None}, {"rendering": NEW}),
    )


def test_a_change_that_restarts_everything_changes_it(controller: Controller) -> None:
    assert controller.after(1.0, {"written": "a-2"}, rendering=OLD).drain, "the user has written something else"
    controller.after(1.0, {"members": ()}, rendering=NEW)
