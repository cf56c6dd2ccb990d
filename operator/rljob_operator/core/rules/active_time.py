"""The job's clocks: when it started, how long it was active, and since when its roles come up."""

from __future__ import annotations

from rljob.api.controller_memory import AdvanceMemory
from rljob.api.timestamps import stamp

from rljob_operator.core.context import Look
from rljob_operator.core.member import Role
from rljob_operator.core.rules import progress


def start(look: Look) -> Look:
    """Start the clocks of a job that runs: the first time, after a suspension, and after a session of `rljob run` that ended."""
    look = _after_a_crash(look)
    if look.memory.suspension is not None and not look.alive():  # the last member has left since the job was to go on
        look = stop(look)
    if look.status.start_time is None:
        look = look.tell(start_time=look.now)
    if look.memory.active_since is None:
        look = look.remember(active_since=look.now, starting_since=look.now, started=None, advance=_resumes_at(look))
    return look.remember(suspension=None) if look.memory.suspension is not None else look


def stop(look: Look) -> Look:
    """Stop the clocks of a job of which nothing runs any more, and write its progress for the last time."""
    if look.memory.active_since is None:
        return look
    look = progress.write(look)
    seconds = stamp(look.active_seconds())
    look = look.remember(active_since=None, spent_active_seconds=seconds, starting_since=None, started=None)
    return look.tell(active_seconds=int(seconds))


def roles_up(look: Look) -> Look:
    """Note when all roles are ready for the first time after a start; from then on the progress deadline counts."""
    if look.memory.started is not None or not all_up(look):
        return look
    return look.remember(started=look.now)


def all_up(look: Look) -> bool:
    """Whether replay, learner, inference servers and the smallest number of actors are ready."""
    return (
        look.ready(Role.REPLAY) >= look.shards
        and look.learner_ready()
        and look.ready(Role.INFERENCE) >= look.inference_servers
        and look.ready(Role.ACTOR) >= look.needed_actors()
    )


def _resumes_at(look: Look) -> AdvanceMemory | None:
    """The advance so far; the last updates before a stop are known from the checkpoint alone, and are no advance later."""
    before, saved = look.memory.advance, look.observed.checkpoint
    if before is None or not saved.usable or saved.step <= before.updates:
        return before
    return before.model_copy(update={"updates": saved.step, "most_updates": max(saved.step, before.most_updates)})


def _after_a_crash(look: Look) -> Look:
    """A local controller was killed and nothing of its job survived: the time in between was not active.

    The last activeSeconds written stand for what went before; they are at most half a minute old.
    """
    session, since = look.session, look.memory.active_since
    if session is None or since is None or look.alive() or since >= look.now - session.elapsed_seconds - 0.001:
        return look
    return look.remember(active_since=None, spent_active_seconds=float(look.status.active_seconds), started=None)
