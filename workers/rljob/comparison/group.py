"""A group of runs that repeat one another: how many reached the target and when, and what their verdicts are worth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rljob.comparison.estimates import Estimate, iqm_estimate, mean_estimate
from rljob.comparison.judged_run import JudgedRun, Target
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
