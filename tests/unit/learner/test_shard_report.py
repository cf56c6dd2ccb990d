"""What a shard that is gone, or came back, counts for in the sums over all shards."""

from __future__ import annotations

import pytest
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.shard_report import ShardReport
from rljob.learner.status import actors, replay_summary


def status(inserted: int, state: str = "serving", age_seconds: float = 0.2) -> ShardStatus:
    actor = {"name": "actor-0", "age_seconds": age_seconds, "state": "Running"}
    figures = {"items": 10, "capacity": 100, "queue_depth_batches": 3.0, "queue_bound_batches": 8.0, "durable": True}
    counts = {"inserted_total": inserted, "steps_total": inserted}
    return ShardStatus.from_document({"state": state, **counts, **figures, "actors": [actor]})


def said(report: ShardReport, now: float = 0.0, *, gone: bool = False) -> ShardStatus:
    return report.status(now, gone=gone)


def inserted(report: ShardReport) -> int:
    return said(report).inserted_total


def test_a_shard_that_is_gone_has_totals_and_no_figures_of_the_moment() -> None:
    dead, live = ShardReport(), ShardReport()
    assert dead.status(0.0, gone=True) is None
    dead.heard(status(500), 10.0)
    live.heard(status(300, age_seconds=4.0), 40.0)
    shards = [said(dead, 40.0, gone=True), said(live, 40.0)]
    assert (sum(shard.inserted_total for shard in shards), replay_summary(shards).items) == (800, 10)
    (actor,) = actors(shards)
    assert actor.age_seconds == pytest.approx(4.0), "the last words of the dead one are thirty seconds old"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([0, 40, 90], [500, 540, 590]),  # begins from nothing
        ([495, 510], [500, 515]),  # its log was some chunks behind what it had said
        ([520], [520]),  # its log was ahead of it
    ],
)
def test_totals_go_on_over_a_restart_and_never_fall(after: list[int], expected: list[int]) -> None:
    report = ShardReport()
    report.heard(status(500), 0.0)
    report.heard(status(0, state="warming"), 1.0)
    assert inserted(report) == 500, "it has not read yet from where it goes on"
    seen = []
    for count in after:
        report.heard(status(count), 2.0)
        seen.append(inserted(report))
    assert seen == expected


def test_what_every_shard_counts_of_the_whole_run_is_not_added_to_itself() -> None:
    report = ShardReport()
    for steps in (500, 0, 480, 530):
        report.heard(status(steps), 0.0)
    assert said(report).steps_total == 530
