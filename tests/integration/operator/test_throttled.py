"""A run of which one role is made slow: the sentence that names it, and actors that follow their learner."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rljob.telemetry.bottleneck import Kind
from rljob.telemetry.recorder import read_records
from rljob.telemetry.report import judge, write_report
from rljob_operator.core.autoscaling.model import DECISION_SECONDS

from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun, assert_nothing_was_lost
from tests.support.paths import SLOWED
from tests.support.slowed.sitecustomize import LEARNER_DELAY_FILE, REPLAY_DELAY_FILE

THROTTLES = {"learner": LEARNER_DELAY_FILE, "actors": slow_game.DELAY_FILE, "replay": REPLAY_DELAY_FILE}
SAMPLES_PER_INSERT, BATCH_SIZE = 4, 32
"""What slow_game.yaml has."""
SLOWER = 10
"""The slow role holds the others to this part of what all of them reached before: far enough below that they have to wait, also
where other work takes most of the machine meanwhile."""
LONGEST_REPLAY_TURN_SECONDS = 3.0
"""A shard that is silent for longer is given up by the learner, which is another thing than a slow one."""
MEASURED_RECORDS, SETTLING_RECORDS, JUDGED_RECORDS = 2, 3, 3
"""The first of the learner's figures, each over two seconds, are of a change of speed."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def figures(run: LocalRun) -> list[dict[str, Any]]:
    """The learner's records so far."""
    return [dict(record) for record in read_records(run.run_dir / "metrics.jsonl") if "kind" not in record]


def reached_updates_per_second(run: LocalRun) -> float:
    """What learner, actors and replay together reach on this machine now, while none of them is made slow."""
    first = len(figures(run)) - 1
    run.until(lambda: len(figures(run)) > first + MEASURED_RECORDS, 120, "figures of a run that nothing slows down")
    start, *_, end = figures(run)[first:]
    return float((end["updates"] - start["updates"]) / (end["elapsed_seconds"] - start["elapsed_seconds"]))


def test_it_names_the_role_that_is_slow(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    files = {role: tmp_path / f"{role}-delay" for role in THROTTLES}
    run = local_run(
        *ENDLESS,
        *("--set", "spec.autoscaling.mode=Disabled", "--set", "spec.environment.id=tests.support.slow_game:throttled"),
        *("--set", "spec.actors.replicas=1", "--set", "spec.actors.envsPerActor=4"),
        job=slow_game.JOB,
        environment=SLOWED | {THROTTLES[role]: str(file) for role, file in files.items()},
    )
    run.until_learning(200)
    slow_update_seconds = SLOWER / reached_updates_per_second(run)
    sentences = {}
    for role, delay_seconds, kinds in [
        ("learner", slow_update_seconds, {Kind.LearnerTooSlow}),
        # The one actor's environments are stepped one after the other, and each step is sampled so many times.
        ("actors", slow_update_seconds * SAMPLES_PER_INSERT / BATCH_SIZE, {Kind.EnvironmentTooSlow}),
        ("replay", min(slow_update_seconds, LONGEST_REPLAY_TURN_SECONDS), {Kind.ReplayTooSlow}),
    ]:
        files[role].write_text(str(delay_seconds))
        first = len(figures(run)) + SETTLING_RECORDS
        run.until(lambda last=first + JUDGED_RECORDS: len(figures(run)) >= last, 120, "figures of a throttled run")
        files[role].unlink()
        before, records = figures(run)[:first], figures(run)[first : first + JUDGED_RECORDS]
        for record in records:
            record["elapsed_seconds"] -= before[-1]["elapsed_seconds"]
        # The report of a run is about all of it; this one is of a run that was never anything else.
        (tmp_path / role).mkdir()
        (tmp_path / role / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        verdict = judge(records)
        sentences[role] = verdict.sentence
        assert verdict.kind in kinds, f"{role} is slow by {delay_seconds:.3f} s: {verdict}\n{records[-1]}"
        assert verdict.sentence.split(":")[0] in write_report(tmp_path / role).read_text()
    print(json.dumps(sentences, indent=2))
    assert run.interrupt() == 130


STAYS_SECONDS = 3 * DECISION_SECONDS
"""A number that three decisions have left where it was has settled."""
WINDOW_SECONDS = 30.0
PATIENCE_SECONDS = WINDOW_SECONDS + 150.0
"""How soon it settles is measured by benchmarks/recovery.py; here it only has to."""
FAST, SLOW = 0.06, 0.15
"""Seconds that are added to each update, far more than an update takes."""


def settled(run: LocalRun, wanted: Callable[[int], bool], why: str) -> int:
    """Wait until the desired number of actors is a ``wanted`` one and has stayed within one of it; answers the last."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    first, since = -1, time.monotonic()
    while True:
        assert run.process.poll() is None, run.output
        now, number = time.monotonic(), run.job_status.autoscaling.desired_replicas
        if not wanted(number) or abs(number - first) > 1:
            first, since = number, now
        elif now - since >= STAYS_SECONDS:
            return number
        assert now < deadline, f"{why}: it stands at {number}; {run.job_status.autoscaling.last_decision}"
        time.sleep(0.25)


def test_actors_follow_the_learner_both_ways(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    delay = tmp_path / "delay"
    delay.write_text(str(FAST))
    run = local_run(
        *("--max-actors", "6"),
        job=slow_game.JOB,
        environment=SLOWED | {LEARNER_DELAY_FILE: str(delay)},
        prelude=f"import rljob_operator.core.autoscaling.limits as limits; limits.STABILIZATION_SECONDS = {WINDOW_SECONDS}",
    )
    run.until(lambda: run.reason("ScalingActive") == "ValidMetricFound", 120, "a first decision")
    fast = settled(run, lambda number: number > 1, "several actors for a fast learner")
    delay.write_text(str(SLOW))
    slow = settled(run, lambda number: number < fast, f"fewer than {fast} for a slow one")
    delay.write_text(str(FAST))
    again = settled(run, lambda number: number > slow and abs(number - fast) <= 1, f"about {fast} again")
    print(f"{fast} actors, throttled {slow}, released {again}")
    assert run.interrupt() == 130
    left = [path.name.removesuffix(".final.json") for path in (run.run_dir / "roles").glob("actor-*.final.json")]
    assert_nothing_was_lost(run, *left)
