"""An experiment as one page without other files: its trials' curves, what each parameter did, the best, and all in a table."""

import math
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from rljob.api import ManifestError
from rljob.api.document import in_one_line
from rljob.comparison.comparison import compare
from rljob.comparison.estimates import CONFIDENCE_PERCENT
from rljob.comparison.judged_run import read_judged_run
from rljob.comparison.page import environment_of_pages
from rljob.errors import UsageError
from rljob.files import replace
from rljob.telemetry.charts import COLOURS, SMALL, Chart, Series, line_chart
from rljob.telemetry.report import REPORT_FILE

from rljob_operator.experiments.population import lineage
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.experiments.summary import Trial, best_of, settings_in_words, trials_of
from rljob_operator.local.experiment_runs import read_experiment
from rljob_operator.local.run_folder import holder

_COLOURED: Final = 7
"""Trials whose curves are drawn, each in a colour of its own; they are the best."""
_LOGARITHMIC: Final = 30
"""Positive values are drawn by their logarithm where the largest is so many times the smallest."""


def write_experiment_report(folder: Path, on_cluster: ExperimentState | None = None) -> Path:
    """Write ``report.html`` of the experiment in ``folder``, as far as it has come; ``on_cluster``: by a cluster's journal.
    Raises RunFolderProblem and OSError."""
    state = on_cluster or read_experiment(folder)
    trials, best, comparison = trials_of(state, folder), best_of(state, folder), None
    judged = [trial for trial in trials if trial.scores]
    words = {trial.number: settings_in_words(state, trial.number) for trial in trials}
    with suppress(UsageError):  # too few were judged, or a run's folder is gone
        comparison = compare([folder]) if state.known.spec.seeds > 1 else None
    page = (
        environment_of_pages()
        .get_template("experiment.html.jinja")
        .render(
            experiment=state.known,
            state=("goes on" if on_cluster is not None or holder(folder) is not None else "stopped")
            if state.end is None
            else state.end["reason"],
            best=best,
            trials=trials,
            words=words,
            curves=_curves(judged, words),
            parameters=[_parameter(path, judged) for path in dict.fromkeys(p for t in judged for p in t.settings)],
            members=_members(state, judged) if state.known.spec.population is not None else [],
            undrawn=len(judged[_COLOURED:]),
            coloured=_COLOURED,
            comparison=comparison,
            drawn=0,  # of the comparison's groups: colours are the trials'
            colours=COLOURS,
            confidence_percent=CONFIDENCE_PERCENT,
        )
    )
    replace(folder / REPORT_FILE, page)
    return folder / REPORT_FILE


def _curves(judged: Sequence[Trial], words: dict[int, str]) -> Chart:
    """The training return of the best trials' first runs."""
    series = []
    for colour, trial in enumerate(judged[:_COLOURED]):
        name = textwrap.shorten(f"{trial.number}: {words[trial.number]}", 50, placeholder=" ...")
        series.append(Series(name, _curve(Path(trial.runs[0])), colour=colour))
    return line_chart(
        "Training return of the best trials, first seed", series, x_label="raw frames", y_label="return a game"
    )


def _curve(run: Path) -> list[tuple[float, float]]:
    """Empty where its folder is gone; its scores are in the journal."""
    with suppress(UsageError, ManifestError):
        return [(point["raw_frames"], point["mean_return"]) for point in read_judged_run(run).points]
    return []


def _parameter(path: str, judged: Sequence[Trial]) -> Chart:
    """The score of each trial over its value of one parameter."""
    places, label = _axis(path, [trial.settings.get(path) for trial in judged])
    series = []
    for name, colour, done in (("ended before", _COLOURED, False), ("played all of it", 0, True)):
        found = [(x, t) for x, t in zip(places, judged, strict=True) if (t.state == "Done") is done]
        points, errors = [(x, t.mean or 0.0) for x, t in found], [t.standard_error or 0.0 for _, t in found]
        series.append(Series(name, points, colour=colour, marks=True, errors=errors))
    return line_chart(path, series, x_label=label, y_label="score", size=SMALL)


def _members(state: ExperimentState, judged: Sequence[Trial]) -> list[Chart]:
    """Who copied whom, and what each parameter was, over raw frames, of the best members."""
    runs = [state.runs[trial.number, 1] for trial in judged[:_COLOURED]]
    lines = [[(at, y) for at, donor, _ in lineage(state, run) for y in (run.trial, donor, run.trial)] for run in runs]
    drawn = {"Who copied whom: a line goes to the donor and back": lines}
    for path in judged[0].settings if judged else ():
        steps = [pairwise(lineage(state, run)) for run in runs]
        drawn[path] = [
            [(at, v[path]) for (a, _, s), (b, _, t) in each for at, v in ((a, s), (b, s), (b, t))] for each in steps
        ]
    return [
        line_chart(
            title,
            [
                Series(f"member {run.trial}", found, colour=n)
                for n, (run, found) in enumerate(zip(runs, each, strict=True))
            ],
            x_label="raw frames",
            y_label="member" if each is lines else title.rpartition(".")[2],
        )
        for title, each in drawn.items()
    ]


def _axis(path: str, values: Sequence[Any]) -> tuple[Sequence[float], str]:
    """Where each value stands on an axis, and what is written below it; what are no numbers have places by their words."""
    name = path.rpartition(".")[2]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        words = list(dict.fromkeys(map(in_one_line, values)))
        label = ", ".join(f"{place} {word}" for place, word in enumerate(words))
        return [words.index(in_one_line(value)) for value in values], textwrap.shorten(label, 60, placeholder=" ...")
    if min(values) > 0 and max(values) >= _LOGARITHMIC * min(values):
        return list(map(math.log10, values)), f"log10 of {name}"
    return values, name
