"""What a learner leaves as its last words, and whatever else may stand there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from rljob.api.learner_status import LearnerStatus
from rljob_operator.core.checkpoint_words import checkpoint_facts
from rljob_operator.core.observed import CheckpointFacts, CheckpointState
from rljob_operator.kube.job.last_words import parsed

from .member_pods import container, ended, pod

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
