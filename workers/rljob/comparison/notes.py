"""What a reader of a comparison has to mind, a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rljob.comparison.estimates import CONFIDENCE_PERCENT
from rljob.comparison.group import Group
from rljob.comparison.grouping import differing, grouped, values_in_words
from rljob.comparison.judged_run import JudgedRun, Target
from rljob.sources import CODE

ENOUGH_RUNS: Final = 8
COVERED_PERCENT: Final = {2: (47, 51), 3: (70, 75), 4: (82, 88), 5: (85, 90), 6: (85, 91), 7: (89, 91)}
"""Runs a group -> how often such an interval of the interquartile mean holds the true value, in percent: where two thirds of
the runs solve the task and the others do not, and where scores are normal (`python -m benchmarks.comparison --coverage`)."""
_EXAMPLES = 3


def notes_on(groups: Sequence[Group], mixed: Sequence[str], targets: Sequence[Target]) -> Iterator[str]:
    """Notes on groups judged by ``targets``. mixed: settings that may differ within a group."""
    runs = [run for group in groups for run in group.runs]
    yield from _few(groups)
    for group in groups:
        for path in mixed:
            if len(grouped(group.runs, [path])) > 1:
                yield f"{group.name} mixes runs with {path} {values_in_words(group.runs, path)}."
        seeds = Counter(str(run.seed) for run in group.runs if run.seed is not None)
        if twice := [seed for seed, count in seeds.items() if count > 1]:
            yield f"{group.name} has several runs of seed {', '.join(twice)}, which may be more alike than others."
    if without := [run for run in runs if run.score is None]:
        yield f"Without a verdict, and in no mean: {_named(without)}."
    if going_on := [run for run in runs if not run.ended]:
        yield f"Without an outcome, so that their newest verdict is not their last one: {_named(going_on)}."
    if given_up := [run for run in runs if run.given_up]:
        yield (
            f"The newest evaluation was given up early, as the target was out of its reach, and counts with the games that had "
            f"ended by then, the shorter ones first: {_named(given_up)}."
        )
    if any(group.solved for group in groups) and any(run.targets for run in runs):
        yield "A run ends with the verdict that reaches its target: what it took to get there tells more than the verdict itself."
    yield from _edited(runs)
    yield from _machines(runs)
    for run in runs:
        if run.unreadable_lines:
            yield f"{run.path}: {run.unreadable_lines} lines of metrics.jsonl can't be read and are left out."


def _few(groups: Sequence[Group]) -> Iterator[str]:
    by_count: dict[int, list[str]] = {}
    for group in groups:
        by_count.setdefault(len(group.scores), []).append(group.name)
    for count, names in sorted(by_count.items()):
        if 0 < count < ENOUGH_RUNS:
            worth = (
                "a single run has no interval"
                if count == 1
                else f"with {count}, a {CONFIDENCE_PERCENT} % interval holds the true value only "
                f"{COVERED_PERCENT[count][0]} to {COVERED_PERCENT[count][1]} times of 100"
            )
            yield f"Fewer than {ENOUGH_RUNS} runs were judged in {', '.join(names)}: {worth}."


def _edited(runs: Sequence[JudgedRun]) -> Iterator[str]:
    """Which files of their user's are not the same in all runs."""
    if edited := [path for path in differing(runs) if path.startswith(f"{CODE}.")]:
        yield (
            f"The runs were started with different versions of {', '.join(edited)} (by digest; each run folder has its copy in "
            f"{CODE}/): returns mean the same only where both play the same game."
        )


def _machines(runs: Sequence[JudgedRun]) -> Iterator[str]:
    """Where seconds were measured, unless that is the same everywhere."""
    found = dict.fromkeys(words for run in runs if (words := _machine(run)))
    if len(found) > 1:
        yield f"Seconds are of different machines: {'; '.join(found)}."


def _machine(run: JudgedRun) -> str:
    machine = run.facts.get("machine")
    if not isinstance(machine, Mapping):
        return ""
    device = run.facts.get("device_name") or run.facts.get("device") or "unknown device"
    return f"{machine.get('processor')}, {machine.get('cores')} cores, learner on {device}"


def _named(runs: Sequence[JudgedRun]) -> str:
    shown = ", ".join(str(run.path) for run in runs[:_EXAMPLES])
    return f"{shown} and {len(runs) - _EXAMPLES} more" if len(runs) > _EXAMPLES else shown
