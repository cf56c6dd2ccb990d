"""A running job under another release: its pods read what they know; an image of another protocol starts nothing more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from rljob.api import parse_job
from rljob.api.conditions import Reason
from rljob.api.controller_memory import ControllerMemory
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.api.status import RLJobStatus
from rljob.wire.message import WIRE_VERSION as OF_MESSAGES
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Role
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import facts
from rljob_operator.kube.job.other_protocol import another_protocol
from rljob_operator.kube.job.stored import StoredJob, read
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import config_map
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.revision import revision
from rljob_operator.kube.render.settings import Settings

from tests.unit.api.bad_manifests import BASE, document

FIELDS_OF_THEN = "0123abcd-0123456789abcdef"
"""What the release that started the job has noted of what its user wrote: a digest of other fields than this one's."""
Spec = dict[str, Any]


def manifest(generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "job", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": generation},
        "spec": {"preset": "CartPoleIMPALA", **spec},
    }


def removed_since(spec: Spec) -> None:
    spec["secondsKept"] = 60
    spec["algorithm"]["impala"]["warmUpSteps"] = 500
    spec["autoscaling"]["guards"]["weight"] = 2


def added_since(spec: Spec) -> None:
    del spec["evaluator"]["episodes"]
    del spec["podCleanup"]


def both(spec: Spec) -> None:
    removed_since(spec)
    added_since(spec)


@pytest.fixture(params=[removed_since, added_since, both])
def started(request: pytest.FixtureRequest) -> Spec:
    """The spec that a job was started with, as that release stored it; its preset said something else, too."""
    spec: Spec = parse_job(manifest()).spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    spec["algorithm"]["impala"]["gamma"] = 0.5
    change: Callable[[Spec], None] = request.param
    change(spec)
    return spec


def running(started: Spec, generation: int = 1) -> RLJobStatus:
    memory = ControllerMemory(active_since=1.0, started_with=FIELDS_OF_THEN)
    return RLJobStatus(observed_generation=generation, effective_spec=copy.deepcopy(started), controller=memory)


def read_by_roles(found: StoredJob) -> Spec:
    spec: Spec = yaml.safe_load(config_map(found.owned())["data"]["job.yaml"])["spec"]
    return spec


def stored_after_a_look(found: StoredJob) -> RLJobStatus:
    context = ReconcileContext.at(found.desired, found.status, Observation(), 2.0)
    return facts.spec(context, found.desired.generation).status


def test_roles_read_what_they_were_started_with(started: Spec) -> None:
    found = read(manifest(), running(started))
    spec = found.desired.job.spec
    assert (found.desired.refusal, read_by_roles(found), spec.algorithm.impala.gamma) == (None, started, 0.5)
    assert spec.evaluator.episodes > 0, "for what was added since there is this release's default"


def test_what_its_user_changes_is_obeyed_and_nothing_else_is_changed(started: Spec) -> None:
    edited = manifest(2, actors={"replicas": 7}, backoffLimit=9, podCleanup={"afterSeconds": 30})
    found = read(edited, running(started))
    spec = found.desired.job.spec
    assert (spec.actors.replicas, spec.backoff_limit, spec.pod_cleanup.after_seconds) == (7, 9, 30)
    expected = copy.deepcopy(started)
    expected["actors"]["replicas"], expected["backoffLimit"] = 7, 9
    if "podCleanup" in expected:
        expected["podCleanup"]["afterSeconds"] = 30
    assert read_by_roles(found) == expected

    status = stored_after_a_look(found)
    assert (status.observed_generation, status.effective_spec) == (2, expected)
    for _ in range(2):
        again = read(edited, status)
        assert (again.desired.job.spec, read_by_roles(again)) == (spec, expected)
        status = stored_after_a_look(again)


def test_an_edit_that_this_release_refuses_leaves_what_runs(started: Spec) -> None:
    found = read(manifest(2, actors={"replicas": "many"}), running(started))
    refusal = found.desired.refusal
    assert (refusal.reason, refusal.blocking, read_by_roles(found)) == (Reason.INVALID_SPEC, False, started)


def test_a_spec_that_only_the_release_of_its_start_takes_goes_on(started: Spec) -> None:
    found = read(manifest(checkpoint={"storage": {"place": "elsewhere"}}), running(started))
    assert (found.desired.refusal, read_by_roles(found)) == (None, started)


def test_it_comes_up_again_in_the_fields_of_this_release(started: Spec) -> None:
    status = running(started)
    suspended = status.model_copy(update={"controller": status.controller.model_copy(update={"active_since": None})})
    found = read(manifest(), suspended)
    assert found.desired.in_fields_of_start is None
    assert read_by_roles(found) == parse_job(manifest()).spec.model_dump(mode="json", by_alias=True, exclude_none=True)


SETTINGS = Settings(image="rl:1")
OTHER = f"this image is of release 0.2.0 and speaks protocol {OF_MESSAGES + 1}; the job speaks protocol {OF_MESSAGES}"
SAID = f"something before\nrljob: {OTHER}"


def stored(**spec: Any) -> StoredJob:
    found = document(BASE)
    about = {**found["metadata"], "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    return read({**found, "metadata": about, "spec": {**found["spec"], **spec}})


def ended(job: StoredJob, member: str = "learner", code: int = EXIT_PROTOCOL, settings: Settings = SETTINGS) -> Any:
    found = pod(job.owned(), member, "aaaaa", revision(job.document, Role.of(member)), settings)
    found["metadata"] |= {"uid": f"{member}-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    end = {"exitCode": code, "message": SAID, "reason": "Error", "finishedAt": "2026-01-01T00:00:01Z"}
    found["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": names.WORKER, "state": {"terminated": end}}],
    }
    return found


def test_the_condition_names_the_image_the_two_protocols_and_what_to_use() -> None:
    job = stored()
    refusal = another_protocol(job, [ended(job, "actor-0", 1), ended(job)], SETTINGS)
    assert (refusal.reason, refusal.blocking) == (Reason.IMAGE_SCHEMA_MISMATCH, True)
    assert refusal.message.startswith(f"image rl:1 of learner: {OTHER}; use an image of release ")


@pytest.mark.parametrize("code", [0, 1, 78])
def test_other_ends_are_other_matters(code: int) -> None:
    job = stored()
    assert another_protocol(job, [ended(job, code=code)], SETTINGS) is None


def test_it_is_tried_again_where_something_has_changed() -> None:
    job = stored()
    pods, deleted = [ended(job)], ended(job)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:02Z"
    for tried in (
        (stored(image="rl:2"), pods, SETTINGS),
        (job, pods, replace(SETTINGS, protocol=OF_MESSAGES + 1)),  # another release of the operator
        (job, [deleted], SETTINGS),
        (stored(suspend=True, checkpoint={"onSuspend": "Skip"}), pods, SETTINGS),
    ):
        assert another_protocol(*tried) is None


def test_what_is_rendered_today_is_for_images_that_speak_as_we_do() -> None:
    (worker,) = pod(stored().owned(), "learner", "", "", SETTINGS)["spec"]["containers"]
    assert {"name": "RLJOB_PROTOCOL", "value": str(OF_MESSAGES)} in worker["env"]
