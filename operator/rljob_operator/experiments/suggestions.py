"""The settings of the next trial: drawn, or suggested by the scores of those before it.

A suggestion is a function of the search, the trial's number and the journal so far. Optuna's sampler is made anew for each, with
a seed of its own, and is told all trials; nothing is kept from one suggestion to the next, so that a controller that comes back
has the same one.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rljob.api import ManifestError
from rljob.api.experiment import Distribution, SearchSpec
from rljob.api.experiment_trials import Experiment, bounds, identity, rounded, takes_integer
from rljob.api.problems import ABSENT, Problem

from rljob_operator.experiments.state import ExperimentState, Mismatch, Run, RunState

_MOST_ASKED = 50
"""Suggestions until the trial is drawn: near the best of a small space, or among invalid settings, the sampler has few others."""
Suggest = Callable[[ExperimentState, SearchSpec, int], dict[str, Any]]


def require_sampler(experiment: Experiment) -> None:
    """Raises ManifestError where the experiment needs suggestions that can't be made here."""
    search = experiment.spec.search
    if search is None or search.tpe is None:
        return
    if getattr(find_spec("optuna"), "origin", None) is None:  # a mere folder of that name has none
        needed = "needs Optuna, which is not installed here: pip install 'rljob[optuna]'; random does without"
        raise ManifestError([Problem("spec.search.tpe", ABSENT, needed)])


def chosen(state: ExperimentState, trial: int, suggest: Suggest) -> dict[str, Any]:
    """What a line says of the settings of ``trial``, which starts now: ``set``, and of suggested ones ``by`` which release."""
    search = state.known.spec.search
    tpe = search.tpe if search is not None else None
    if search is None or tpe is None or sum(bool(run.scores) for run in _firsts(state)) < tpe.startup_trials:
        return {"set": dict(state.known.settings(trial))}
    return suggest(state, search, trial)


def by_optuna(state: ExperimentState, search: SearchSpec, trial: int) -> dict[str, Any]:
    """What Optuna suggests now, and its release."""
    tpe = search.tpe
    assert tpe is not None
    optuna = import_module("optuna")  # an extra, and slow to load
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    key = json.dumps([tpe.seed, trial]).encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")  # of its own, or all would begin with the same draws
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    space = {path: _range(optuna.distributions, path, from_) for path, from_ in sorted(search.parameters.items())}
    tried = set()
    for run in _firsts(state):
        settings = state.known.settings(run.trial)
        tried.add(identity(settings))
        study.add_trial(
            optuna.create_trial(
                params={path: _told(settings[path], from_) for path, from_ in search.parameters.items()},
                distributions=space,
                **_score(optuna, run),
            )
        )
    left_out = 0
    for _ in range(_MOST_ASKED):
        asked = study.ask(fixed_distributions=space)
        suggested = {path: _setting(asked.params[path], path, from_) for path, from_ in search.parameters.items()}
        if identity(suggested) in tried:
            continue
        try:
            state.known.job_with(suggested, trial)
            break
        except ManifestError:
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)  # as the worst, so that the next lies elsewhere
            left_out += 1
    else:
        suggested = dict(state.known.settings(trial))
    return {"set": suggested, "by": f"Optuna {optuna.__version__}"} | ({"leftOut": left_out} if left_out else {})


def as_written(entry: Mapping[str, Any]) -> Suggest:
    """The suggestion that a journal's line has. It is not made again: another release may suggest something else, and what was
    done follows from what was written. Raises Mismatch where it is none of the search."""

    def suggest(state: ExperimentState, search: SearchSpec, trial: int) -> dict[str, Any]:
        found = {name: entry[name] for name in ("set", "by", "leftOut") if name in entry}
        settings = found.get("set")
        if (
            not isinstance(settings, dict)
            or not isinstance(found.get("by"), str)
            or settings.keys() != search.parameters.keys()
            or not all(_allowed(settings[path], path, from_) for path, from_ in search.parameters.items())
        ):
            raise Mismatch("the lines before it lead to a trial with settings that were suggested of search.parameters")
        return found

    return suggest


def _firsts(state: ExperimentState) -> list[Run]:
    return [run for (_, seed), run in state.runs.items() if seed == 1]


def _allowed(value: Any, path: str, from_: Distribution) -> bool:
    if from_.values is not None:
        return identity(value) in map(identity, from_.values)
    least, most = bounds(path, from_)
    return isinstance(value, int if takes_integer(path) else int | float) and least <= value <= most


def _score(optuna: Any, run: Run) -> dict[str, Any]:
    """What became of a trial as Optuna knows it. One that ended, or waits, below its budget counts as pruned there, and is worse
    than all that have played it. One without a score, as it plays or has failed, is the worst: the next lies elsewhere."""
    if run.state is RunState.DONE:
        return {"value": run.best.mean}
    return {
        "state": optuna.trial.TrialState.PRUNED,
        "intermediate_values": {rung: score.mean for rung, score in enumerate(run.scores)},
    }


def _range(distributions: Any, path: str, from_: Distribution) -> Any:
    """The values of a parameter as Optuna has them; where they are listed, their places in the list."""
    if from_.values is not None:
        return distributions.CategoricalDistribution(range(len(from_.values)))
    kind = distributions.IntDistribution if takes_integer(path) else distributions.FloatDistribution
    return kind(*bounds(path, from_), log=from_.log_uniform is not None)


def _told(value: Any, from_: Distribution) -> Any:
    return value if from_.values is None else [*map(identity, from_.values)].index(identity(value))


def _setting(value: Any, path: str, from_: Distribution) -> Any:
    return rounded(value, *bounds(path, from_)) if from_.values is None else from_.values[value]
