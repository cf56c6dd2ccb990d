"""What `rljob why` says: the last decision about the number of actors, and why a job does not run. Pure."""

import time

from rljob.api.conditions import CATALOGUE
from rljob.api.experiment import RLExperimentStatus, is_experiment
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import Condition

from rljob_operator.view.job_view import LOST, JobView
from rljob_operator.view.words import age

_FINE = {"ScalingLimited": "False", "Suspended": "False", "FailureTarget": "False", "Failed": "False"}
_MANY_STEPS = 100_000
_AS_WANTED = ("PodsStopped", "Suspended", "SessionEnded", "Finishing")
"""Reasons of conditions that are False because a user wanted that, or because the job is over."""


def why(run: JobView) -> list[str]:
    """The whole answer, a line each."""
    lines = [f"{run.name} is {run.state}{_state(run)}"]
    lines += _attendance(run)
    if run.status.is_true("Complete"):
        lines += ["", ending(run)]
    elif not is_experiment(run.document):
        lines += _scaling(run)
    if is_experiment(run.document):
        lines += _trials(run)
    lines += [*_changes(run), *_endless(run.figures)]
    odd = [condition for condition in run.status.conditions if is_odd(condition)]
    if odd:
        lines += ["", "Conditions that need attention:"]
        for condition in odd:
            since = age(time.time() - condition.last_transition_time)
            said = f": {condition.message}" if condition.message else ""
            lines.append(f"  {condition.type}={condition.status} {condition.reason}, for {since}{said}")
    if run.status.failures:
        lines += ["", "Last failures:"]
        for failure in run.status.failures:
            code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
            when = age(time.time() - failure.time)
            lines.append(
                f"  {when} ago  {failure.pod_name}{code}, {failure.reason}, {failure.action}: {failure.message}"
            )
    if run.problem:
        lines += ["", run.problem]
    return lines


def ending(run: JobView) -> str:
    """How a finished run ended, in a line."""
    for type in ("Complete", "Failed"):
        condition = run.status.condition(type)
        if condition is not None and condition.status == "True":
            return f"{type} ({condition.reason}){_tail(condition.message)}"
    return run.state


def told(run: JobView) -> str:
    """What there is to say about the job's state; empty where the word says all."""
    found = {condition.type: condition for condition in run.status.conditions if condition.message}
    over = [found[type].message for type in ("Complete", "Failed") if type in found and found[type].status == "True"]
    ready = found["Ready"].message if "Ready" in found and run.state == run.status.state else ""
    return next(iter(over), "") or run.problem or " ".join(_attendance(run)) or ready


def is_odd(condition: Condition) -> bool:
    """Whether the condition should be shown. Complete never is, Failed says the same as Stalled, and scaling has lines of its
    own. A job that is Ready may be Degraded."""
    fine = condition.status == _FINE.get(condition.type, "True") and condition.reason != "Degraded"
    return (
        condition.type not in ("Complete", "Stalled", "ScalingActive")
        and not fine
        and (condition.status == "True" or condition.reason not in _AS_WANTED)
    )


def _state(run: JobView) -> str:
    """What its state means: of a job in general, of an experiment in its own words, unless they come further below."""
    if not is_experiment(run.document):
        found = (entry.meaning for entry in CATALOGUE if (entry.type, entry.reason) == ("Ready", run.status.state))
        return _tail(next(found, ""))
    ready = run.status.condition("Ready")
    return _tail(ready.message) if ready is not None and ready.status == "True" and not run.status.finished else ""


def _attendance(run: JobView) -> list[str]:
    if run.state != LOST:
        return []
    last = f"it was last {run.status.state}" if run.status.state else "it has left no status"
    ending = f" These are ending: {', '.join(run.running)}." if run.running else ""
    return [f"Its controller was killed; {last}.{ending} It can be resumed."]


def _changes(run: JobView) -> list[str]:
    """What was changed of a job without a restart: the fork, and the entry of its schedule that holds."""
    fork, lines, entries = run.status.fork, list[str](), (run.document.get("spec") or {}).get("schedule") or []
    if fork is not None:
        at = "" if fork.updates is None else f" at update {fork.updates:,}, after {fork.raw_frames or 0:,} raw frames"
        lines.append(f"Fork {fork.id} from {fork.source}: {fork.state}{at}{_tail(fork.message)}.")
    if entries and (done := run.status.following.scheduled if run.status.following is not None else 0):
        latest = entries[done - 1]
        lines.append(
            f"Schedule: {done} of {len(entries)} entries: {latest['set']} from {latest['afterRawFrames']:,} raw frames on."
        )
    return ["", *lines] if lines else []


def _endless(said: LearnerStatus) -> list[str]:
    """That there is no return because no game has ended."""
    steps = said.steps_total or 0
    if said.episodes_total != 0 or steps < _MANY_STEPS:
        return []
    words = "environment.maxEpisodeSteps truncates games that may not end by themselves"
    return ["", f"No game has ended in {steps:,} steps of all environments, so there is no return yet; {words}."]


def _trials(run: JobView) -> list[str]:
    """How far an experiment is."""
    found = RLExperimentStatus.model_validate(run.document.get("status") or {})
    counts = f"Trials: {found.done} of {found.trials} are over; {found.running} runs play, {found.failed} have failed."
    lines = ["", counts, *(f"  {name} {does}" for name, does in run.further.items())]
    if (best := found.best) is None:
        return lines
    back = f", {best.newest_mean:.2f} now" if best.newest_mean is not None and best.newest_mean < best.mean else ""
    words = (
        f"Best: trial {best.trial}, {best.mean:.2f} +- {best.standard_error:.2f} after {best.raw_frames:,} raw frames"
    )
    return [*lines, f"{words}{back}: {best.set}".rstrip(": ")]


def _scaling(run: JobView) -> list[str]:
    scaling = run.status.autoscaling
    active, limited = run.status.condition("ScalingActive"), run.status.condition("ScalingLimited")
    actors = run.status.actors
    lines = ["", f"Actors: {scaling.desired_replicas} wanted, {actors.ready} ready, {actors.draining} draining."]
    if scaling.last_decision:
        lines.append(f"Last decision: {scaling.last_decision}")
    if scaling.last_scale_time is not None:
        lines.append(f"The number last changed {age(time.time() - scaling.last_scale_time)} ago.")
    if active is not None and active.status != "True":
        lines.append(f"The number does not follow the learner: {active.reason}{_tail(active.message)}")
    if scaling.recommended_replicas != scaling.desired_replicas or (limited is not None and limited.status == "True"):
        lines.append(f"Recommended: {scaling.recommended_replicas}.")
    if limited is not None and limited.status == "True":
        lines.append(f"Limited by {limited.reason}{_tail(limited.message)}")
    return lines


def _tail(message: str) -> str:
    return f": {message}" if message else ""
