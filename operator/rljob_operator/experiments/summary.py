"""An experiment in figures of bounded size and in conditions, for its status; and its trials, for people."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rljob.api.conditions import ConditionType, Reason
from rljob.api.document import in_one_line
from rljob.api.experiment import MOST_ROWS, RLExperimentStatus

from rljob_operator.core.conditions.update import ConditionUpdate, false, merged, true, withdrawn
from rljob_operator.experiments.population import copied, schedule
from rljob_operator.experiments.state import ExperimentState, Ranked, Run, RunState, over_seeds

_LONGEST = 120
"""Characters of a trial's settings in a row."""
_LONGEST_SETTINGS = 1024
_GOES_ON = frozenset({RunState.DONE})
"""States of a trial's runs after which it gets its further seeds."""
_OVER = _GOES_ON | {RunState.PRUNED, RunState.FAILED}


def summary(state: ExperimentState) -> dict[str, Any]:
    """Counts, the best trial, and a row for each of the best; at most 100 kB."""
    found = [(ranked, row(state, ranked)) for ranked in state.ranking()[:MOST_ROWS]]
    states: dict[int, list[RunState]] = {}
    for run in state.runs.values():
        states.setdefault(run.trial, []).append(run.state)
    seeds, ended = state.known.spec.seeds, state.end is not None
    return {
        "trials": state.known.trials,
        "done": sum(ended or _is_over(of, seeds) for of in states.values()),
        "running": len(state.active),
        "failed": state.failed,
        "rows": [{**each, "set": each["set"][:_LONGEST]} for _, each in found],
        "best": next(iter([{**each, "set": each["set"][:_LONGEST_SETTINGS]} for _, each in found[:1]]), None),
        "runs": [state.known.run_name(run.trial, run.seed) for ranked, _ in found[:1] for run in ranked.runs],
        "fresh": fresh_verdict(state),
    }


def _is_over(runs: list[RunState], seeds: int) -> bool:
    """Whether no run of a trial goes on, and none follows."""
    return _OVER.issuperset(runs) and (len(runs) == seeds or not _GOES_ON.issuperset(runs))


def fresh_verdict(state: ExperimentState) -> dict[str, Any] | None:
    """The best trial on games that it was not chosen by; None before all of its runs have played them."""
    scores = [state.verdicts.get(run.key) for run in state.best()]
    known = [each for each in scores if each is not None]
    if not known or len(known) < len(scores):
        return None
    mean, error = over_seeds(known)
    return {"mean": round(mean, 4), "standardError": round(error, 4), "episodes": known[0].episodes}


def best_in_words(state: ExperimentState) -> str:
    """The best trial of an experiment that has ended: its score in fresh games where they were played, its settings, whether it
    has fallen back, and which trial was the best of those that were judged after as many raw frames."""
    runs, fresh, rungs = list(state.best()), fresh_verdict(state), state.known.rungs
    settings = " ".join(f"{path}={in_one_line(value)}" for path, value in state.settings(runs[0].trial).items())
    words = f"trial {runs[0].trial}"
    if fresh is not None:
        seeds, each = (f"{len(runs)} seeds, ", " each") if len(runs) > 1 else ("", "")
        error, games = f"{fresh['standardError']:.2f} (standard error)", f"{seeds}{fresh['episodes']} fresh games{each}"
        words += f", {fresh['mean']:.2f} +- {error} over {games}"
    told = [f"{words}: {settings[:_LONGEST_SETTINGS]}".rstrip(": "), *filter(None, map(fell_back, runs))]
    rung = max((at for at, judged in state.waiting.items() if len(judged) > 1 < len(rungs)), default=-1)
    if equal := state.judged_at(rung):
        best = f"trial {equal[0].trial} was the best, {equal[0].scores[rung].mean:.2f}"
        told.append(f"of {len(equal)} judged at {rungs[rung]:,} raw frames {best}")
    return "; ".join(told)


def fell_back(run: Run) -> str:
    """That the newest weights of a run are worse than some before, which are kept; empty where they are not."""
    if not run.scores or (best := run.best) is run.scores[-1]:
        return ""
    return f"fell back to {run.scores[-1].mean:.2f} from {best.mean:.2f} after {best.raw_frames:,} raw frames, which is kept"


def row(state: ExperimentState, ranked: Ranked) -> dict[str, Any]:
    """A trial in a line: its settings as text, its score and what it had played then, how it is now, its state."""
    first = ranked.runs[0]
    return {
        "trial": ranked.trial,
        "set": settings_in_words(state, ranked.trial),
        "seeds": len(ranked.runs),
        "rawFrames": first.best.raw_frames,
        "mean": round(ranked.mean, 4),
        "standardError": round(ranked.standard_error, 4),
        "newestMean": round(over_seeds([run.scores[-1] for run in ranked.runs])[0], 4),
        "state": str(first.state),
    }


