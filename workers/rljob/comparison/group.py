"""Runs that repeat one another: groups by the settings that differ, and what must not differ.

Of each group: how many reached the target and when, and what their verdicts are worth.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rljob.api.document import in_one_line
from rljob.api.live import UNLEARNED, below_any
from rljob.api.problems import nearest
from rljob.comparison.estimates import Estimate, iqm_estimate, mean_estimate
from rljob.comparison.judged_run import JudgedRun, Target
from rljob.errors import UsageError
from rljob.sources import CODE
from rljob.telemetry.flat_figures import number


@dataclass(frozen=True, slots=True)
class ToTarget:
    """What a run took until its verdict reached the target; infinite where none has."""

    raw_frames: float = math.inf
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that repeat one another.

    Attributes:
        name: a letter, in the order of the groups.
        settings: what tells the groups apart, by path, in words.
        scores: the verdicts of those runs that have one.
        iqm, mean: of these; None where there is none yet.
        to_target: what each run took to the target; empty where there is no target.
    """

    name: str
    settings: Mapping[str, str]
    runs: tuple[JudgedRun, ...]
    scores: tuple[float, ...]
    iqm: Estimate | None
    mean: Estimate | None
    to_target: tuple[ToTarget, ...]

    @property
    def solved(self) -> int:
        """How many runs reached the target."""
        return sum(math.isfinite(each.seconds) for each in self.to_target)

    @property
    def median_to_target(self) -> ToTarget:
        """What half of the runs took at most; infinite where fewer have reached the target."""
        if not self.to_target:
            return ToTarget()
        return ToTarget(
            median(each.raw_frames for each in self.to_target), median(each.seconds for each in self.to_target)
        )

    @property
    def words(self) -> str:
        """Its settings on one line."""
        return ", ".join(f"{path} {value}" for path, value in self.settings.items()) or "all settings the same"


def group_of(name: str, settings: Mapping[str, str], runs: Sequence[JudgedRun], targets: Sequence[Target]) -> Group:
    """The group of ``runs``, judged by ``targets``, any of which counts."""
    scores = tuple(run.score for run in runs if run.score is not None)
    return Group(
        name=name,
        settings=settings,
        runs=tuple(runs),
        scores=scores,
        iqm=iqm_estimate(scores) if scores else None,
        mean=mean_estimate(scores) if scores else None,
        to_target=tuple(_to_target(run, targets) for run in runs) if targets else (),
    )


def letters(position: int) -> str:
    """A, B, ... Z, AA, AB and so on, from position 0."""
    rest, last = divmod(position, 26)
    return f"{letters(rest - 1) if rest else ''}{chr(ord('A') + last)}"


def _to_target(run: JudgedRun, targets: Sequence[Target]) -> ToTarget:
    if (record := run.reached(targets)) is None:
        return ToTarget()
    return ToTarget(number(record.get("raw_frames")) or 0.0, number(record.get("elapsed_seconds")) or 0.0)


ABSENT: Final = "unset"
_NOT_WHAT_IS_COMPARED: Final = ("metadata", "preset", "presetWithout", "seed", *UNLEARNED)
"""What a run is called, what its settings were made from, its seed, and those that change nothing of what is learned."""


def differing(runs: Sequence[JudgedRun]) -> list[str]:
    """The settings that tell ``runs`` apart, seeds left out.

    One that a run lacks differs only from runs of the same algorithm that have it, and a parameter of the algorithm only between
    such runs: which there are, and their defaults, follow from its type, which differs already. Which of its user's files a run
    has a copy of differs from no run without.
    """
    types = dict.fromkeys(run.settings.get("algorithm.type") for run in runs)
    of_one = [[run for run in runs if run.settings.get("algorithm.type") == type_] for type_ in types]

    def differs(path: str) -> bool:
        having = [run for run in runs if path in run.settings]
        among = [having] if path.startswith(f"{CODE}.") else [having, *of_one]
        among = of_one if path.startswith("algorithm.") and path != "algorithm.type" else among
        return any(len({_value(run, path) for run in some}) > 1 for some in among)

    paths = dict.fromkeys(path for run in runs for path in run.settings)
    return [path for path in paths if not below_any(path, _NOT_WHAT_IS_COMPARED) and differs(path)]


def grouped(runs: Sequence[JudgedRun], by: Sequence[str]) -> list[tuple[JudgedRun, ...]]:
    """The runs with the same settings at the paths ``by``."""
    found: dict[tuple[str, ...], list[JudgedRun]] = {}
    for run in runs:
        found.setdefault(tuple(_value(run, path) for path in by), []).append(run)
    return [tuple(group) for group in found.values()]


def named_settings(runs: Sequence[JudgedRun], by: Sequence[str]) -> list[str]:
    """The paths of settings that ``--by`` names, of a section all those in it. Raises UsageError for one that no run has."""
    known = list(dict.fromkeys(path for run in runs for path in run.settings))
    found: list[str] = []
    for asked in (text.strip().removeprefix("spec.") for text in by):
        below = [path for path in known if below_any(path, (asked,))]
        if not below:
            meant = nearest(asked, known)
            hint = f"did you mean {meant}?" if meant else "`rljob explain` names the settings that there are"
            raise UsageError(f"--by {asked}: no run has this setting; {hint}")
        found += below
    return found


def values_in_words(runs: Sequence[JudgedRun], path: str) -> str:
    """The value that a group has at ``path``; several, where its runs differ."""
    values = {_value(run, path): run.settings.get(path, ABSENT) for run in runs}
    return " or ".join(in_one_line(values[each]) for each in sorted(values))


def refuse_what_can_not_be_compared(runs: Sequence[JudgedRun]) -> None:
    """Raises UsageError where the runs are judged in different environments, or by verdicts of different length."""
    _agreed(
        runs,
        lambda run: in_one_line({part: value for part, value in run.judged_in.items() if value not in (None, {})}),
        "the runs are judged in different environments, whose returns cannot be compared; if only training should "
        "differ, set evaluator.environment to judge all in one",
    )
    _agreed(
        runs,
        lambda run: f"{run.settings.get('evaluator.episodes')} games",
        "the runs are judged by verdicts of different length; compare those of one evaluator.episodes",
    )


def agreed_targets(runs: Sequence[JudgedRun]) -> tuple[Target, ...]:
    """The targets of those runs that have any. Raises UsageError where they differ."""
    aiming = [run for run in runs if run.targets]
    _agreed(
        aiming,
        lambda run: " or ".join(map(str, run.targets)),
        "the runs have different targets; say with --target which return counts as solved for all",
    )
    return aiming[0].targets if aiming else ()


def _agreed(runs: Sequence[JudgedRun], what: Callable[[JudgedRun], str], problem: str) -> None:
    examples: dict[str, list[JudgedRun]] = {}
    for run in runs:
        examples.setdefault(what(run), []).append(run)
    if len(examples) > 1:
        each = (f"  {words}: {len(found)} of the runs, such as {found[0].path}" for words, found in examples.items())
        raise UsageError("\n".join([problem, *each]))


def _value(run: JudgedRun, path: str) -> str:
    """What tells values apart; a setting that a run lacks is told from all of them."""
    return json.dumps(run.settings[path], sort_keys=True) if path in run.settings else ""
