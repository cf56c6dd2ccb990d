"""`compare`: groups of runs with what their verdicts are worth, what tells the groups apart, and what to mind."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from rljob.api import ManifestError
from rljob.comparison.estimates import Estimate, improvement
from rljob.comparison.experiment_runs import EXPERIMENT_FILE, runs_of
from rljob.comparison.group import Group, group_of, letters
from rljob.comparison.grouping import (
    agreed_targets,
    differing,
    grouped,
    named_settings,
    refuse_what_can_not_be_compared,
    values_in_words,
)
from rljob.comparison.judged_run import JudgedRun, Target, read_judged_run
from rljob.comparison.notes import notes_on
from rljob.errors import UsageError
from rljob.sources import user_path

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
        raise UsageError(f"{runs[0].path}: one run has nothing to be compared with; `rljob report` shows it by itself")
    refuse_what_can_not_be_compared(runs)
    if all(run.score is None for run in runs):
        raise UsageError("none of the runs has been judged yet; their first verdict has to be there to compare them")
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
