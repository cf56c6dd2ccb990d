"""What was asked for and not seen yet holds a job still, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.kube.watch.expectations import LAPSE_SECONDS, Expectations, Seen

from tests.support.clock import Clock

JOB, OTHER = "uid-of-job", "uid-of-other"


def pod(name: str, uid: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **metadata}}


@pytest.fixture
def clock() -> Clock:
    return Clock(50.0)


@pytest.fixture
def asked(clock: Clock) -> Expectations:
    return Expectations(clock)


def test_a_job_waits_until_each_of_its_pods_was_seen(asked: Expectations) -> None:
    assert asked.seen(JOB) is Seen.ALL
    for name in ("a", "b"):
        asked.create(JOB, name)
    for job, kind, seen, state in (
        (JOB, "ADDED", pod("a", "1"), Seen.WAITING),
        (OTHER, "ADDED", pod("b", "2"), Seen.WAITING),  # another job's pod
        (JOB, "MODIFIED", pod("b", "2"), Seen.ALL),
    ):
        asked.observe(job, kind, seen)
        assert (asked.seen(JOB), asked.seen(OTHER)) == (state, Seen.ALL)


def test_a_deletion_is_seen_when_the_pod_goes_or_is_gone(asked: Expectations) -> None:
    for uid in ("1", "2"):
        asked.delete(JOB, uid)
    for kind, seen, state in (
        ("MODIFIED", pod("a", "1"), Seen.WAITING),
        ("DELETED", pod("a", "1"), Seen.WAITING),
        ("MODIFIED", pod("b", "2", deletionTimestamp="2026-11-23T12:00:00Z"), Seen.ALL),
    ):
        asked.observe(JOB, kind, seen)
        assert asked.seen(JOB) is state


def test_a_pod_that_came_and_went_was_seen(asked: Expectations) -> None:
    asked.create(JOB, "a")
    asked.observe(JOB, "DELETED", pod("a", "1"))
    assert asked.seen(JOB) is Seen.ALL


def test_a_call_that_failed_is_not_waited_for(asked: Expectations) -> None:
    asked.create(JOB, "a")
    asked.delete(JOB, "1")
    asked.not_created(JOB, "a")
    assert asked.seen(JOB) is Seen.WAITING
    for _ in range(2):
        asked.not_deleted(JOB, "1")
    assert asked.seen(JOB) is Seen.ALL


def test_what_never_comes_lapses(asked: Expectations, clock: Clock) -> None:
    asked.create(JOB, "a")
    clock.now += 20.0
    asked.delete(JOB, "1")
    assert asked.lapses_in_seconds(JOB) == LAPSE_SECONDS - 20.0
    clock.now += LAPSE_SECONDS - 20.0
    assert (asked.seen(JOB), asked.lapses_in_seconds(JOB)) == (Seen.LAPSED, 0.0)
    asked.observe(JOB, "ADDED", pod("a", "2"))
    assert asked.seen(JOB) is Seen.WAITING, "the deletion was asked for later"
    asked.forget(JOB)
    assert (asked.seen(JOB), asked.lapses_in_seconds(JOB)) == (Seen.ALL, 0.0)
