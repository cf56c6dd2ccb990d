"""What was asked for and not seen yet holds a job still, and not for ever."""

from __future__ import annotations

from typing import Any

from rljob_operator.kube.watch.expectations import LAPSE_SECONDS, Expectations, Seen

JOB, OTHER = "uid-of-job", "uid-of-other"


def pod(name: str, uid: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **metadata}}


class Clock:
    seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def test_a_job_waits_until_each_of_its_pods_was_seen() -> None:
    asked = Expectations(Clock())
    assert asked.seen(JOB) is Seen.ALL
    asked.create(JOB, "a")
    asked.create(JOB, "b")
    asked.observe(JOB, "ADDED", pod("a", "1"))
    assert (asked.seen(JOB), asked.seen(OTHER)) == (Seen.WAITING, Seen.ALL)
    asked.observe(OTHER, "ADDED", pod("b", "2"))
    assert asked.seen(JOB) is Seen.WAITING, "another job's pod"
    asked.observe(JOB, "MODIFIED", pod("b", "2"))
    assert asked.seen(JOB) is Seen.ALL


def test_a_deletion_is_seen_when_the_pod_goes_or_is_gone() -> None:
    asked = Expectations(Clock())
    asked.delete(JOB, "1")
    asked.delete(JOB, "2")
    asked.observe(JOB, "MODIFIED", pod("a", "1"))
    asked.observe(JOB, "DELETED", pod("a", "1"))
    assert asked.seen(JOB) is Seen.WAITING
    asked.observe(JOB, "MODIFIED", pod("b", "2", deletionTimestamp="2026-11-23T12:00:00Z"))
    assert asked.seen(JOB) is Seen.ALL


def test_a_pod_that_came_and_went_was_seen() -> None:
    asked = Expectations(Clock())
    asked.create(JOB, "a")
    asked.observe(JOB, "DELETED", pod("a", "1"))
    assert asked.seen(JOB) is Seen.ALL


def test_a_call_that_failed_is_not_waited_for() -> None:
    asked = Expectations(Clock())
    asked.create(JOB, "a")
    asked.delete(JOB, "1")
    asked.not_created(JOB, "a")
    assert asked.seen(JOB) is Seen.WAITING
    asked.not_deleted(JOB, "1")
    asked.not_deleted(JOB, "1")
    assert asked.seen(JOB) is Seen.ALL


def test_what_never_comes_lapses() -> None:
    clock = Clock()
    asked = Expectations(clock)
    asked.create(JOB, "a")
    clock.seconds += 20.0
    asked.delete(JOB, "1")
    assert asked.lapses_in_seconds(JOB) == LAPSE_SECONDS - 20.0
    clock.seconds += LAPSE_SECONDS - 20.0
    assert (asked.seen(JOB), asked.lapses_in_seconds(JOB)) == (Seen.LAPSED, 0.0)
    asked.observe(JOB, "ADDED", pod("a", "2"))
    assert asked.seen(JOB) is Seen.WAITING, "the deletion was asked for later"
    asked.forget(JOB)
    assert (asked.seen(JOB), asked.lapses_in_seconds(JOB)) == (Seen.ALL, 0.0)
