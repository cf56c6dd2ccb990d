"""What the controller takes from the stored object."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob.api.status import RLJobStatus
from rljob_operator.kube.job.stored import ReadBefore, is_ours, read
from rljob_operator.kube.watch.kopf_watch import kept

from tests.unit.api.bad_manifests import BASE
from tests.unit.api.written import document


def stored(status: Any = None, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    found = document(BASE)
    about = {
        "name": "pong",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "5",
        "generation": 3,
        **(metadata or {}),
    }
    kept = {**found, "metadata": about, "spec": {**found["spec"], **spec}}
    return kept if status is None else {**kept, "status": status}


def in_force() -> dict[str, Any]:
    return dict(document(BASE)["spec"])


def test_a_good_spec_is_what_is_wanted() -> None:
    found = read(stored(metadata={"annotations": {"rljob.dev/checkpoint-requested-at": "now"}}))
    assert (found.key, found.uid, found.leaving) == (("team", "pong"), "u", False)
    assert (found.desired.generation, found.desired.refusal) == (3, None)
    assert found.status == RLJobStatus()


def test_a_job_is_stopped_for_as_long_as_its_user_says_so() -> None:
    assert read(stored(metadata={"annotations": {"rljob.dev/stop-requested-at": ""}})).stopped
    assert not read(stored(metadata={"annotations": {"rljob.dev/other": "x"}})).stopped


@pytest.mark.parametrize("effective", [None, {}, {"algorithm": {"type": "Unknown"}}])
def test_a_refused_spec_without_one_in_force_blocks(effective: Any) -> None:
    status = None if effective is None else {"effectiveSpec": effective}
    refusal = read(stored(status, actors={"replicas": "many"})).desired.refusal
    assert (refusal.reason, refusal.blocking) == (Reason.INVALID_SPEC, True)
    assert "spec.actors.replicas" in refusal.message


def test_a_refused_spec_leaves_the_one_in_force() -> None:
    effective = {**in_force(), "actors": {"replicas": 11}}
    found = read(stored({"effectiveSpec": effective}, actors={"replicas": "many"}, unknown=1))
    refusal = found.desired.refusal
    assert not refusal.blocking
    assert "last good spec stays in force" in refusal.message
    assert "spec.unknown" in refusal.message, "every reason is told"
    assert found.desired.job.spec.actors.replicas == 11


@pytest.mark.parametrize("status", [{"restarts": "none"}, {"conditions": 5}, {"restarts": {"counted": -1}}])
def test_a_status_that_nobody_can_read_counts_as_none(status: Any) -> None:
    assert read(stored(status)).status == RLJobStatus()


def test_a_status_that_was_written_since_goes_before_the_stored_one() -> None:
    newer = RLJobStatus.model_validate({"restarts": {"counted": 4, "ignored": 0}}, by_alias=True)
    assert read(stored({"restarts": {"counted": 1, "ignored": 0}}), newer).status is newer
    assert read(stored({"restarts": {"counted": 1, "ignored": 0}})).status.restarts.counted == 1


def test_a_job_that_is_being_deleted_is_leaving() -> None:
    assert read(stored(metadata={"deletionTimestamp": "2026-11-23T12:00:00Z"})).leaving


@pytest.mark.parametrize(
    ("spec", "ours"),
    [({}, True), ({"managedBy": "rljob.dev/operator"}, True), ({"managedBy": "kueue.x-k8s.io/multikueue"}, False)],
)
def test_jobs_of_another_controller_are_left_alone(spec: dict[str, Any], ours: bool) -> None:
    assert is_ours({"spec": spec}) is ours
    assert not is_ours({"spec": None})


def test_a_spec_is_read_once_for_as_long_as_it_stays_the_same() -> None:
    before = ReadBefore()
    first = read(stored(), before=before).desired.job
    later = stored(status={"state": "Running"}, metadata={"resourceVersion": "9"})
    assert read(later, before=before).desired.job is first
    for changed in (stored(backoffLimit=3), stored(metadata={"labels": {"team": "a"}}), stored()):
        found = read(changed, before=before)
        assert found.desired.job is not first
        assert found == read(changed)
    for broken in (stored(backoffLimit="many"), stored(backoffLimit="many")):
        assert read(broken, before=before) == read(broken)
    assert read(stored(), before=before).desired.refusal is None


def test_a_status_may_be_kept_as_text() -> None:
    written = RLJobStatus(active_seconds=7).document()
    document = {
        **stored(status=written),
        "metadata": {**stored()["metadata"], "managedFields": [{"manager": "kubectl"}]},
    }
    found = kept(document)
    assert isinstance(found["status"], str)
    assert "managedFields" not in found["metadata"]
    assert read(found).status == read(document).status == RLJobStatus(active_seconds=7)
    assert "status" not in kept(stored())


def test_whatever_metadata_a_server_accepts_is_its_business() -> None:
    many = {f"key-{number}": "" for number in range(99)}
    accepted = {"generateName": "po", "annotations": {**many, "long": "x" * 200_000}, "labels": many, "anything": [1]}
    found = read(stored(metadata=accepted))
    assert found.desired.refusal is None
    assert found.desired.job.metadata.labels == many
    refusal = read(stored(metadata=accepted, actors={"replicas": "many"})).desired.refusal
    assert refusal.message == "spec.actors.replicas: got 'many'; allowed: an integer from 0 to 100,000"
    before = ReadBefore()
    job = read(stored(), before=before).desired.job
    assert read(stored(metadata={"annotations": accepted["annotations"]}), before=before).desired.job is job


def test_a_spec_that_grew_too_large_leaves_the_one_in_force() -> None:
    env = [{"name": "TEXT", "value": "x" * 600_000}]
    found = read(stored({"effectiveSpec": in_force()}, actors={"env": env}))
    refusal = found.desired.refusal
    assert not refusal.blocking
    assert "characters; allowed: up to 524,288; put long texts into a ConfigMap" in refusal.message
    assert found.desired.job.spec.actors.env is None
