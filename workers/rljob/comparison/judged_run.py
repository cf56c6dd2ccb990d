"""A run as a comparison sees it: its settings, its evaluations, its curve, how it ended, and when it reached a target.

An experiment judges its trials in games that are the same for all, and ends some of them early. So the score of such a run is the
experiment's own, and runs are compared where most is known of more than one: after the most raw frames at which at least two
were judged.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rljob.api.document import parse_document
from rljob.api.environment import judged_in
from rljob.api.presets import leaves
from rljob.errors import UsageError
from rljob.sources import CODE, sources_of, without_places
from rljob.telemetry.flat_figures import number, with_returns_to_go_by
from rljob.telemetry.recorder import EVALUATION, METRICS_FILE
from rljob.telemetry.run_folder import EFFECTIVE_FILE, MANIFEST_FILE, OUTCOME_FILE

CURVE_RECORDS: Final = 400
"""Records of figures that are read of a run, evenly over the file: twice the points of a curve, and soon read."""

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a run is to reach: a figure of its evaluations, its least value, and over how many in a row it is the mean."""

    figure: str
    value: float
    window_evaluations: int = 1

    def __str__(self) -> str:
        name = self.figure.removeprefix("episode/") if self.figure != "mean" else "mean return"
        row = f" over {self.window_evaluations} evaluations in a row" if self.window_evaluations > 1 else ""
        return f"{name} of at least {self.value:g}{row}"


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run folder.

    Attributes:
        settings: the job in force by paths as ``--set`` has them: ``{"algorithm.gamma": 0.99, "metadata.name": "pong"}``; and
            the digests of its user's files, ``{"code.env.py": "0a1b2c3d4e5f"}``.
        judged_in: what of its environment counts for a verdict.
        evaluations: those that have a mean, oldest first; the newest one's is the score of the run. points: records of figures
            with a training return to go by. facts: the last ``machine`` and ``learner`` records, merged.
        began_unix: when its first record was written, which tells runs apart; None without a record.
        ended: whether it has an outcome.
        unreadable_lines: lines of its record that are none, such as one cut short by a kill.
    """

    path: Path
    settings: Mapping[str, Any]
    judged_in: Mapping[str, Any]
    evaluations: tuple[Record, ...]
    points: tuple[Record, ...]
    facts: Record
    began_unix: float | None
    ended: bool
    unreadable_lines: int

    @property
    def score(self) -> float | None:
        """The mean return of the newest evaluation; None before there is one."""
        return number(self.evaluations[-1]["mean"]) if self.evaluations else None

    @property
    def given_up(self) -> bool:
        """Whether the newest evaluation was given up early, so that the score is of its first games."""
        return bool(self.evaluations) and not self.evaluations[-1].get("finished", True)

    @property
    def seed(self) -> Any:
        """The seed of its random numbers; None where that is not known."""
        return self.settings.get("seed")

    @property
    def targets(self) -> tuple[Target, ...]:
        """What its success policy asks of evaluations; the first that is met ends the run."""
        policy = "successPolicy."
        figures = {"targetReturn": "mean", "metric": f"episode/{self.settings.get(f'{policy}metric.name')}"}
        return tuple(
            Target(figure, value, int(self.settings.get(f"{policy}{section}.windowEvaluations", 1)))
            for section, figure in figures.items()
            if (value := number(self.settings.get(f"{policy}{section}.value"))) is not None
        )

    def reached(self, targets: Sequence[Target]) -> Record | None:
        """The first evaluation with which one of ``targets`` was met. One that was given up is no verdict and meets none."""
        full = [one for one in self.evaluations if one.get("finished", True)]
        return next((one for end, one in enumerate(full, 1) if any(_met(each, full[:end]) for each in targets)), None)


def read_judged_run(path: Path) -> JudgedRun:
    """Reads a run folder, of a run that goes on, too.

    Raises:
        UsageError: it is none, or of a run that never began.
    """
    if not path.is_dir():
        what = "not a folder" if path.exists() else "no such folder"
        raise UsageError(f"{path}: {what}; give folders of runs, as `rljob run` printed them")
    if not (path / EFFECTIVE_FILE).is_file():
        what = f"never started (no {EFFECTIVE_FILE})" if (path / MANIFEST_FILE).exists() else "not a run folder"
        raise UsageError(f"{path}: {what}; give folders of runs, as `rljob run` printed them")
    document = parse_document((path / EFFECTIVE_FILE).read_bytes(), str(path / EFFECTIVE_FILE))
    job = {name: node for name in ("spec", "metadata") if isinstance(node := document.get(name), Mapping)}
    records, unreadable = _read(path / METRICS_FILE)
    evaluations = (one for one in records if one.get("kind") == EVALUATION and number(one.get("mean")) is not None)
    points = with_returns_to_go_by([one for one in records if "kind" not in one])
    return JudgedRun(
        path=path,
        settings={path.removeprefix("spec."): without_places(value) for path, value in leaves(job)}
        | {f"{CODE}.{source.name}": source.digest for source in sources_of(path)},
        judged_in=without_places(judged_in(job.get("spec") or {})),
        evaluations=tuple(evaluations),
        points=tuple(one for one in points if number(one.get("mean_return")) is not None),
        facts={
            name: value
            for record in records
            if record.get("kind") not in (None, EVALUATION)
            for name, value in record.items()
        },
        began_unix=number(records[0].get("time_unix")) if records else None,
        ended=(path / OUTCOME_FILE).exists(),
        unreadable_lines=unreadable,
    )


def _met(target: Target, full: Sequence[Record]) -> bool:
    name = target.figure.removeprefix("episode/")
    whole = [one for one in full[-target.window_evaluations :] if name not in one.get("metric_games", ())]
    told = [value for one in whole if (value := number(one.get(target.figure))) is not None]
    return len(told) == target.window_evaluations and sum(told) / len(told) >= target.value


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Records with a kind, about ``CURVE_RECORDS`` of the others, and how many of the lines looked at are none.

    Lines are chosen before they are parsed: a record of many hours has megabytes, of which a comparison draws a part.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return [], 0
    every = max(1, len(lines) // CURVE_RECORDS)
    chosen = [line for at, line in enumerate(lines) if at % every == 0 or at == len(lines) - 1 or b'"kind"' in line]
    records: list[dict[str, Any]] = []
    for line in chosen:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records, len(chosen) - len(records)


JOURNAL_FILE: Final = "journal.jsonl"
EXPERIMENT_FILE: Final = "experiment.yaml"
_LENGTH: Final = "successPolicy.rawFrames"
"""How far a run was let to play, which says nothing of its settings."""


def runs_of(folder: Path) -> tuple[list[JudgedRun], str]:
    """The runs of the experiment in ``folder`` that can be compared, and after how many frames, in a sentence. Raises UsageError
    where no two were judged after as many frames, and where the journal or a run can't be read."""
    scores, is_population = _scores(folder / JOURNAL_FILE)
    counts = Counter(frames for of_run in scores.values() for frames in of_run)
    frames = max((frames for frames, runs in counts.items() if runs > 1), default=None)
    if frames is None:
        raise UsageError(f"{folder}: no two of its runs were judged after as many raw frames yet")
    found = [_judged(folder / name, of_run[frames]) for name, of_run in scores.items() if frames in of_run]
    if is_population:  # one group: each has settings of others, and its own change
        settings = [run.settings for run in found]
        same = {path: value for path, value in settings[0].items() if all(each.get(path) == value for each in settings)}
        found = [replace(run, settings=same) for run in found]
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


