"""The figures that both views show, taken from one tick: plain text, ready to print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob.api import RLJob
from rljob.telemetry.progress import Point, Progress, Target, progress

from rljob_operator.controller import Tick

HISTORY_SECONDS = 5.0
"""One moment in so many seconds is kept for the ETA."""


class ProgressTracker:
    """Follows a job towards its stop rule."""

    def __init__(self, job: RLJob) -> None:
        policy = job.spec.success_policy
        wanted = policy.target_return
        self._target = Target(
            raw_frames=policy.env_frames,
            mean_return=float(wanted.value) if wanted is not None else None,
            window_evaluations=wanted.window_evaluations if wanted is not None else 1,
        )
        self._history: list[Point] = []
        words = []
        if wanted is not None:
            words.append(f"mean return {float(wanted.value):g} over {job.spec.evaluator.episodes} games")
        if policy.env_frames is not None:
            words.append(f"{policy.env_frames:,} raw frames")
        self.rule = " or ".join(words) or "no stop rule"

    def at(self, tick: Tick) -> Progress:
        """Progress and ETA as of this tick; ticks come in order of time."""
        status = _status(tick)
        if status and (
            not self._history or tick.elapsed_seconds - self._history[-1].elapsed_seconds >= HISTORY_SECONDS
        ):
            frames, mean = int(status.get("raw_frames_total") or 0), status.get("mean_return")
            self._history.append(Point(tick.elapsed_seconds, frames, mean))
        means = [float(e["mean"]) for e in status.get("evaluations") or [] if e.get("finished", True)]
        return progress(self._target, self._history, means)


def figures(tick: Tick) -> dict[str, str]:
    """Label -> value of the job's main figures; a dash stands for what is not known yet."""
    status = _status(tick)
    replay = status.get("replay") or {}
    depth, bound = status.get("queue_depth_batches"), status.get("queue_bound_batches")
    return {
        "return": _number(status.get("mean_return"), "{:.2f}"),
        "evaluation": _evaluation(status),
        "steps/s": _number(status.get("steps_per_second"), "{:,.0f}"),
        "raw frames/s": _number(status.get("raw_frames_per_second"), "{:,.0f}"),
        "updates/s": _number(status.get("updates_per_second"), "{:,.1f}"),
        "queue": f"{_number(depth, '{:,.0f}')}/{_number(bound, '{:,.0f}')}",
        "replay": f"{_number(replay.get('items'), '{:,}')} ({_number(_percent(replay.get('fill')), '{:.0f} %')})",
        "lag": _number(status.get("policy_lag_updates"), "{:,.0f}"),
        "learner waits": _number(_percent(status.get("learner_wait_fraction")), "{:.0f} %"),
        "actors blocked": _number(_percent(status.get("actors_blocked_fraction")), "{:.0f} %"),
        "steps": _number(status.get("steps_total"), "{:,}"),
        "updates": _number(status.get("updates"), "{:,}"),
    }


def states_line(tick: Tick) -> str:
    """Every member that is not simply ready, in one line; empty where all is well."""
    quick = {each.name: each.quick_ends for each in tick.decision.status.controller.members if each.quick_ends}
    members = tick.observation.members
    odd = [f"{m.name} {m.phase}" + (f" ({quick[m.name]} ends in a row)" if m.name in quick else "") for m in members]
    return ", ".join(text for text, m in zip(odd, members, strict=True) if m.phase != "Ready")


def warnings(tick: Tick) -> tuple[str, ...]:
    """What the user should know now: a replay that is not durable, a checkpoint that could not be written."""
    status = _status(tick)
    found = []
    replay = status.get("replay") or {}
    if replay.get("durable") is False and replay.get("durability") != "Off":
        found.append("replay is not durable: its Redis does not answer; training goes on from memory")
    checkpoint = status.get("checkpoint") or {}
    if checkpoint.get("state") == "Failed":
        found.append(f"checkpoint failed: {checkpoint.get('message', '')}; the one before it stays valid")
    return tuple(found)


def duration(seconds: float | None) -> str:
    """Seconds as 1:02:03 or 2:03; a dash where unknown."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _status(tick: Tick) -> Mapping[str, Any]:
    return tick.observation.learner.document if tick.observation.learner is not None else {}


def _number(value: Any, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "-"


def _percent(fraction: Any) -> float | None:
    return 100.0 * fraction if isinstance(fraction, int | float) else None


def _evaluation(status: Mapping[str, Any]) -> str:
    evaluations = status.get("evaluations") or []
    if not evaluations:
        return "-"
    last = evaluations[-1]
    more = "" if last.get("finished", True) else ", given up early"
    return f"{last['mean']:.2f} ({int(last['episodes'])} games{more})"
