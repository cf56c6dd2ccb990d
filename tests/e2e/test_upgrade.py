"""An operator with another default image takes over while a job trains: nothing is restarted, and nothing is mixed."""

from __future__ import annotations

import os

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.jobs import endless
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

VARIABLE = "RLJOB_E2E_NEXT_IMAGE"


def images(namespace: Namespace, job: str) -> dict[str, str]:
    """Member -> image of its worker."""
    return {member: pod["spec"]["containers"][0]["image"] for member, pod in namespace.pods(job).items()}


@pytest.fixture
def next_image() -> str:
    """Another name of the worker image."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} is not set: a second worker image of this tree (docs/testing-on-kubernetes.md)")
    return found


def test_an_operator_with_another_image_restarts_nothing(
    namespace: Namespace, operator: OperatorProcess, next_image: str
) -> None:
    first = os.environ["RLJOB_E2E_IMAGE"]
    namespace.apply(endless("upgraded", checkpoint={"onSuspend": "Skip"}))
    namespace.wait_for("upgraded", "Ready", "True")
    namespace.wait_updates("upgraded")
    before = namespace.uids("upgraded")
    operator.stop()
    try:
        operator.start(next_image)
        namespace.kubectl("scale", "rljob", "upgraded", "--replicas=2")  # the next one works
        _wait_actors(namespace, 2)
        after = namespace.uids("upgraded")
        assert {member: after[member] for member in before} == before
        assert namespace.job_status("upgraded")["restarts"] == {"counted": 0, "ignored": 0}

        namespace.kill_worker("upgraded", "actor-0")
        eventually(
            lambda: namespace.uids("upgraded").get("actor-0", before["actor-0"]) != before["actor-0"],
            "no pod follows the actor's",
            LONG_SECONDS,
            pause,
        )
        _wait_actors(namespace, 2)
        assert images(namespace, "upgraded") == dict.fromkeys(("learner", "actor-0", "actor-1"), first)
        assert namespace.uids("upgraded")["learner"] == before["learner"]
        assert namespace.job_status("upgraded")["restarts"] == {"counted": 0, "ignored": 1}

        namespace.patch("upgraded", {"suspend": True})
        namespace.wait_for("upgraded", "Suspended", "True", "UserRequested")
        namespace.patch("upgraded", {"suspend": False})
        namespace.wait_for("upgraded", "Ready", "True")
        _wait_actors(namespace, 2)
        assert images(namespace, "upgraded") == dict.fromkeys(("learner", "actor-0", "actor-1"), next_image)
    finally:
        operator.ensure_runs()
        namespace.delete_jobs()
        operator.stop()


def _wait_actors(namespace: Namespace, count: int) -> None:
    eventually(
        lambda: namespace.job_status("upgraded")["actors"]["ready"] == count,
        lambda: f"actors are {namespace.job_status('upgraded')['actors']}, wanted {count}",
        LONG_SECONDS,
        pause,
    )
