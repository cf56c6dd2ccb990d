"""When a job has failed: what no restart mends, and restarts that do not help."""

from __future__ import annotations

from rljob.api import RLJob

from rljob_operator.model import EXIT_CONFIGURATION, Observation, Outcome, Phase, Role, State

EXIT_NON_FINITE_LOSS = 70
"""The learner's exit code when its loss was not finite and ``earlyStopping.onNonFiniteLoss`` is ``Fail``."""

QUICK_EXITS_OF_A_CRASH_LOOP = 5


def configuration_refused(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """A role said with exit code 78 that the job can't run as written."""
    for member in observation.members:
        if member.phase is Phase.EXITED and member.exit_code == EXIT_CONFIGURATION:
            return Outcome(State.FAILED, "FailurePolicyRule", f"{member.name} refused the job: {member.last_words}")
    return None


def learner_gave_up(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The learner's loss was not finite and the job asks to fail then."""
    for member in observation.of(Role.LEARNER):
        if member.phase is Phase.EXITED and member.exit_code == EXIT_NON_FINITE_LOSS:
            return Outcome(State.FAILED, "NonFiniteLoss", member.last_words)
    return None


def backoff_limit(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The learner and the replay shards together have failed more than ``backoffLimit`` times."""
    core = [*observation.of(Role.REPLAY), *observation.of(Role.LEARNER)]
    failures = sum(member.exits for member in core)
    if failures <= job.spec.backoff_limit:
        return None
    last = max((m for m in core if m.exits), key=lambda m: m.since_seconds)
    return Outcome(
        State.FAILED,
        "BackoffLimitExceeded",
        f"{failures} failures of learner and replay, backoffLimit is {job.spec.backoff_limit}; "
        f"last {last.name}, exit code {last.exit_code}: {last.last_words}",
    )


def actors_crash_looping(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """More than ``maxActorCrashLoopPercent`` of the actors die again and again before they work."""
    actors = observation.of(Role.ACTOR)
    looping = [m for m in actors if m.quick_exits >= QUICK_EXITS_OF_A_CRASH_LOOP]
    limit = job.spec.failure_policy.max_actor_crash_loop_percent
    if not actors or 100 * len(looping) <= limit * len(actors):
        return None
    worst = looping[0]
    return Outcome(
        State.FAILED,
        "ActorsCrashLooping",
        f"{len(looping)} of {len(actors)} actors keep ending before they work; "
        f"{worst.name}, exit code {worst.exit_code}: {worst.last_words}",
    )
