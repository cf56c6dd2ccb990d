"""Population-based training: what becomes of a member that was judged, and by which line of settings a member has come to be.

A decision is a function of the settings, the members' newest scores, and draws, each a hash of the population's seed, the member,
its rung and a word. A member copies before it varies: settings are varied only beside copied weights, so that a good member keeps
the settings that made it good.
"""

import math
from collections.abc import Mapping
from typing import Any

from rljob.api import ManifestError
from rljob.api.experiment import PopulationSpec
from rljob.api.experiment_trials import bounds, rounded, share, value_at

from rljob_operator.experiments.state import ExperimentState, Run, RunState, Score


def evolved(state: ExperimentState) -> dict[str, Any] | None:
    """What becomes of the least advanced member that waits; None where none does."""
    waiting = [run for run in state.runs.values() if run.state is RunState.WAITING]
    population = state.known.spec.population
    if not waiting or population is None:
        return None
    run = min(waiting, key=lambda each: (each.rung, each.trial))
    judged = [each for each in state.runs.values() if each.scores and each.state is not RunState.FAILED]
    judged.sort(key=lambda each: (-each.scores[-1].mean, each.trial))
    few = max(1, len(judged) * population.exploit.truncation_percent // 100)
    rungs, own = state.known.rungs, run.scores[-1]
    beyond = (rung for rung in range(run.rung + 1, len(rungs)) if rungs[rung] > own.raw_frames)
    rung = next(beyond, len(rungs) - 1)
    about: dict[str, Any] = {
        "trial": run.trial,
        "seed": run.seed,
        "judgedRung": run.rung,
        "rung": rung,
        "rawFrames": rungs[rung],
        "scores": {
            str(each.trial): [each.scores[-1].mean, each.scores[-1].standard_error, each.scores[-1].raw_frames]
            for each in sorted(judged, key=lambda each: each.trial)
        },
    }
    least = population.exploit.min_gap_standard_errors
    donors = [each for each in judged[:few] if each is not run and _is_better(each.scores[-1], own, least)]
    keeps = {
        "it is the reference": population.reference and run.trial == 0,
        "it has played its budget": own.raw_frames >= rungs[-1],
        f"it is not among the {few} lowest of {len(judged)} judged": run not in judged[-few:],
        f"none of the {few} highest is {least:g} standard errors above it": not donors,
    }
    if any(keeps.values()):
        return {"kind": "Keep", **about, "why": next(why for why, holds in keeps.items() if holds)}
    key = (population.seed, run.trial, run.rung)
    donor = donors[int(share(*key, "donor") * len(donors))]
    score = donor.scores[-1]
    varied = {path: _varied(score.settings[path], path, population, key) for path in sorted(population.parameters)}
    settings = {path: value for path, (value, _) in varied.items()}
    try:
        state.known.job_with(settings, run.trial)
    except ManifestError:  # not every value goes with every other one
        settings, varied = dict(score.settings), {}
    return {
        "kind": "Copy",
        **about,
        "donor": donor.trial,
        "donorRung": len(donor.scores) - 1,
        "set": settings,
        "by": {path: how for path, (_, how) in varied.items() if how},
        "fork": {"id": f"copy-{run.trial}-{run.rung}", **{name: score.checkpoint[name] for name in ("from", "digest")}},
    }


def _is_better(one: Score, other: Score, least: float) -> bool:
    """Whether a score is so many standard errors of the difference above another, and its checkpoint was kept."""
    gap, error = one.mean - other.mean, math.hypot(one.standard_error, other.standard_error)
    return bool(one.checkpoint) and gap > 0 and gap >= least * error


def _varied(value: Any, path: str, population: PopulationSpec, key: tuple[int, ...]) -> tuple[Any, str]:
    """The value that a parameter has after a copy, and how that came about in words; none where it is that of the donor."""
    explore, from_, drawn = population.explore, population.parameters[path], share(*key, path, "kind")
    if drawn < explore.resample:
        return value_at(share(*key, path, "value"), path, from_), "drawn again"
    if drawn >= explore.resample + explore.probability:
        return value, ""
    up = share(*key, path, "side") < 0.5
    if from_.values is not None:
        at = from_.values.index(value) + (1 if up else -1)
        return from_.values[min(max(at, 0), len(from_.values) - 1)], "the next listed" if up else "the listed before"
    low, high = bounds(path, from_)
    number = value * explore.factor if up else value / explore.factor
    return rounded(min(max(number, low), high), low, high), f"{'x' if up else '/'} {explore.factor:g}"


def schedule(state: ExperimentState, run: Run, rung: int | None = None) -> list[dict[str, Any]]:
    """The line of settings by which a member has come to its weights at ``rung`` (that of its best score unless given), its
    donors' before it, as ``spec.schedule`` of one job that plays it all."""
    rung = run.scores.index(run.best) if rung is None else rung
    copies = [entry for entry in run.line if entry["rung"] <= rung]
    line = [{"afterRawFrames": 0, "set": dict(state.known.settings(run.trial))}]
    if not copies:
        return line
    donor, at = state.runs[copies[-1]["donor"], 1], copies[-1]["donorRung"]
    return [
        *schedule(state, donor, at),
        {"afterRawFrames": played(state, donor, at), "set": dict(copies[-1]["set"])},
    ]


def played(state: ExperimentState, run: Run, rung: int) -> int:
    """Raw frames that a member's weights at ``rung`` have been trained on, those of its donors included."""
    copies = [entry for entry in run.line if entry["rung"] <= rung]
    if not copies:
        return run.scores[rung].raw_frames
    since: int = run.scores[rung].raw_frames - run.scores[copies[-1]["judgedRung"]].raw_frames
    return played(state, state.runs[copies[-1]["donor"], 1], copies[-1]["donorRung"]) + since


def lineage(state: ExperimentState, run: Run) -> list[tuple[int, int, Mapping[str, Any]]]:
    """A member's own raw frames at its begin, at each copy and now; the donor, or itself; the settings from then on."""
    copies = [(run.scores[entry["judgedRung"]].raw_frames, entry["donor"], entry["set"]) for entry in run.line]
    return [(0, run.trial, state.known.settings(run.trial)), *copies, (run.raw_frames, run.trial, run.settings)]


def copied(entry: Mapping[str, Any]) -> str:
    """Who copies whom, why, and what is varied, of a line of the journal."""
    own, donor = (entry["scores"][str(entry[name])] for name in ("trial", "donor"))
    how = entry["by"]
    told = [
        f"{path.rpartition('.')[2]} {value:g}" + (f" ({how[path]})" if path in how else "")
        for path, value in entry["set"].items()
    ]
    against = f"{donor[0]:.2f} +- {donor[1]:.2f} against {own[0]:.2f} +- {own[1]:.2f}"
    copies = f"copies trial {entry['donor']}, {against}," if entry["donor"] != entry["trial"] else "keeps its weights"
    return f"{copies} and goes on to {entry['rawFrames']:,} raw frames with {', '.join(told)}"
