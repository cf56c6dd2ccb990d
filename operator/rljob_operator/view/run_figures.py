"""The figures that the views show, of a turn and of each actor: plain text, ready to print."""

from collections.abc import Mapping
from typing import Any

from rljob.api import RLJob
from rljob.api.episode_metrics import in_words
from rljob.api.job import RLJobSpec
from rljob.api.learner_status import ActorStatus, LearnerStatus, ReplaySummary, Verdict, in_words as bound_in_words
from rljob.api.presets import PRESETS

from rljob_operator.core.member import Phase, Role
from rljob_operator.core.rules import success
from rljob_operator.core.turn import Turn
from rljob_operator.view.words import duration, number, percent

_TOLD: dict[str, tuple[str, ...]] = {
    "Accepted": (),
    "Progressing": ("ExperienceBlocked", "LearnerStalled", "Starved"),
    "CheckpointValid": ("Stale", "StorageError"),
}
"""Conditions that are worth a warning when they are False, and for which reasons; none named means any."""


def stop_rule(job: RLJob) -> str:
    """What ends the job, in words."""
    policy, words = job.spec.success_policy, []
    if policy.target_return is not None:
        words.append(f"mean return {float(policy.target_return.value):g} over {job.spec.evaluator.episodes} games")
    if policy.metric is not None:
        words.append(f"{policy.metric.name} {policy.metric.value:g} over {job.spec.evaluator.episodes} games")
    if policy.raw_frames is not None:
        words.append(f"{policy.raw_frames:,} raw frames")
    return " or ".join(words) or "no stop rule"


def figures(turn: Turn) -> dict[str, str]:
    """Label -> value of the job's main figures; a dash stands for what is not known yet."""
    status = learner_status(turn)
    depth, bound = status.queue_depth_batches, status.queue_bound_batches
    return {
        "return": number(status.mean_return, "{:.2f}"),
        "evaluation": evaluation(status, turn.desired.job.spec.evaluator.trigger_return),
        **reported(status),
        "steps/s": number(status.steps_per_second, "{:,.0f}"),
        "raw frames/s": number(status.raw_frames_per_second, "{:,.0f}"),
        "updates/s": number(status.updates_per_second, "{:,.1f}"),
        "queue": f"{number(depth, '{:,.0f}')}/{number(bound, '{:,.0f}')}",
        **stored(status),
        "lag": number(status.policy_lag_updates, "{:,.0f}"),
        "learner waits": percent(status.learner_wait_fraction),
        "actors blocked": percent(status.actors_blocked_fraction),
        "steps": number(status.steps_total, "{:,}"),
        "updates": number(status.updates, "{:,}"),
    }


def reported(status: LearnerStatus) -> dict[str, str]:
    """What the environment itself reports of its episodes, by the names that metrics.jsonl has."""
    return in_words(status.episode, status.episode_games, status.games or 0, "episode/")


def way_covered(turn: Turn) -> str:
    """Percent, and the time to go where it can be known; empty where neither is."""
    done = turn.decision.status.progress
    if done.percent is None:
        return ""
    to_go = "" if done.estimated_seconds_remaining is None else f" eta {duration(done.estimated_seconds_remaining)}"
    return f"{done.percent} %{to_go}"


def states_line(turn: Turn) -> str:
    """Every member that is not simply ready, in one line; empty where all is well."""
    odd = []
    for member in turn.observed.members:
        if member.failed:
            odd.append(f"{member.name} ended ({member.last_words})")
        elif member.phase is not Phase.READY and not (member.asked and member.phase is Phase.EXITED):
            odd.append(f"{member.name} {member.phase}")
    return ", ".join(odd)


def stored(status: LearnerStatus) -> dict[str, str]:
    """What waits to be learned from: transitions in the replay, or the fate of unrolls where there is none."""
    queue, replay = status.queue, status.replay or ReplaySummary()
    if queue is not None:
        looked_at = queue.dropped.get("centring", 0)  # those that statistics of observations begin with
        lost = sum(queue.dropped.values()) - looked_at
        words = f"{number(queue.learned, '{:,}')} learned, {number(lost, '{:,}')} dropped"
        return {"unrolls": f"{words}, {looked_at:,} for statistics alone" if looked_at else words}
    return {"replay": f"{number(replay.items, '{:,}')} ({percent(replay.fill)})"}


