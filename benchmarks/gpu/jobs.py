"""Whole runs, as a user would start them, and what their records say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rljob.telemetry.recorder import read_records
from rljob.telemetry.report import judge, mean_figures

_LEAVING_SECONDS = 40.0
TINY_WARM_UP_SECONDS = 2.0
"""The warm-up of the tiny form of a step, which shows that it works and measures nothing."""


def never(found: Sequence[dict[str, Any]]) -> bool:
    """Ends no run."""
    return False


def run(
    job: Path,
    run_dir: Path,
    overrides: Sequence[str],
    seconds: float,
    on_look: Callable[[list[dict[str, Any]]], bool] = never,
) -> list[dict[str, Any]]:
    """One `rljob run` of at most ``seconds``; its records. ``on_look`` sees them every two seconds and ends the run by True; it
    sees them once more when the run has ended.

    Raises RuntimeError with the run's last lines where it recorded nothing.
    """
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    output = run_dir.parent / f"{run_dir.name}.txt"
    sets = [word for item in overrides for word in ("--set", item)]
    command = [sys.executable, "-m", "rljob_operator", "run", str(job), "--run-dir", str(run_dir), *sets]
    command += ["--max-seconds", str(seconds)]
    with output.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=os.environ.copy())
    asked = False
    try:
        deadline = time.monotonic() + seconds + _LEAVING_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5 if asked else 2.0)
            if not asked and on_look(records(run_dir)):
                process.send_signal(signal.SIGINT)
                asked = True
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_LEAVING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    found = records(run_dir)
    if not any("kind" not in record for record in found):
        raise RuntimeError("no record; it said: " + " | ".join(output.read_text(errors="replace").splitlines()[-5:]))
    on_look(found)
    return found


def records(run_dir: Path) -> list[dict[str, Any]]:
    """What a run has recorded so far."""
    file = run_dir / "metrics.jsonl"
    return read_records(file) if file.exists() else []


def learner_facts(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The device, its name and driver, and how it computes, as the run's report has them."""
    told: dict[str, Any] = {}
    for record in found:
        if record.get("kind") == "learner":
            told |= record
    names = ("device", "device_name", "device_memory_bytes", "driver", "precision", "compiled", "captured", "mirror")
    return {name: told[name] for name in names if name in told}


def steady(found: Sequence[dict[str, Any]], warm_up_seconds: float) -> dict[str, Any]:
    """Rates and means of a run from ``warm_up_seconds`` after its first update on: of updates, steps, the GPU's figures and the
    stages of learner and GPU; and what the report would name as its bottleneck."""
    points = [record for record in found if "kind" not in record and (record.get("updates") or 0) > 0]
    if not points:
        raise RuntimeError("not one update was made")
    first = points[0]["elapsed_seconds"] + warm_up_seconds
    window = [point for point in points if point["elapsed_seconds"] >= first]
    if len(window) < 2:
        raise RuntimeError("the run ended before its warm-up did")
    start, end = window[0], window[-1]
    seconds = end["elapsed_seconds"] - start["elapsed_seconds"]
    means = mean_figures(window)
    kept = ("gpu/", "stage/learner/", "stage/gpu/", "learner_wait_fraction", "actors_blocked_fraction")
    verdict = judge(window)
    return {
        "window_seconds": seconds,
        "updates_per_second": (end["updates"] - start["updates"]) / seconds,
        "steps_per_second": (end["steps_total"] - start["steps_total"]) / seconds,
        "bottleneck": verdict.sentence,
        "means": {name: float(f"{value:.4g}") for name, value in means.items() if name.startswith(kept)},
    }


def measured(found: Sequence[dict[str, Any]]) -> bool:
    """Whether the tiny form of a step has what ``steady`` needs: its run may end."""
    try:
        steady(found, TINY_WARM_UP_SECONDS)
    except RuntimeError:
        return False
    return True


def outcome(run_dir: Path) -> dict[str, Any]:
    """How the run ended; empty where it did not."""
    try:
        ended: dict[str, Any] = json.loads((run_dir / "outcome.json").read_text())
    except (OSError, ValueError):
        return {}
    return ended
