"""The profile: it waits for work, records for its time and no longer, and leaves a trace and a table behind."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rljob.telemetry.profile import Profile


class Loop:
    """A loop whose time is a number."""

    def __init__(self, run_dir: Path) -> None:
        self.now, self.working = 0.0, False
        self.profile = Profile(
            run_dir, "learner", lambda: self.working, after_seconds=2, seconds=1, clock=lambda: self.now
        )

    def turn(self, until: float, size: int) -> None:
        while self.now < until:
            self.profile()
            torch.ones(size, size) @ torch.ones(size, size)
            self.now += 0.25


def test_it_records_its_time_and_nothing_before_or_after(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.turn(5, 3)
    assert not (tmp_path / "profiles").exists(), "there was no work yet"
    loop.working = True
    loop.turn(12, 4)
    loop.profile.close()
    text = (tmp_path / "profiles" / "learner.txt").read_text()
    assert "aten::mm" in text
    trace = tmp_path / "profiles" / "learner.trace.json"
    events = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert events.count("aten::mm") == 4, "one second in turns of a quarter"


def test_a_loop_that_ends_early_leaves_what_there_is(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.working = True
    loop.turn(2.6, 4)
    loop.profile.close()
    assert "aten::mm" in (tmp_path / "profiles" / "learner.txt").read_text()


def test_a_loop_that_never_worked_leaves_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.turn(3, 4)
    loop.profile.close()
    assert list(tmp_path.iterdir()) == []
