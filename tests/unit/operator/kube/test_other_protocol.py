"""An image of another protocol: nothing more is started, in words that name the image, until another one would be tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.wire.message import WIRE_VERSION as OF_MESSAGES
from rljob_operator.core.member import Role
from rljob_operator.kube.job.other_protocol import another_protocol
from rljob_operator.kube.job.stored import StoredJob, read
from rljob_operator.kube.render import names
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.revision import revision
from rljob_operator.kube.render.settings import Settings

from tests.unit.api.bad_manifests import BASE
from tests.unit.api.written import document

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
    pods = [ended(job)]
    assert another_protocol(stored(image="rl:2"), pods, SETTINGS) is None
    assert another_protocol(job, pods, replace(SETTINGS, protocol=OF_MESSAGES + 1)) is None, (
        "another release of the operator"
    )
    deleted = ended(job)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:02Z"
    assert another_protocol(job, [deleted], SETTINGS) is None
    assert another_protocol(stored(suspend=True, checkpoint={"onSuspend": "Skip"}), pods, SETTINGS) is None


def test_what_is_rendered_today_is_for_images_that_speak_as_we_do() -> None:
    found = {
        each["name"]: each.get("value")
        for each in pod(stored().owned(), "learner", "", "", SETTINGS)["spec"]["containers"][0]["env"]
    }
    assert found["RLJOB_PROTOCOL"] == str(OF_MESSAGES)
