"""Which of the checkpoints that are told of is the newest."""

from __future__ import annotations

from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import CheckpointFacts, CheckpointState
from rljob_operator.kube.job.observe import checkpoint_in_its_pod, newest_checkpoint
from rljob_operator.kube.render import names
from rljob_operator.view.job_view import JobView


def stored(step: int, time: str) -> RLJobStatus:
    checkpoint = {"step": step, "time": time, "uri": f"file:///run/{step}", "digest": "ab"}
    return RLJobStatus.model_validate({"checkpoint": checkpoint})


def answer(step: int, seconds: float, requested: float = 0.0) -> LearnerStatus:
    said = {"step": step, "state": "Valid", "path": f"/run/{step}", "digest": "ab"}
    return LearnerStatus.lenient({"checkpoint": {**said, "written_unix": seconds, "requested_unix": requested}})


LATER = stored(3396, "2026-11-23T12:00:20Z")
SECONDS = 1795435220.0


def test_last_words_outlive_their_pod_and_are_newer_than_what_was_said_before() -> None:
    assert LATER.checkpoint.time == SECONDS
    assert newest_checkpoint(LATER, answer(2951, SECONDS - 12.0), []).step == 3396


def test_a_learner_that_is_up_says_what_is_newest() -> None:
    assert newest_checkpoint(LATER, answer(4000, SECONDS + 30.0), []).step == 4000
    again = newest_checkpoint(LATER, answer(3396, SECONDS - 0.4, requested=5.0), [])
    assert again.requested_seconds == 5.0, "the same one, of which the status does not know all"


def test_one_that_answers_a_later_request_is_newer_whatever_the_clock_of_its_node_says() -> None:
    assert newest_checkpoint(LATER, answer(4000, SECONDS - 5.0, requested=SECONDS + 2.0), []).step == 4000


def test_what_is_remembered_stands_while_nobody_says_anything() -> None:
    assert newest_checkpoint(LATER, None, []).step == 3396
    assert newest_checkpoint(RLJobStatus(), None, []).state is CheckpointState.MISSING


def test_what_was_in_a_pod_is_gone_with_it() -> None:
    def seen(created: str, phase: Phase) -> CheckpointFacts:
        pod = {
            "metadata": {
                "uid": "1",
                "name": "p",
                "creationTimestamp": created,
                "labels": {names.MEMBER_LABEL: "learner"},
            }
        }
        learner = Member("learner", Role.LEARNER, phase)
        return checkpoint_in_its_pod(newest_checkpoint(LATER, None, []), learner, [pod])

    assert seen("2026-11-23T12:00:00Z", Phase.READY).state is CheckpointState.VERIFIED, "its own"
    for found in (
        seen("2026-11-23T12:00:00Z", Phase.EXITED),
        seen("2026-11-23T12:01:00Z", Phase.READY),
        checkpoint_in_its_pod(newest_checkpoint(LATER, None, []), None, []),
    ):
        assert (found.state, found.usable) == (CheckpointState.GONE, False)
        assert "update 3,396" in found.message


def test_a_view_does_not_show_a_checkpoint_that_is_gone() -> None:
    gone = {
        "type": "CheckpointValid",
        "status": "False",
        "reason": "Gone",
        "lastTransitionTime": "2026-11-23T12:00:00Z",
    }
    status = RLJobStatus.model_validate({**LATER.document(), "conditions": [gone]})
    for known, expected in ((LATER, LATER.checkpoint), (status, None)):
        assert JobView("a/b", {}, known, attended=True, running=()).checkpoint == expected
