"""`compare`: groups of runs with what their verdicts are worth, what tells the groups apart, and what to mind.

What a reader of a comparison has to mind, a sentence each.
"""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from rljob.api import ManifestError
from rljob.comparison.estimates import CONFIDENCE_PERCENT, Estimate, improvement
from rljob.comparison.group import (
    Group,
    agreed_targets,
    differing,
    group_of,
    grouped,
    letters,
    named_settings,
    refuse_what_can_not_be_compared,
    values_in_words,
)
from rljob.comparison.judged_run import EXPERIMENT_FILE, JudgedRun, Target, read_judged_run, runs_of
from rljob.errors import UsageError
from rljob.sources import CODE, user_path

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
        yield f"Left out of all means, without a verdict: {_named(without)}."
    if going_on := [run for run in runs if not run.ended]:
        yield f"Still running, so their newest verdict is not their last: {_named(going_on)}."
    if given_up := [run for run in runs if run.given_up]:
        yield (
            f"The newest evaluation was given up early, below its target, and counts with its first games: {_named(given_up)}."
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


MOST_PAIRED: Final = 6
"""Groups of which all pairs are compared; of more, the first with each of the others."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The probability that a run of the group ``better`` has a higher verdict than one of ``than``."""

    better: str
    than: str
    probability: Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Groups, those with the higher interquartile means first, and what to mind about them, a sentence each."""

    environment: str
    games: int
    targets: tuple[Target, ...]
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def compare(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    by: str | Sequence[str] = (),
    target: float | None = None,
) -> Comparison:
    """Compare run folders.

    Args:
        paths: folders, or handles, of runs of one environment, two at least, or of experiments, which stand for their runs; a
            run that is named twice, or lies there as a copy, counts once. An experiment may stand there by itself.
        by: settings (``algorithm.learningRate``) or sections whose values make the groups; none: all that differ.
        target: the mean return that counts as solved, in the place of the jobs' own.

    Raises:
        UsageError: one line for each folder that is no run, or why the runs can't be compared.
    """
    if target is not None and not math.isfinite(target):
        raise UsageError(f"--target {target}: allowed: a number")
    runs, notes = _read([paths] if isinstance(paths, str | os.PathLike) else paths)
    if not runs:
        raise UsageError("no runs are given; give two at least, or an experiment")
    if len(runs) < 2:
        raise UsageError(f"{runs[0].path}: give two runs to compare; `rljob report` shows one")
    refuse_what_can_not_be_compared(runs)
    if all(run.score is None for run in runs):
        raise UsageError("none of the runs has been judged yet; wait for their first verdicts")
    targets = agreed_targets(runs) if target is None else (Target("mean", target),)
    told = differing(runs)
    making = named_settings(runs, [by] if isinstance(by, str) else by) if by else told
    groups = _groups(runs, making, told, targets)
    paired = combinations(groups, 2) if len(groups) <= MOST_PAIRED else ((groups[0], each) for each in groups[1:])
    return Comparison(
        environment=str(runs[0].judged_in["id"]),
        games=int(runs[0].settings.get("evaluator.episodes", 0)),
        targets=targets,
        groups=groups,
        pairs=tuple(
            Pair(one.name, other.name, improvement(one.scores, other.scores))
            for one, other in paired
            if one.scores and other.scores
        ),
        notes=(*notes, *notes_on(groups, [path for path in told if path not in making], targets)),
    )


def _groups(
    runs: Sequence[JudgedRun], making: Sequence[str], told: Sequence[str], targets: Sequence[Target]
) -> tuple[Group, ...]:
    """The groups in their order, each with all settings that differ anywhere."""
    shown = [path for path in dict.fromkeys([*making, *told]) if len(grouped(runs, [path])) > 1]
    found = [
        group_of("", {path: values_in_words(each, path) for path in shown}, each, targets)
        for each in grouped(runs, making)
    ]
    found.sort(key=lambda group: (-group.iqm.value if group.iqm else math.inf, group.words))
    return tuple(replace(group, name=letters(position)) for position, group in enumerate(found))


def _read(paths: Sequence[str | os.PathLike[str]]) -> tuple[list[JudgedRun], list[str]]:
    """The runs in the order of their paths, each once, and which were left out for that."""
    runs: list[JudgedRun] = []
    known: dict[object, Path] = {}
    problems, notes = [], []
    for path in sorted(map(user_path, paths)):
        try:
            found, note = runs_of(path) if (path / EXPERIMENT_FILE).is_file() else ([read_judged_run(path)], "")
        except (UsageError, ManifestError) as error:
            problems.append(str(error))
            continue
        notes += [note] if note else []
        for run in found:
            identities = [each for each in (run.path.resolve(), run.began_unix) if each is not None]
            same = [known[each] for each in identities if each in known]
            if same:
                notes.append(f"{run.path} is the same run as {same[0]}, and counts once.")
            else:
                runs.append(run)
                known |= dict.fromkeys(identities, run.path)
    if problems:
        raise UsageError("\n".join(problems))
    return runs, notes
