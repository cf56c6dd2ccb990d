"""When a job has succeeded (spec.successPolicy): the first criterion that is met ends it and names the reason."""

from __future__ import annotations

from rljob.api import RLJob

from rljob_operator.model import Observation, Outcome, Phase, Role, State


def target_return(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The mean of the last ``windowEvaluations`` full evaluations has reached ``targetReturn.value``."""
    target = job.spec.success_policy.target_return
    if target is None:
        return None
    wanted = float(target.value)
    full = [e for e in observation.figure("evaluations", []) if e.get("finished", True)]
    window = full[-target.window_evaluations :]
    if len(window) < target.window_evaluations:
        return None
    mean = sum(float(e["mean"]) for e in window) / len(window)
    if mean < wanted:
        return None
    last = window[-1]
    over = f"{int(last['episodes'])} games"
    if len(window) > 1:
        over += f" in each of {len(window)} evaluations"
    return Outcome(
        State.COMPLETE,
        "TargetReturnReached",
        f"mean return {mean:.2f} (standard error {float(last['standard_error']):.2f}) over {over}; target {wanted:g}",
    )


def raw_frames(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The actors have produced ``envFrames`` raw frames."""
    budget = job.spec.success_policy.env_frames
    seen = int(observation.figure("raw_frames_total", 0))
    if budget is None or seen < budget:
        return None
    return Outcome(State.COMPLETE, "StepBudgetReached", f"{seen:,} raw frames of {budget:,} asked for")


def learner_finished(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The learner ended by itself with exit code 0, and the policy counts that as success."""
    if not job.spec.success_policy.on_learner_exit_zero:
        return None
    for member in observation.of(Role.LEARNER):
        if member.phase is Phase.EXITED and member.exit_code == 0:
            return Outcome(State.COMPLETE, "LearnerSucceeded", "the learner ended with exit code 0")
    return None
