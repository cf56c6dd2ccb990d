"""The next decision of an experiment, if one is due: a function of its journal so far and nothing else.

It is asked after every line until it has nothing to say. Its answer is written down before anything is done about it, and is what
the journal holds as the next line.

The settings of the next trial are drawn, or suggested by the scores of those before it: a function of the search, the trial's
number and the journal so far. Optuna's sampler is made anew for each, with a seed of its own, and is told all trials; nothing is
kept from one suggestion to the next, so that a controller that comes back has the same one.
"""

import hashlib
import json
import statistics
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rljob.api import ManifestError
from rljob.api.experiment import Distribution, SearchSpec
from rljob.api.experiment_trials import Experiment, bounds, identity, rounded, takes_integer
from rljob.api.problems import ABSENT, Problem

from rljob_operator.experiments.population import evolved
from rljob_operator.experiments.state import ALL_FAILED, TOO_MANY_FAILED, ExperimentState, Mismatch, Run, RunState

Decision = dict[str, Any]
_MOST_ASKED = 50
"""Suggestions until the trial is drawn: near the best of a small space, or among invalid settings, the sampler has few others."""
Suggest = Callable[[ExperimentState, SearchSpec, int], dict[str, Any]]


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


def decide(state: ExperimentState, suggest: Suggest = by_optuna) -> Decision | None:
    """The decision that is due; None while all that can be done is to wait for what is observed. ``suggest``: where settings that
    follow from scores come from."""
    if state.experiment is None or state.end is not None:
        return None
    if state.failed > state.experiment.spec.max_failed_trials:
        return _end(state, TOO_MANY_FAILED)
    if state.time_up:
        return _end(state, "TimeUp")
    population = state.experiment.spec.population is not None
    pruned = None if population else _pruned(state)
    if pruned is not None:
        return pruned
    if state.running < state.experiment.spec.parallelism:
        # What runs already goes on first, except by halving: the more trials a rung has, the better it tells the good ones.
        prune = state.experiment.spec.prune
        halving = prune is not None and prune.halving is not None
        goes_on = evolved if population else _promoted
        decision = None if halving or population else goes_on(state)
        decision = decision or _start(state, suggest) or (goes_on(state) if halving or population else None)
        if decision is not None:
            return decision
    if state.running > 0:
        return None
    return _end(state, "Completed" if any(state.ranking()) else ALL_FAILED)


def _start(state: ExperimentState, suggest: Suggest) -> Decision | None:
    """The next run to start: every trial with its first seed, then with the second, and so on. Further seeds of a trial that may
    be pruned wait until its first run is done."""
    experiment = state.known
    for seed in range(1, experiment.spec.seeds + 1):
        for trial in range(experiment.trials):
            if (trial, seed) in state.runs:
                continue
            first = state.runs.get((trial, 1))
            due = first is not None and first.state is RunState.DONE
            if seed == 1 or experiment.spec.prune is None or due:
                frames = experiment.rungs[0 if seed == 1 else -1]
                settings = chosen(state, trial, suggest) if seed == 1 else {"set": dict(experiment.settings(trial))}
                return {"kind": "Start", "trial": trial, "seed": seed, "rawFrames": frames, **settings}
    return None


def _promoted(state: ExperimentState) -> Decision | None:
    """A run that may go on to its next rung, of the highest rung that has one."""
    for rung in range(len(state.known.rungs) - 2, -1, -1):
        waits = {run.key for run in _waiting(state, rung)}
        chosen = next((run for run in _best(state, rung) if run.key in waits), None) if waits else None
        if chosen is not None:
            return _about(state, "Promote", chosen, rung, chosen.rung + 1) | {"rawFrames": state.known.rungs[rung + 1]}
    return None


def _pruned(state: ExperimentState) -> Decision | None:
    """A run that no rule can promote any more."""
    prune = state.known.spec.prune
    for rung in range(len(state.known.rungs) - 1):
        waiting = _waiting(state, rung)
        if waiting and ((prune is not None and prune.median is not None) or _closed(state, rung)):
            best = {run.key for run in _best(state, rung)}
            for run in waiting:
                if run.key not in best:
                    return _about(state, "Prune", run, rung, rung)
    return None


def _waiting(state: ExperimentState, rung: int) -> list[Run]:
    """First runs that wait at ``rung``."""
    return [run for run in state.waiting.get(rung, ()) if run.state is RunState.WAITING and run.rung == rung]


def _best(state: ExperimentState, rung: int) -> list[Run]:
    """First runs that may go on from ``rung``, the best first; those that have gone on from there are among them."""
    prune = state.known.spec.prune
    if prune is None or prune.halving is None:
        return [run for run in _waiting(state, rung) if run.scores[rung].mean >= _bound(state, run, rung)]
    return state.judged_at(rung)[: _allowed(state, rung, prune.halving.factor)]


def _allowed(state: ExperimentState, rung: int, factor: int) -> int:
    """How many may go on by halving; of a rung that is complete one at least."""
    allowed = len(state.waiting.get(rung, ())) // factor
    return max(1, allowed) if _closed(state, rung) else allowed


def _bound(state: ExperimentState, run: Run, rung: int) -> float:
    """The score from which a run goes on: by halving that of the last that may, else the median of the others."""
    prune = state.known.spec.prune
    if prune is not None and prune.halving is not None:
        return _best(state, rung)[-1].scores[rung].mean
    others = [other.scores[rung].mean for other in state.waiting[rung] if other.key != run.key]
    enough = prune is not None and prune.median is not None and len(others) >= prune.median.min_trials
    return statistics.median(others) if enough else run.scores[rung].mean


def _closed(state: ExperimentState, rung: int) -> bool:
    """Whether no run can come to be judged at ``rung`` any more."""
    firsts = [run for (_, seed), run in state.runs.items() if seed == 1]
    may_come = (run for run in firsts if run.state in (RunState.RUNNING, RunState.WAITING))
    coming = any(run.rung < rung or (run.rung == rung and run.state is RunState.RUNNING) for run in may_come)
    return len(firsts) == state.known.trials and not coming


def _about(state: ExperimentState, kind: str, run: Run, rung: int, to: int) -> Decision:
    """A decision about a run, with the numbers that it was made by: its score, how many were judged there, and the bound."""
    numbers = {"score": run.scores[rung].mean, "judged": len(state.waiting[rung]), "bound": _bound(state, run, rung)}
    return {"kind": kind, "trial": run.trial, "seed": run.seed, "rung": to, **numbers}


def _end(state: ExperimentState, reason: str) -> Decision:
    best = next(iter(state.ranking()), None)
    found: Decision = {"kind": "End", "reason": reason, "best": None}
    if best is not None:
        found["best"] = {
            "trial": best.trial,
            "seeds": [run.seed for run in best.runs],
            "mean": best.mean,
            "standardError": best.standard_error,
            "set": dict(state.settings(best.trial)),
        }
    return found


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
            or not all(_fits(settings[path], path, from_) for path, from_ in search.parameters.items())
        ):
            raise Mismatch("the lines before it lead to a trial with settings that were suggested of search.parameters")
        return found

    return suggest


def _firsts(state: ExperimentState) -> list[Run]:
    return [run for (_, seed), run in state.runs.items() if seed == 1]


def _fits(value: Any, path: str, from_: Distribution) -> bool:
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
