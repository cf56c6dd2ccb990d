"""The runs of an experiment as a comparison takes them: judged by the experiment, all after as many raw frames.

An experiment judges its trials in games that are the same for all, and ends some of them early. So the score of a run is the
experiment's own, and runs are compared where most is known of more than one: after the most raw frames at which at least two
were judged.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rljob.comparison.judged_run import JudgedRun, Record, read_judged_run
from rljob.errors import UsageError
from rljob.telemetry.flat_figures import number

JOURNAL_FILE: Final = "journal.jsonl"
EXPERIMENT_FILE: Final = "experiment.yaml"
_LENGTH: Final = "successPolicy.rawFrames"
"""How far a run was let to play, which says nothing of its settings."""


def runs_of(folder: Path) -> tuple[list[JudgedRun], str]:
    """The runs of the experiment in ``folder`` that can be compared, and after how many frames, in a sentence. Raises UsageError
    where no two were judged after as many frames, and where the journal or a run can't be read."""
    scores = _scores(folder / JOURNAL_FILE)
    counts = Counter(frames for of_run in scores.values() for frames in of_run)
    frames = max((frames for frames, runs in counts.items() if runs > 1), default=None)
    if frames is None:
        raise UsageError(f"{folder}: no two of its runs were judged after as many raw frames yet")
    found = [_judged(folder / name, of_run[frames]) for name, of_run in scores.items() if frames in of_run]
    rest = len(scores) - len(found)
    ended = f"; {rest} that ended before, failed or still play are left out" if rest else ""
    best, score = max(
        ((name, score) for name, of_run in scores.items() for score in of_run.values()),
        key=lambda each: each[1]["mean"],
    )
    kept = f" The best policy that was judged is {best}'s, {score['mean']:.2f} after {score['rawFrames']:,}."
    return (
        found,
        f"{folder}: {len(found)} runs by the experiment's own games, after {frames:,} raw frames{ended}.{kept}",
    )


def _scores(journal: Path) -> dict[str, dict[int, Record]]:
    """Each run that was started -> raw frames that it was to play -> its Score line there. A run that had reached its goal has
    that at all further ones, too."""
    asked: dict[str, int] = {}
    found: dict[str, dict[int, Record]] = {}
    experiment = ""
    try:
        for line in journal.read_bytes().rpartition(b"\n")[0].splitlines():
            entry = json.loads(line)
            kind = entry["kind"]
            if kind == "Settings":
                experiment = entry["experiment"]["metadata"]["name"]
            elif kind in ("Start", "Promote", "Score"):
                run = f"{experiment}-{entry['trial']}" + (f"-s{entry['seed']}" if entry["seed"] > 1 else "")
                asked[run] = asked[run] if kind == "Score" else entry["rawFrames"]
                found.setdefault(run, {}).update({asked[run]: entry} if kind == "Score" else {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{journal}: can't be read as an experiment's journal: {error!r}") from None
    for of_run in filter(None, found.values()):
        last = max(of_run)
        of_run |= {frames: of_run[last] for frames in asked.values() if frames > last and of_run[last]["solved"]}
    return found


def _judged(folder: Path, score: Record) -> JudgedRun:
    run = read_judged_run(folder)
    until = [point for point in run.points if (number(point.get("raw_frames")) or 0.0) <= score["rawFrames"]]
    verdict: dict[str, Any] = {
        "mean": score["mean"],
        "standard_error": score["standardError"],
        "episodes": score["episodes"],
        "raw_frames": score["rawFrames"],
        "elapsed_seconds": until[-1].get("elapsed_seconds") if until else None,
    }
    settings = {path: value for path, value in run.settings.items() if path != _LENGTH}
    return replace(run, evaluations=(verdict,), settings=settings)
