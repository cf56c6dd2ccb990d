"""A run in miniature, one stage of it made slow at a time: the report must point at that stage.

Real threads, real stage clocks, a real samples-per-insert limiter with credits and a bounded queue; only the work in
each stage is a pause of a chosen length. What the clocks measured goes the whole way: recorder, run folder, report.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rljob.telemetry.bottleneck import Kind
from rljob.telemetry.clock import StageClock
from rljob.telemetry.recorder import Recorder, read_records
from rljob.telemetry.report import judge, write_report

NORMAL = {"env": 0.001, "infer": 0.001, "send": 0.0002, "sample": 0.0005, "deliver": 0.0002, "update": 0.0025}
SLOW_SECONDS = 0.02
BUFFER = 8
"""Batches that the limiter lets either side run ahead."""


class Pipeline:
    """One actor, one replay service and one learner, each a thread; one insert allows one batch."""

    def __init__(self, pauses: Mapping[str, float]) -> None:
        self.pauses = pauses
        self.stop = threading.Event()
        self.lock = threading.Condition()
        self.surplus = 0  # inserts - batches handed out
        self.travelling: list[float] = []  # when each batch under way arrives
        self.requested = 0
        self.updates = 0
        self.clocks = {
            "actor": StageClock(("env", "infer", "send", "blocked")),
            "replay": StageClock(("idle", "sample")),
            "learner": StageClock(("wait", "update")),
        }

    def run(self, seconds: float) -> None:
        threads = [threading.Thread(target=role) for role in (self._act, self._serve, self._learn)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.stop.set()
        with self.lock:
            self.lock.notify_all()
        for thread in threads:
            thread.join()

    def status(self) -> dict[str, Any]:
        actor, learner = self.clocks["actor"].fractions(), self.clocks["learner"].fractions()
        return {
            "role": "learner",
            "state": "Training",
            "updates": self.updates,
            "raw_frames_total": self.updates * 4,
            "queue_depth_batches": max(0, self.surplus),
            "queue_bound_batches": BUFFER,
            "learner_wait_fraction": learner["wait"],
            "actors_blocked_fraction": actor["blocked"],
            "actors": [{"state": "Running"}],
            "stages": {role: clock.seconds() for role, clock in self.clocks.items()},
        }

    def _act(self) -> None:
        clock = self.clocks["actor"]
        while not self.stop.is_set():
            for stage in ("env", "infer", "send"):
                clock.enter(stage)
                time.sleep(self.pauses[stage])
            clock.enter("blocked")
            with self.lock:
                self.lock.wait_for(lambda: self.surplus < BUFFER or self.stop.is_set())
                if self.stop.is_set():  # whoever lets go now was not let in, and must not count
                    break
                self.surplus += 1
                self.lock.notify_all()

    def _serve(self) -> None:
        clock = self.clocks["replay"]
        while not self.stop.is_set():
            clock.enter("idle")
            with self.lock:
                self.lock.wait_for(lambda: (self.surplus > 0 and self.requested > 0) or self.stop.is_set())
                if self.stop.is_set():
                    break
                self.requested -= 1
            clock.enter("sample")
            time.sleep(self.pauses["sample"])
            with self.lock:
                self.surplus -= 1
                self.travelling.append(time.monotonic() + self.pauses["deliver"])
                self.lock.notify_all()

    def _learn(self) -> None:
        clock = self.clocks["learner"]
        while not self.stop.is_set():
            clock.enter("wait")
            with self.lock:
                self.requested += 1
                self.lock.notify_all()
                self.lock.wait_for(lambda: bool(self.travelling) or self.stop.is_set())
                arrives = self.travelling.pop(0) if self.travelling else 0.0
            time.sleep(max(0.0, arrives - time.monotonic()))
            clock.enter("update")
            time.sleep(self.pauses["update"])
            self.updates += 1


@pytest.mark.parametrize(
    ("slow", "kinds"),
    [
        ("env", {Kind.EnvironmentTooSlow}),
        ("infer", {Kind.InferenceTooSlow}),
        ("send", {Kind.TransportTooSlow}),
        ("sample", {Kind.ReplayTooSlow}),
        ("deliver", {Kind.TransportTooSlow, Kind.ReplayTooSlow}),
        ("update", {Kind.LearnerTooSlow}),
    ],
)
@pytest.mark.timeout(30)
def test_the_report_points_at_the_slow_stage(tmp_path: Path, slow: str, kinds: set[Kind]) -> None:
    # A busy machine adds up to tens of milliseconds to every pause. What is measured again is slower than that.
    for factor in (1, 4, 16):
        folder = tmp_path / str(factor)
        folder.mkdir()
        pipeline = Pipeline({**NORMAL, slow: SLOW_SECONDS * factor})
        with Recorder(folder) as recorder:
            pipeline.run(1.5 * math.sqrt(factor))
            recorder.record_status(pipeline.status())
        records = [record for record in read_records(folder / "metrics.jsonl") if "kind" not in record]
        verdict = judge(records)
        if verdict.kind in kinds:
            break
    assert verdict.kind in kinds, verdict.sentence
    assert verdict.sentence.split(":")[0] in write_report(folder).read_text()
