"""A job that runs goes on under a release whose types have other fields: its pods read what they know, as it was at the start."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from rljob.api import parse_job
from rljob.api.conditions import Reason
from rljob.api.controller_memory import ControllerMemory
from rljob.api.status import RLJobStatus
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import facts
from rljob_operator.kube.job.stored import StoredJob, read
from rljob_operator.kube.render.children import config_map

FIELDS_OF_THEN = "0123abcd-0123456789abcdef"
"""What the release that started the job has noted of what its user wrote: a digest of other fields than this one's."""
Spec = dict[str, Any]


def manifest(generation: int = 1, **spec: Any) -> dict[str, Any]:
    about = {"name": "job", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": generation}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": about,
        "spec": {"preset": "CartPoleIMPALA", **spec},
    }


def removed_since(spec: Spec) -> None:
    spec["secondsKept"] = 60
    spec["algorithm"]["impala"]["warmUpSteps"] = 500
    spec["autoscaling"]["behavior"]["scaleUp"]["policies"][0]["weight"] = 2


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
    text = config_map(found.owned())["data"]["job.yaml"]
    spec: Spec = yaml.safe_load(text)["spec"]
    return spec


def stored_after_a_look(found: StoredJob) -> RLJobStatus:
    context = ReconcileContext.at(found.desired, found.status, Observation(), 2.0)
    return facts.spec(context, found.desired.generation).status


def test_roles_read_what_they_were_started_with(started: Spec) -> None:
    found = read(manifest(), running(started))
    assert found.desired.refusal is None
    assert read_by_roles(found) == started
    assert found.desired.job.spec.algorithm.impala.gamma == 0.5
    assert found.desired.job.spec.evaluator.episodes > 0, "for what was added since there is this release's default"


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
        assert again.desired.job.spec == spec
        assert read_by_roles(again) == expected
        status = stored_after_a_look(again)


def test_an_edit_that_this_release_refuses_leaves_what_runs(started: Spec) -> None:
    found = read(manifest(2, actors={"replicas": "many"}), running(started))
    refusal = found.desired.refusal
    assert (refusal.reason, refusal.blocking) == (Reason.INVALID_SPEC, False)
    assert read_by_roles(found) == started


def test_a_spec_that_only_the_release_of_its_start_takes_goes_on(started: Spec) -> None:
    found = read(manifest(checkpoint={"storage": {"place": "elsewhere"}}), running(started))
    assert found.desired.refusal is None
    assert read_by_roles(found) == started


def test_it_comes_up_again_in_the_fields_of_this_release(started: Spec) -> None:
    status = running(started)
    suspended = status.model_copy(update={"controller": status.controller.model_copy(update={"active_since": None})})
    found = read(manifest(), suspended)
    assert found.desired.in_fields_of_start is None
    newest = parse_job(manifest()).spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert read_by_roles(found) == newest
