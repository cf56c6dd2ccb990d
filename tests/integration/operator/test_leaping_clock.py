"""A real run under a wall clock that jumps forth and back, as when a laptop wakes up or a time server sets it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api import read_manifest
from rljob.api.timestamps import rfc3339
from rljob_operator.core.decision import End
from rljob_operator.core.desired import CHECKPOINT_ANNOTATION
from rljob_operator.core.turn import Turn
from rljob_operator.local.job_view import running_members
from rljob_operator.local.launch import Launcher
from rljob_operator.local.loop import Interrupt, run_job
from rljob_operator.local.run_folder import prepare
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.local.stored_run import StoredRun
from rljob_operator.local.substrate import LocalSubstrate

from tests.support.local_run import ENDLESS
from tests.support.paths import EXAMPLES

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
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

    def seen_updates(turn: Turn) -> int:
        return turn.observed.learner.updates if turn.observed.learner is not None else 0

    def trains(turn: Turn, beyond: int) -> bool:
        return turn.decision.state == "Running" and seen_updates(turn) > beyond

    def saved(turn: Turn) -> bool:
        asked = turn.decision.status.controller.checkpoint_request
        return asked is not None and asked.done

    steps: list[tuple[Callable[[Turn], bool], Callable[[], object] | float]] = [
        (lambda turn: trains(turn, 50), 8 * HOUR),
        (lambda turn: trains(turn, updates + 50), lambda: store.edit(request)),
        (saved, -9 * HOUR),
        (lambda turn: trains(turn, updates + 50), lambda: store.edit(request)),
        (saved, interrupt.set),
        (lambda turn: "learner" in turn.decision.drain, 8 * HOUR),
    ]
    updates = 0

    def report(turn: Turn) -> None:
        nonlocal ahead, updates
        assert not turn.decision.status.failures
        assert turn.elapsed_seconds < 240, f"{len(steps)} steps to go, {turn.decision.status}"
        if steps and steps[0][0](turn):
            _, act = steps.pop(0)
            updates = seen_updates(turn)
            if callable(act):
                act()
            else:
                ahead += act

    substrate = LocalSubstrate(tmp_path, store.effective_path, stored.desired().job, 1, 2, Launcher(), wall)
    try:
        decision = run_job(stored, substrate, stored.status, interrupt=interrupt, report=report, clock=wall)
    finally:
        substrate.close(kill=True)
    assert steps == []
    assert decision.outcome is not None
    assert decision.outcome.end is End.INTERRUPTED
    assert decision.status.active_seconds < HOUR, "what leapt is not time"
    assert "written and verified" in (tmp_path / "logs" / "learner.log").read_text(), "it had its time to leave"
    assert running_members(tmp_path) == {}
