"""An experiment in figures of bounded size, for its status and for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rljob_operator.experiments.state import ExperimentState, Ranked

MOST_ROWS = 200
"""Trials that a summary lists. A Kubernetes object with every one of a thousand would be refused as too large."""
_LONGEST = 120
"""Characters of a trial's settings in a row."""


def summary(state: ExperimentState) -> dict[str, Any]:
    """Counts of runs by state, the end, and a row for each of the best trials; at most 100 kB."""
    counts = Counter(str(run.state) for run in state.runs.values())
    found: dict[str, Any] = {"trials": state.known.trials, "runs": dict(sorted(counts.items()))}
    if state.end is not None:
        found |= {"reason": state.end["reason"], "best": state.end["best"]}
    rows = [row(state, ranked) for ranked in state.ranking()[:MOST_ROWS]]
    return {**found, "rows": [each | {"set": each["set"][:_LONGEST]} for each in rows]}


def row(state: ExperimentState, ranked: Ranked) -> dict[str, Any]:
    """A trial in a line: its settings as text, what it has played, its score, its state."""
    first = ranked.runs[0]
    return {
        "trial": ranked.trial,
        "set": settings_in_words(state, ranked.trial),
        "seeds": len(ranked.runs),
        "rawFrames": first.raw_frames,
        "mean": round(ranked.mean, 4),
        "standardError": round(ranked.standard_error, 4),
        "state": str(first.state),
    }


def settings_in_words(state: ExperimentState, trial: int) -> str:
    """What a trial sets, each field by its last name: ``learningRate=0.001 entropyCost=0``."""
    return " ".join(f"{path.rpartition('.')[2]}={value}" for path, value in state.known.settings(trial).items())


def in_words(state: ExperimentState, entry: dict[str, Any]) -> str:
    """A line of the journal, which has been applied, for a terminal."""
    kind, where = entry["kind"], ""
    if "trial" in entry:
        where = f"trial {entry['trial']}" + (f" seed {entry['seed']}" if state.known.spec.seeds > 1 else "")
    if kind == "Start":
        return (
            f"{where} starts, to {entry['rawFrames']:,} raw frames: {settings_in_words(state, entry['trial'])}".rstrip(
                ": "
            )
        )
    if kind == "Score":
        of = f"{entry['mean']:.2f} +- {entry['standardError']:.2f}"
        return f"{where} reached {of} in {entry['episodes']} games, after {entry['rawFrames']:,} raw frames"
    if kind == "Promote":
        return f"{where} goes on to {entry['rawFrames']:,} raw frames: {_numbers(entry)}"
    if kind == "Prune":
        return f"{where} ends here: {_numbers(entry)}"
    if kind == "Fail":
        return f"{where} failed: {entry['why']}"
    if kind == "Verdict":
        return f"{where} judged anew: {entry['mean']:.2f} +- {entry['standardError']:.2f} in {entry['episodes']} games"
    if kind == "End":
        return f"the search ends ({entry['reason']})"
    return "the time of budget.seconds is over" if kind == "TimeUp" else "settings taken over"


def _numbers(entry: dict[str, Any]) -> str:
    return f"{entry['score']:.2f} of {entry['judged']} judged there; from {entry['bound']:.2f} on they go on"