def rows(state: ExperimentState) -> list[dict[str, Any]]:
    """A line for every trial that was started: those with a score, the best first, then those without."""
    found = [row(state, ranked) for ranked in state.ranking()]
    unscored = {"seeds": 0, "rawFrames": 0, "mean": None, "standardError": None, "newestMean": None}
    others = sorted({trial for trial, _ in state.runs} - {each["trial"] for each in found})
    return found + [
        {"trial": t, "set": settings_in_words(state, t), "state": str(state.runs[t, 1].state), **unscored}
        for t in others
    ]


class Trial(NamedTuple):
    """A trial of an experiment. ``number``: counted from 0."""

    number: int
    settings: Mapping[str, Any]
    """Path of a field -> the value that the trial has there."""
    state: str
    """The state of its first run: Running, Waiting (to be promoted), Done, Pruned or Failed."""
    why: str
    """How that came, in words."""
    mean: float | None
    """Its score: the mean return of whole games with the best weights that it has had, over seeds where several count. None
    before it was judged."""
    standard_error: float | None
    scores: tuple[tuple[int, float, float], ...]
    """Each judgement of its first run: raw frames, mean, standard error."""
    runs: tuple[str | Path, ...]
    """The folders of its runs, by seed; on a cluster the names of RLJobs."""
    schedule: tuple[Mapping[str, Any], ...] = ()
    """Of a member of a population: the settings by which its best weights came about, its donors' first, as ``spec.schedule`` of
    one job."""
    copies: tuple[str, ...] = ()
    """Of a member of a population: whom it has copied, and why."""


def trials_of(state: ExperimentState, folder: Path | None) -> list[Trial]:
    """The trials that were started, the best first. ``folder``: of the experiment; None on a cluster."""
    ranked = {each.trial: (each.mean, each.standard_error) for each in state.ranking()}
    found = []
    for number in dict.fromkeys([*ranked, *(trial for trial, _ in state.runs)]):
        runs = sorted((run for run in state.runs.values() if run.trial == number), key=lambda run: run.seed)
        scores = tuple((score.raw_frames, score.mean, score.standard_error) for score in runs[0].scores)
        places = tuple(_place(state, run.key, folder) for run in runs)
        mean, error = ranked.get(number, (None, None))
        became = str(runs[0].state), _why(state, runs[0])
        line = tuple(schedule(state, runs[0]) if state.known.spec.population is not None and scores else ())
        copies = tuple(map(copied, runs[0].line))
        found.append(Trial(number, state.settings(number), *became, mean, error, scores, places, line, copies))
    return sorted(found, key=lambda trial: not trial.scores)


def best_of(state: ExperimentState, folder: Path | None) -> tuple[Trial, str] | None:
    """The best trial with its score in games that nothing was chosen by, and of its runs the best one first; and that on a line.
    None before it was judged in them."""
    keys = [run.key for run in state.best()]
    if fresh_verdict(state) is None:
        return None
    keys.sort(key=lambda key: -state.verdicts[key].mean)
    mean, error = over_seeds([state.verdicts[key] for key in keys])
    trial = next(each for each in trials_of(state, folder) if each.number == keys[0][0])
    return trial._replace(
        mean=mean, standard_error=error, runs=tuple(_place(state, key, folder) for key in keys)
    ), best_in_words(state)


def _place(state: ExperimentState, key: tuple[int, int], folder: Path | None) -> str | Path:
    name = state.known.run_name(*key)
    return name if folder is None else folder / name


def _why(state: ExperimentState, run: Run) -> str:
    if run.why:
        return run.why
    if run.state is RunState.PRUNED:
        return "others had higher scores at its raw frames"
    if run.state is RunState.DONE:
        how = "played to its end" if run.rung == len(state.known.rungs) - 1 else "reached its goal"
        return f"{how}; {back}" if (back := fell_back(run)) else how
    return "" if state.end is None else f"the experiment ended before it: {state.end['reason']}"


def settings_in_words(state: ExperimentState, trial: int) -> str:
    """What a trial sets, each field by its last name: ``learningRate=0.001 entropyCost=0``."""
    return " ".join(f"{path.rpartition('.')[2]}={in_one_line(value)}" for path, value in state.settings(trial).items())


def in_words(state: ExperimentState, entry: dict[str, Any]) -> str:
    """A line of the journal, which has been applied, for a terminal."""
    kind, where = entry["kind"], ""
    if "trial" in entry:
        where = f"trial {entry['trial']}" + (f" seed {entry['seed']}" if state.known.spec.seeds > 1 else "")
    if kind == "Start":
        settings = settings_in_words(state, entry["trial"])
        again = f"; left out: {entry['leftOut']} suggestions that make no valid job" if "leftOut" in entry else ""
        return f"{where} starts, to {entry['rawFrames']:,} raw frames: {settings}".rstrip(": ") + again
    if kind == "Score":
        of = f"{entry['mean']:.2f} +- {entry['standardError']:.2f}"
        back = f"; it {back}" if (back := fell_back(state.runs[entry["trial"], entry["seed"]])) else ""
        return f"{where} reached {of} in {entry['episodes']} games, after {entry['rawFrames']:,} raw frames{back}"
    if kind in _TOLD:
        return f"{where} {_TOLD[kind](entry)}"
    if kind == "End":
        return f"the search ends ({entry['reason']})"
    return "the time of budget.seconds is over" if kind == "TimeUp" else "settings taken over"


