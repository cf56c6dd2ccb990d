"""The next decision of an experiment, if one is due: a function of its journal so far and nothing else.

It is asked after every line until it has nothing to say. Its answer is written down before anything is done about it, and is what
the journal holds as the next line.
"""

import statistics
from typing import Any

from rljob_operator.experiments.population import evolved
from rljob_operator.experiments.state import ALL_FAILED, TOO_MANY_FAILED, ExperimentState, Run, RunState
from rljob_operator.experiments.suggestions import Suggest, by_optuna, chosen

Decision = dict[str, Any]


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