def gpu(status: LearnerStatus) -> dict[str, str]:
    """The learner's GPU in a few words: how busy, how full, what it draws. Empty for a learner without one."""
    found = status.gpu
    if not found:
        return {}
    used, whole = (found.get(f"memory_{name}_bytes") for name in ("used", "total"))
    activity = found.get("sm_activity", found.get("utilization"))
    words = [f"{percent(activity)} busy", f"{number(_gib(used), '{:.1f}')} of {number(_gib(whole), '{:.1f}')} GiB"]
    if found.get("power_watts") is not None:
        words.append(f"{number(found['power_watts'], '{:.0f}')} W")
    return {"GPU": ", ".join(words)}


def _gib(size: object) -> float | None:
    return size / 2**30 if isinstance(size, int | float) else None


def warnings(turn: Turn, *, conditions: bool = True) -> tuple[str, ...]:
    """What the user should know now: a replay that is not durable and, by its ``conditions``, a refused edit, a learner that
    stands still, a checkpoint that could not be written."""
    replay, found = (
        learner_status(turn).replay,
        success.unreported(turn.desired.job.spec.success_policy, learner_status(turn)),
    )
    if replay is not None and replay.durable is False and replay.durability != "Off":
        why = replay.not_durable_because or "its Redis does not answer"
        found.append(f"replay is not durable: {why}; training goes on from memory")
    for type, reasons in _TOLD.items() if conditions else ():
        condition = turn.decision.status.condition(type)
        if condition is not None and condition.status == "False" and (not reasons or condition.reason in reasons):
            found.append(f"{type} {condition.reason}: {condition.message}")
    return tuple(found)


def learner_status(turn: Turn) -> LearnerStatus:
    """What the learner reports, while there is a learner: what one reported before it left is no figure of now."""
    seen = turn.observed
    here = any(m.phase in (Phase.READY, Phase.DRAINING) for m in seen.of(Role.LEARNER))
    return seen.learner if seen.learner is not None and here else LearnerStatus()


def likely_need(spec: RLJobSpec, raw_frames: int, raw_frames_per_second: float) -> str:
    """How long this machine is likely to take to a preset's own target, with what it plays now; nothing where that is unknown."""
    preset = None if spec.preset is None else PRESETS[spec.preset]
    if preset is None or not preset.is_whole_for(spec.environment.id) or not raw_frames_per_second:
        return ""
    left = (preset.raw_frames_to_target or 0) - raw_frames
    if left <= 0:
        return ""
    return (
        f"{preset.name} took about {preset.raw_frames_to_target:,} raw frames where it was measured: "
        f"{duration(left / raw_frames_per_second)} more at the {raw_frames_per_second:,.0f} a second that are played now, and "
        "then the games of its verdict"
    )


def evaluation(status: LearnerStatus, trigger_return: float | None = None) -> str:
    """How far the evaluation under way has come, and the last verdict; before the first a dash, or the return of training that
    it waits for."""
    under_way, said = status.evaluating, []
    if under_way is not None:
        said.append(f"{under_way.games} of {under_way.episodes} games")
        if under_way.mean is not None:
            said[0] += f", mean {under_way.mean:.2f} so far{bound_in_words(under_way.at_least)}"
        if under_way.alone:
            said[0] += ", training stands still"
    if status.evaluations:
        said.append(f"{'last ' if said else ''}{verdict(status.evaluations[-1])}")
    return "; ".join(said) or ("-" if trigger_return is None else f"from a return of {trigger_return:g} on")


def verdict(evaluation: Verdict) -> str:
    """The mean return of an evaluation, its standard error, what the environment reports, and of how many games."""
    more = "" if evaluation.finished else ", given up early"
    error = f" +- {evaluation.standard_error:.2f}" if evaluation.standard_error is not None else ""
    games = "1 game" if evaluation.episodes == 1 else f"{evaluation.episodes} games"
    reported = in_words(evaluation.metrics, evaluation.metric_games, evaluation.episodes)
    of_the_environment = "".join(f", {name} {mean}" for name, mean in reported.items())
    return f"{evaluation.mean:.2f}{error}{evaluation.how_sure}{of_the_environment} ({games}{more})"


def blocked_fraction(actor: ActorStatus, before: ActorStatus | None = None) -> float | None:
    """Share of time that an actor was held back since its status at an earlier time in the same life, or in its whole life."""
    then = before.stages if before is not None and before.incarnation == actor.incarnation else {}
    spent = {stage: seconds - then.get(stage, 0.0) for stage, seconds in actor.stages.items()}
    whole = sum(spent.values())
    return spent.get("blocked", 0.0) / whole if whole > 0 else None


def stage_seconds(server: Mapping[str, Any]) -> float:
    """All the time that an inference server has accounted for; 0 where it reports nothing."""
    stages = server.get("stages")
    return sum(each for each in stages.values() if isinstance(each, int | float)) if isinstance(stages, dict) else 0.0
