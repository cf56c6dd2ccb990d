"""What the controller takes from the stored object, and that equal parts of jobs are kept once."""

import gc
from typing import Any

import pytest
from rljob.api import RLJob, dump_manifest, parse_job
from rljob.api.conditions import Reason
from rljob.api.status import RLJobStatus
from rljob_operator.kube.job.stored import Interner, ReadBefore, is_ours, kept_job, read
from rljob_operator.kube.watch.kopf_watch import kept

from tests.unit.api.bad_manifests import BASE, document


def stored(status: Any = None, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    found = document(BASE)
    about = {"name": "pong", "namespace": "team", "uid": "u", "resourceVersion": "5", "generation": 3}
    whole = {**found, "metadata": {**about, **(metadata or {})}, "spec": {**found["spec"], **spec}}
    return whole if status is None else {**whole, "status": status}


def test_a_good_spec_is_what_is_wanted() -> None:
    found = read(stored(metadata={"annotations": {"rljob.dev/checkpoint-requested-at": "now"}}))
    assert (found.key, found.uid, found.leaving, found.status) == (("team", "pong"), "u", False, RLJobStatus())
    assert (found.desired.generation, found.desired.refusal) == (3, None)


@pytest.mark.parametrize(("name", "stopped"), [("rljob.dev/stop-requested-at", True), ("rljob.dev/other", False)])
def test_a_job_is_stopped_for_as_long_as_its_user_says_so(name: str, stopped: bool) -> None:
    assert read(stored(metadata={"annotations": {name: ""}})).stopped == stopped


@pytest.mark.parametrize("text", ["", "spec: {algorithm: {type: Unknown}}", "[", "spec: 5", "- 1"])
def test_a_refused_spec_without_one_in_force_blocks(text: str) -> None:
    refused = stored(actors={"replicas": "many"})
    refusal = read(refused, before=ReadBefore(in_force=kept_job(refused, text))).desired.refusal
    assert (refusal.reason, refusal.blocking) == (Reason.INVALID_SPEC, True)
    assert "spec.actors.replicas" in refusal.message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"actors": {"replicas": "many"}, "unknown": 1}, ["last good spec stays in force", "spec.unknown"]),
        (
            {"actors": {"env": [{"name": "TEXT", "value": "x" * 600_000}]}},
            ["characters; allowed: up to 524,288; put long texts into a ConfigMap"],
        ),
    ],
    ids=["every reason is told", "too large"],
)
def test_a_refused_spec_leaves_the_one_in_force(spec: dict[str, Any], words: list[str]) -> None:
    kept = kept_job(stored(**spec), dump_manifest(parse_job(stored(actors={"replicas": 11}))))
    found = read(stored(**spec), before=ReadBefore(in_force=kept)).desired
    assert [each for each in words if each not in found.refusal.message] == []
    assert (found.refusal.blocking, found.job.spec.actors.replicas, found.job.spec.actors.env) == (False, 11, None)


def test_a_change_that_the_config_map_has_not_heard_of_counts() -> None:
    """Its operator was killed when it had noted the change in the status."""
    before = read(stored()).desired
    status = {
        "observedGeneration": 3,
        "controller": {"activeSince": "2026-11-30T12:00:00Z", "startedWith": before.written},
    }
    kept = ReadBefore(in_force=before.job, made_for=before.written)
    assert read(stored(status, suspend=True), before=kept).desired.job.spec.suspend


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
        assert (found.desired.job is first, found) == (False, read(changed))
    for broken in (stored(backoffLimit="many"), stored(backoffLimit="many")):
        found = read(broken, before=before).desired
        assert (found.job.spec, found.refusal.blocking) == (first.spec, False), "the last good one"
    assert read(stored(), before=before).desired.refusal is None


def test_a_status_may_be_kept_as_text() -> None:
    written = RLJobStatus(active_seconds=7)
    scales = {"manager": "kube-controller-manager", "subresource": "scale"}
    about = {**stored()["metadata"], "managedFields": [{"manager": "kube-controller-manager"}, scales]}
    document = {**stored(status=written.document()), "metadata": about}
    found = kept(document)
    assert (isinstance(found["status"], str), found["metadata"]["managedFields"]) == (True, [scales])
    assert (read(found).desired.scaled_by_hpa, read(stored()).desired.scaled_by_hpa) == (True, False)
    assert read(found).status == read(document).status == written
    assert "status" not in kept(stored())


def test_whatever_metadata_a_server_accepts_is_its_business() -> None:
    many = {f"key-{number}": "" for number in range(99)}
    accepted = {"generateName": "po", "annotations": {**many, "long": "x" * 200_000}, "labels": many, "anything": [1]}
    found = read(stored(metadata=accepted)).desired
    assert (found.refusal, found.job.metadata.labels) == (None, many)
    refusal = read(stored(metadata=accepted, actors={"replicas": "many"})).desired.refusal
    assert refusal.message == "spec.actors.replicas: got 'many'; allowed: an integer from 0 to 100,000"
    before = ReadBefore()
    job = read(stored(), before=before).desired.job
    assert read(stored(metadata={"annotations": accepted["annotations"]}), before=before).desired.job is job


def job(name: str, **spec: Any) -> RLJob:
    found = document(BASE)
    return parse_job({**found, "metadata": {"name": name}, "spec": {**found["spec"], **spec}})


def test_jobs_share_the_sections_that_are_the_same() -> None:
    interner, given = Interner(), [job("a"), job("b"), job("c", actors={"replicas": 7})]
    first, second, third = map(interner.job, given)
    assert ([first, second, third], second.metadata.name) == (given, "b"), "nothing of a job is changed by that"
    assert first.spec.learner is second.spec.learner is third.spec.learner
    assert first.spec.actors is second.spec.actors is not third.spec.actors
    assert third.spec.actors.replicas == 7


def test_who_wrote_a_value_stays_known() -> None:
    default = job("a").spec.monitoring.metrics_port
    interner = Interner()
    one, other = interner.job(job("a")), interner.job(job("b", monitoring={"metricsPort": default}))
    monitoring = one.spec.monitoring, other.spec.monitoring
    assert monitoring[0] == monitoring[1]
    assert ["metrics_port" in each.model_fields_set for each in monitoring] == [False, True]


def test_what_no_job_has_any_more_is_let_go() -> None:
    interner = Interner()
    kept = interner.job(job("a"))
    size = len(interner)
    gone = interner.job(job("b", actors={"replicas": 9}))
    assert len(interner) == size + 1
    del gone
    gc.collect()
    assert len(interner) == size
    assert kept.spec.actors is interner.job(job("c")).spec.actors