def _numbers(entry: dict[str, Any]) -> str:
    return f"{entry['score']:.2f}, one of {entry['judged']} judged there; from {entry['bound']:.2f} on they go on"


_TOLD: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "Copy": copied,
    "Keep": lambda entry: f"goes on to {entry['rawFrames']:,} raw frames as it is: {entry['why']}",
    "Refused": lambda entry: f"goes on with its own weights: its fork {entry['id']} was refused: {entry['why']}",
    "Promote": lambda entry: f"goes on to {entry['rawFrames']:,} raw frames: {_numbers(entry)}",
    "Prune": lambda entry: f"ends here: {_numbers(entry)}",
    "Fail": lambda entry: f"failed: {entry['why']}",
    "Verdict": lambda entry: (
        f"judged anew: {entry['mean']:.2f} +- {entry['standardError']:.2f} in {entry['episodes']} games"
    ),
}
"""What a line of the journal says of its trial, by its kind."""


FINISHED: Final = (ConditionType.COMPLETE, ConditionType.FAILED)


def conditions(
    state: ExperimentState,
    before: RLExperimentStatus,
    *,
    suspend: bool,
    rests: bool,
    judged: bool,
    refused: str,
    trouble: Sequence[str] = (),
    held: Sequence[str] = (),
) -> Iterator[ConditionUpdate]:
    """What holds of an experiment.

    Args:
        before: what was told last.
        suspend: whether nothing of it shall run.
        rests: whether nothing of it runs.
        judged: whether the best trial was judged anew, or can't be.
        refused: why the newest spec is not in force; empty where it is.
        trouble: what keeps it from going on, or is to be told at its end.
        held: what it waits for that may come by itself, or not.
    """
    yield (
        false(ConditionType.ACCEPTED, Reason.INVALID_SPEC, refused)
        if refused
        else true(ConditionType.ACCEPTED, Reason.VALID)
    )
    words = "; ".join(trouble)
    if state.experiment is None:
        yield false(ConditionType.READY, Reason.INVALID_SPEC, refused)
        return
    stopped = suspend and rests and state.end is None
    yield (true if stopped else false)(ConditionType.SUSPENDED, Reason.USER_REQUESTED if stopped else Reason.RESUMED)
    if state.end is None:
        yield from (withdrawn(ended) for ended in FINISHED if any(each.type == ended for each in before.conditions))
        reason = Reason.RUNNING if not suspend else Reason.SUSPENDED if rests else Reason.SUSPENDING
        reason = Reason.DEGRADED if words and not suspend else reason
        ready = true if reason in (Reason.RUNNING, Reason.DEGRADED) else false
        yield ready(ConditionType.READY, reason, "; ".join([*trouble, *held]))
        return
    ended, failed = state.end["reason"], state.has_failed
    if not (rests and judged):
        told = ["the best trial is judged on games that it was not chosen by", *held]
        yield true(ConditionType.READY, Reason.FINISHING, "; ".join(told))
        return
    why = next((f"; trial {run.trial}: {run.why}" for run in state.runs.values() if run.why), "") if failed else ""
    how = f"the best is {best_in_words(state)}" if any(state.best()) else "no trial was judged"
    said = f"{how}{why}" + (f"; {words}" if words else "")
    reason = Reason.FAILED if failed else Reason.COMPLETE
    yield (false if failed else true)(ConditionType.READY, reason, said)
    yield true(ConditionType.FAILED if failed else ConditionType.COMPLETE, ended, said)


def finished(status: RLExperimentStatus) -> bool:
    """Whether the experiment has ended; with more trials or seeds it goes on."""
    return any(each.type in FINISHED and each.status == "True" for each in status.conditions)


def after(
    before: RLExperimentStatus,
    updates: Iterable[ConditionUpdate],
    figures: Mapping[str, Any],
    generation: int,
    now: float,
) -> RLExperimentStatus:
    """The status after ``updates``, with ``figures`` in the place of those that it had. ``now``: Unix seconds."""
    known = RLExperimentStatus.model_validate({**dict(before), **figures}).model_copy(
        update={
            "observed_generation": generation,
            "start_time": before.start_time or now,
            "conditions": merged(before.conditions, updates, generation, now),
        }
    )
    return known.model_copy(update={"completion_time": (before.completion_time or now) if finished(known) else None})