def _scores(journal: Path) -> tuple[dict[str, dict[int, Record]], bool]:
    """Each run that was started -> raw frames that it was to play -> its Score line there; and whether they are a population. A
    run that had reached its goal has that at all further ones, too."""
    asked: dict[str, int] = {}
    found: dict[str, dict[int, Record]] = {}
    experiment, is_population = "", False
    try:
        for line in journal.read_bytes().rpartition(b"\n")[0].splitlines():
            entry = json.loads(line)
            kind = entry["kind"]
            if kind == "Settings":
                experiment = entry["experiment"]["metadata"]["name"]
                is_population = "population" in entry["experiment"]["spec"]
            elif kind in ("Start", "Promote", "Copy", "Keep", "Score"):
                run = f"{experiment}-{entry['trial']}" + (f"-s{entry['seed']}" if entry["seed"] > 1 else "")
                asked[run] = asked[run] if kind == "Score" else entry["rawFrames"]
                found.setdefault(run, {}).update({asked[run]: entry} if kind == "Score" else {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{journal}: can't be read as an experiment's journal: {error!r}") from None
    for of_run in filter(None, found.values()):
        last = max(of_run)
        of_run |= {frames: of_run[last] for frames in asked.values() if frames > last and of_run[last]["solved"]}
    return found, is_population


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
    settings["evaluator.episodes"] = score["episodes"]
    return replace(run, evaluations=(verdict,), settings=settings)
