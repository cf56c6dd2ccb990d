"""Run folders as `rljob run` leaves them, with the job, the record and the end of a run, written by what writes them there."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rljob.api import dump_manifest, load_manifest
from rljob.telemetry.recorder import Recorder

from tests.support.clock import Clock
from tests.support.paths import ROOT

PPO = ROOT / "manifests" / "examples" / "cartpole-ppo.yaml"
SECONDS_A_RECORD = 2.0
FRAMES_A_RECORD = 1_000


def judged_run(
    folder: Path,
    returns: Sequence[float],
    *,
    seed: int = 1,
    overrides: Sequence[str] = (),
    manifest: Path = PPO,
    evaluate_every: int = 10,
    given_up: Sequence[int] = (),
    began_unix: float | None = None,
    figures: dict[str, float] | None = None,
    ended: bool = True,
) -> Path:
    """A run whose training return is each of ``returns`` in turn, two seconds and a thousand frames apart, and whose evaluations
    find the return of every ``evaluate_every``-th record. given_up: numbers of the evaluations that are, from 0. began_unix:
    of its first record, which tells runs apart; else it follows from the folder's name and the seed."""
    job = load_manifest(manifest, [f"seed={seed}", *overrides])
    folder.mkdir(parents=True)
    for name in ("job.yaml", "job-effective.yaml"):
        (folder / name).write_text(dump_manifest(job))
    began = 1.7e9 + sum(folder.name.encode()) * 1_000 + seed if began_unix is None else began_unix
    clock = Clock(began)
    with Recorder(folder, wall=clock, monotonic=clock) as recorder:
        for at, value in enumerate(returns, 1):
            clock.now += SECONDS_A_RECORD
            frames = at * FRAMES_A_RECORD
            recorder.record({**(figures or {}), "mean_return": value, "games": 20.0}, frames, at, state="Training")
            if at % evaluate_every == 0:
                number = at // evaluate_every - 1
                finished = number not in given_up
                verdict: dict[str, Any] = {
                    "version": at, "updates": at, "raw_frames": frames, "mean": value, "standard_error": 0.5,
                    "episodes": job.spec.evaluator.episodes if finished else 20, "seconds": 1.0, "finished": finished,
                }  # fmt: skip
                recorder.record_evaluation(verdict)
    if ended:
        (folder / "outcome.json").write_text(json.dumps({"state": "Complete", "seconds": clock.now - began}))
    return folder
