"""Checkpoints that are told of: which is the newest, and what a learner leaves as its last words."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import CheckpointFacts, CheckpointState, checkpoint_facts
from rljob_operator.kube.job.members import parsed
from rljob_operator.kube.job.observe import checkpoint_in_its_pod, newest_checkpoint
from rljob_operator.view.job_view import JobView

from tests.unit.operator.kube.member_pods import container, ended, pod


def stored(step: int, time: str) -> RLJobStatus:
    checkpoint = {"step": step, "time": time, "uri": f"file:///run/{step}", "digest": "ab"}
    return RLJobStatus.model_validate({"checkpoint": checkpoint})


def answer(step: int, seconds: float, requested: float = 0.0) -> LearnerStatus:
    said = {"step": step, "state": "Valid", "path": f"/run/{step}", "digest": "ab"}
    return LearnerStatus.lenient({"checkpoint": {**said, "written_unix": seconds, "requested_unix": requested}})


LATER = stored(3396, "2026-11-23T12:00:20Z")
SECONDS = 1795435220.0


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (answer(2951, SECONDS - 12.0), 3396),  # last words outlive their pod
        (answer(4000, SECONDS + 30.0), 4000),
        (answer(4000, SECONDS - 5.0, requested=SECONDS + 2.0), 4000),  # whatever the clock of its node says
        (None, 3396),
    ],
)
def test_the_newest_is_that_of_a_later_time_or_request(said: LearnerStatus | None, step: int) -> None:
    assert (LATER.checkpoint.time, newest_checkpoint(LATER, said, []).step) == (SECONDS, step)


def test_what_the_status_does_not_know_of_the_newest_is_taken_from_the_learner() -> None:
    assert newest_checkpoint(LATER, answer(3396, SECONDS - 0.4, requested=5.0), []).requested_seconds == 5.0
    assert newest_checkpoint(RLJobStatus(), None, []).state is CheckpointState.MISSING


def test_what_was_in_a_pod_is_gone_with_it() -> None:
    def seen(created: str, phase: Phase) -> CheckpointFacts:
        about = {"uid": "1", "name": "p", "creationTimestamp": created}
        learner = Member("learner", Role.LEARNER, phase)
        pods = [{"metadata": about, "spec": {"hostname": "learner"}}]
        return checkpoint_in_its_pod(newest_checkpoint(LATER, None, []), learner, pods)

    assert seen("2026-11-23T12:00:00Z", Phase.READY).state is CheckpointState.VERIFIED, "its own"
    for found in (
        seen("2026-11-23T12:00:00Z", Phase.EXITED),
        seen("2026-11-23T12:01:00Z", Phase.READY),
        checkpoint_in_its_pod(newest_checkpoint(LATER, None, []), None, []),
    ):
        assert (found.state, found.usable, "update 3,396" in found.message) == (CheckpointState.GONE, False, True)


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


WHOLE = {"state": "Valid", "path": "s3://b/7", "step": 7, "written_unix": 5.5, "digest": "ab", "requested_unix": 4.0}


def said(message: str) -> dict[str, Any]:
    return pod(containerStatuses=[container({"terminated": {"message": "no"}}, "redis"), ended(0, message=message)])


def newest(words: Mapping[str, Any]) -> CheckpointFacts:
    return checkpoint_facts(LearnerStatus.lenient(words).checkpoint)


def test_an_orderly_end_names_its_checkpoint() -> None:
    found = newest(parsed(said(json.dumps({"checkpoint": WHOLE}))))
    assert found == CheckpointFacts(CheckpointState.VERIFIED, 7, 5.5, "s3://b/7", "sha256:ab", "", 4.0)


@pytest.mark.parametrize("message", ["", "Killed", "[1]", "7", '{"checkpoint": {', "[" * 4000, '"text"', "null"])
def test_words_that_are_no_document_say_nothing(message: str) -> None:
    assert parsed(said(message)) == {}


@pytest.mark.parametrize(
    "found", [pod(), pod(containerStatuses=None), pod(containerStatuses=[container({})]), {"metadata": {}}]
)
def test_a_pod_that_has_not_ended_says_nothing(found: dict[str, Any]) -> None:
    assert parsed(found) == {}


@pytest.mark.parametrize("found", [None, 5, [], "Valid"])
def test_no_checkpoint_is_none(found: Any) -> None:
    assert newest({"checkpoint": found}) == CheckpointFacts()


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"state": "Strange"}, "state", CheckpointState.MISSING),
        ({"state": "Failed"}, "state", CheckpointState.STORAGE_ERROR),
        ({"state": ["Valid"]}, "state", CheckpointState.MISSING),
        ({"path": None}, "usable", False),
        ({"path": "/ckpt/7"}, "uri", "file:///ckpt/7"),
        ({"step": "7"}, "step", 0),
        ({"step": True}, "step", 0),
        ({"step": -1}, "step", 0),
        ({"step": 10**400}, "step", 0),
        ({"written_unix": float("nan")}, "time_seconds", 0.0),
        ({"written_unix": float("inf")}, "time_seconds", 0.0),
        ({"digest": "sha512:cd"}, "digest", "sha512:cd"),
        ({"digest": None}, "digest", ""),
        ({"requested_unix": None}, "requested_seconds", 0.0),
    ],
)
def test_odd_figures_count_as_not_said(changes: dict[str, Any], name: str, value: object) -> None:
    assert getattr(newest({"checkpoint": {**WHOLE, **changes}}), name) == value
