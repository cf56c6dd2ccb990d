"""A real run under a wall clock that leaps forth and back, as when a laptop wakes up or a time server sets it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import ENDLESS, EXAMPLES
from rljob.api import read_manifest
from rljob.api.timestamps import rfc3339
from rljob_operator.controller import Interrupt, Tick, run_job
from rljob_operator.local.launch import Launcher
from rljob_operator.local.run_folder import prepare
from rljob_operator.local.run_view import running_members
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.local.stored_run import StoredRun
from rljob_operator.local.substrate import LocalSubstrate
from rljob_operator.model import CHECKPOINT_ANNOTATION, End
from rljob_operator.wall_clock import WallClock

pytestmark = pytest.mark.timeout(300)
HOUR = 3600.0
DEADLINES = ("startupDeadlineSeconds=90", "progressDeadlineSeconds=90", "activeDeadlineSeconds=200")


def test_a_run_goes_through_leaps_of_the_clock(tmp_path: Path) -> None:
    overrides = [*ENDLESS[1::2], "spec.checkpoint.intervalSeconds=600", *(f"spec.{each}" for each in DEADLINES)]
    written = read_manifest(EXAMPLES / "cartpole-apex.yaml", overrides)
    prepare(tmp_path, resume=False)
    store = SpecStore(tmp_path)
    store.create(written)
    stored, interrupt, ahead = StoredRun(tmp_path), Interrupt(), 0.0

    def wall() -> float:
        return time.time() + ahead

    def request(document: dict[str, dict[str, object]]) -> None:
        document["metadata"]["annotations"] = {CHECKPOINT_ANNOTATION: rfc3339(wall())}

    def seen_updates(tick: Tick) -> int:
        return tick.observation.learner.updates if tick.observation.learner is not None else 0

    def trains(tick: Tick, beyond: int) -> bool:
        return tick.decision.state == "Running" and seen_updates(tick) > beyond

    def saved(tick: Tick) -> bool:
        asked = tick.decision.status.controller.checkpoint_request
        return asked is not None and asked.done

    steps: list[tuple[Callable[[Tick], bool], Callable[[], object] | float]] = [
        (lambda tick: trains(tick, 50), 8 * HOUR),
        (lambda tick: trains(tick, updates + 50), lambda: store.edit(request)),
        (saved, -9 * HOUR),
        (lambda tick: trains(tick, updates + 50), lambda: store.edit(request)),
        (saved, interrupt.set),
        (lambda tick: "learner" in tick.decision.drain, 8 * HOUR),
    ]
    updates = 0

    def report(tick: Tick) -> None:
        nonlocal ahead, updates
        assert not tick.decision.status.failures
        assert tick.elapsed_seconds < 240, f"{len(steps)} steps to go, {tick.decision.status}"
        if steps and steps[0][0](tick):
            _, act = steps.pop(0)
            updates = seen_updates(tick)
            if callable(act):
                act()
            else:
                ahead += act

    substrate = LocalSubstrate(tmp_path, store.effective_path, stored.wanted().job, 1, 2, Launcher(), WallClock(wall))
    try:
        decision = run_job(stored, substrate, stored.status, interrupt=interrupt, clock=WallClock(wall), report=report)
    finally:
        substrate.close(kill=True)
    assert steps == []
    assert decision.outcome is not None
    assert decision.outcome.end is End.INTERRUPTED
    assert decision.status.active_seconds < HOUR, "what leapt is not time"
    learner = json.loads((tmp_path / "roles" / "learner.process.json").read_text())
    assert learner["exit_code"] == 0, "it had its time to leave"
    assert running_members(tmp_path) == {}
