"""When to look at a job again though nothing has been heard of it."""

from __future__ import annotations

from rljob_operator.core.context import Look, Mode
from rljob_operator.core.member import Member
from rljob_operator.core.rules import failures, progress
from rljob_operator.core.rules import start_and_drain as lifecycle

IDLE_SECONDS = 30.0
"""A running job is looked at this often at least: its progress is written then."""

LEAVING_SECONDS = 5.0
"""So often while members leave or a checkpoint is waited for."""


def next_look_seconds(look: Look, mode: Mode) -> float | None:
    """Seconds until the next timer is due; None where only a change can bring anything (suspended, kept after its end)."""
    if mode in (Mode.FINISHED, Mode.FINISHING):
        return _after_the_end(look, mode)
    if mode is Mode.ACCEPTING or (mode is Mode.SUSPENDING and not look.alive()):
        return None
    if mode is not Mode.RUNNING:
        return LEAVING_SECONDS
    due = [IDLE_SECONDS, progress.stall_window_seconds(look), *_restarts(look), *_deadlines(look)]
    if look.spec.autoscaling.mode == "Internal":
        due.append(float(look.spec.autoscaling.sample_period_seconds))
    return max(0.0, min(due))


def _restarts(look: Look) -> list[float]:
    if not look.memory.members:
        return []
    there = {m.name: m for m in look.observed.members}
    waiting = (each for each in look.memory.members if not each.abandoned and not each.dismissed)
    delays = (
        failures.restart_due(look, there.get(each.name), each) for each in waiting if _is_down(there.get(each.name))
    )
    return [delay for delay in delays if delay > 0]


def _is_down(member: Member | None) -> bool:
    return member is None or not member.alive


def _deadlines(look: Look) -> list[float]:
    spec, found = look.spec, []
    if spec.active_deadline_seconds is not None:
        found.append(spec.active_deadline_seconds - look.active_seconds())
    if look.memory.started is None:
        found.append(spec.startup_deadline_seconds - look.watched_for(look.memory.starting_since))
    return found


def _after_the_end(look: Look, mode: Mode) -> float | None:
    left = [LEAVING_SECONDS] if mode is Mode.FINISHING else []
    ttl = lifecycle.ttl_seconds_left(look)
    if ttl is not None:
        left.append(ttl)
    stays = lifecycle.stays_seconds(look)
    if stays > 0:
        left.append(stays)
    return min(left, default=None)
