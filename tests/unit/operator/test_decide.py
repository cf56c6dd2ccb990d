"""`decide` against the promises it makes: pure, level-based, ordered, latched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.api import RLJob, load_manifest
from rljob_operator.decide import decide
from rljob_operator.model import (
    EXIT_CONFIGURATION,
    FINAL_STATES,
    JobStatus,
    LearnerSample,
    Member,
    Observation,
    Outcome,
    Phase,
    Role,
    State,
)
from rljob_operator.rules.failures import EXIT_NON_FINITE_LOSS, QUICK_EXITS_OF_A_CRASH_LOOP

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"


@pytest.fixture(scope="module")
def job() -> RLJob:
    return load_manifest(EXAMPLES / "pong-apex.yaml", ["spec.actors.replicas=2"])


def members(**phases: Phase) -> tuple[Member, ...]:
    """The members of a two-actor job; names are given with underscores, what is not given is ready."""
    roles = {
        "replay-0": Role.REPLAY,
        "learner": Role.LEARNER,
        "actor-0": Role.ACTOR,
        "actor-1": Role.ACTOR,
        "evaluator": Role.EVALUATOR,
    }
    return tuple(Member(name, role, phases.get(name.replace("-", "_"), Phase.READY)) for name, role in roles.items())


def observation(seen: tuple[Member, ...] | None = None, **learner: Any) -> Observation:
    sample = LearnerSample(learner, 0.0) if learner else None
    return Observation(status=JobStatus(), members=seen if seen is not None else members(), learner=sample)


def exited(name: str, seen: tuple[Member, ...], **fields: Any) -> tuple[Member, ...]:
    return tuple(replace(m, phase=Phase.EXITED, **({"exits": 1} | fields)) if m.name == name else m for m in seen)


def evaluation(mean: float, *, finished: bool = True) -> dict[str, Any]:
    return {"mean": mean, "standard_error": 0.2, "episodes": 20, "finished": finished}


def test_a_fresh_job_starts_its_replay_alone(job: RLJob) -> None:
    nothing = tuple(replace(m, phase=Phase.ABSENT) for m in members())
    assert decide(job, observation(nothing), 0.0).start == ("replay-0",)


def test_the_learner_follows_a_ready_replay_and_the_rest_a_ready_learner(job: RLJob) -> None:
    nothing = members(learner=Phase.ABSENT, actor_0=Phase.ABSENT, actor_1=Phase.ABSENT, evaluator=Phase.ABSENT)
    assert decide(job, observation(nothing), 0.0).start == ("learner",)
    starting = members(learner=Phase.STARTING, actor_0=Phase.ABSENT, actor_1=Phase.ABSENT, evaluator=Phase.ABSENT)
    assert decide(job, observation(starting), 0.0).start == ()
    ready = members(actor_0=Phase.ABSENT, actor_1=Phase.ABSENT, evaluator=Phase.ABSENT)
    assert decide(job, observation(ready), 0.0).start == ("actor-0", "actor-1", "evaluator")


@pytest.mark.parametrize("name", ["replay-0", "learner", "actor-0", "actor-1", "evaluator"])
def test_a_member_that_was_killed_comes_back_at_once(job: RLJob, name: str) -> None:
    decision = decide(job, observation(exited(name, members(), exit_code=-9), updates=10), 5.0)
    assert decision.start == (name,)
    assert decision.state is State.RUNNING


def test_actors_come_back_while_the_learner_is_down(job: RLJob) -> None:
    both = exited("learner", exited("actor-1", members()))
    assert set(decide(job, observation(both, updates=1), 1.0).start) == {"learner", "actor-1"}


def test_restarts_that_do_not_help_are_delayed(job: RLJob) -> None:
    seen = exited("actor-0", members(), quick_exits=4, exits=4, since_seconds=10.0)
    assert decide(job, observation(seen, updates=1), 13.9).start == ()
    assert decide(job, observation(seen, updates=1), 14.0).start == ("actor-0",)


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        ({"evaluations": [evaluation(18.5)]}, "TargetReturnReached"),
        ({"raw_frames_total": 10**12}, "StepBudgetReached"),
    ],
)
def test_success(job: RLJob, learner: dict[str, Any], reason: str) -> None:
    bounded = job.model_copy(deep=True)
    bounded.spec.success_policy.__dict__["env_frames"] = 10**9
    decision = decide(bounded, observation(updates=5, **learner), 1.0)
    assert decision.status.outcome is not None
    assert (decision.status.outcome.state, decision.status.outcome.reason) == (State.COMPLETE, reason)
    assert decision.state is State.FINISHING, "members still run, so the job is not over yet"


def test_an_evaluation_that_was_given_up_early_is_no_verdict(job: RLJob) -> None:
    assert decide(job, observation(evaluations=[evaluation(20.0, finished=False)]), 1.0).status.outcome is None


def test_failures_say_what_failed(job: RLJob) -> None:
    refused = exited("actor-0", members(), exit_code=EXIT_CONFIGURATION, last_words="no ROM")
    outcome = decide(job, observation(refused), 1.0).status.outcome
    assert outcome is not None
    assert "actor-0 refused the job: no ROM" in outcome.message
    nan = exited("learner", members(), exit_code=EXIT_NON_FINITE_LOSS, last_words="loss is nan at update 7")
    outcome = decide(job, observation(nan), 1.0).status.outcome
    assert outcome == Outcome(State.FAILED, "NonFiniteLoss", "loss is nan at update 7")
    often = exited("learner", members(), exits=job.spec.backoff_limit + 1, exit_code=-11, last_words="killed")
    outcome = decide(job, observation(often), 1.0).status.outcome
    assert outcome is not None
    assert outcome.reason == "BackoffLimitExceeded"
    looping = exited("actor-0", members(), quick_exits=QUICK_EXITS_OF_A_CRASH_LOOP)
    assert decide(job, observation(looping), 1.0).status.outcome is None, "half of the actors is not more than half"
    looping = exited("actor-1", looping, quick_exits=QUICK_EXITS_OF_A_CRASH_LOOP)
    outcome = decide(job, observation(looping), 1.0).status.outcome
    assert outcome is not None
    assert outcome.reason == "ActorsCrashLooping"


def test_bounds_in_time(job: RLJob) -> None:
    stopped = decide(job, replace(observation(updates=3), max_seconds=30.0), 30.0).status.outcome
    assert stopped is not None
    assert (stopped.state, stopped.reason) == (State.STOPPED, "MaxSecondsReached")
    interrupted = decide(job, replace(observation(updates=3), interrupted=True), 1.0).status.outcome
    assert interrupted is not None
    assert interrupted.state is State.INTERRUPTED
    stalled = replace(observation(updates=3), status=JobStatus(last_advance=(3, 0.0)))
    limit = job.spec.progress_deadline_seconds
    assert limit is not None
    outcome = decide(job, stalled, float(limit)).status.outcome
    assert outcome is not None
    assert outcome.reason == "ProgressDeadlineExceeded"
    assert decide(job, stalled, limit - 0.5).status.outcome is None


def test_the_drain_goes_from_the_outside_in(job: RLJob) -> None:
    seen = observation(members())
    ended = replace(seen, status=JobStatus(outcome=Outcome(State.COMPLETE, "r", "m")))
    assert decide(job, ended, 0.0).drain == ("actor-0", "actor-1", "evaluator")
    gone = members(actor_0=Phase.EXITED, actor_1=Phase.EXITED, evaluator=Phase.EXITED)
    assert decide(job, replace(ended, members=gone), 0.0).drain == ("learner",)
    gone = members(actor_0=Phase.EXITED, actor_1=Phase.EXITED, evaluator=Phase.EXITED, learner=Phase.DRAINING)
    assert decide(job, replace(ended, members=gone), 0.0).drain == ()
    gone = members(actor_0=Phase.EXITED, actor_1=Phase.EXITED, evaluator=Phase.EXITED, learner=Phase.EXITED)
    assert decide(job, replace(ended, members=gone), 0.0).drain == ("replay-0",)
    everything = tuple(replace(m, phase=Phase.EXITED) for m in gone)
    over = decide(job, replace(ended, members=everything), 0.0)
    assert over.finished
    assert over.state is State.COMPLETE


MEMBERS = st.tuples(
    *(
        st.builds(
            Member,
            name=st.just(name),
            role=st.just(role),
            phase=st.sampled_from(Phase),
            since_seconds=st.floats(0, 100),
            exits=st.integers(0, 8),
            quick_exits=st.integers(0, 8),
            exit_code=st.sampled_from([None, 0, 1, -9, 70, 78]),
        )
        for name, role in [
            ("replay-0", Role.REPLAY),
            ("learner", Role.LEARNER),
            ("actor-0", Role.ACTOR),
            ("actor-1", Role.ACTOR),
            ("evaluator", Role.EVALUATOR),
        ]
    )
)
LEARNER = st.none() | st.fixed_dictionaries(
    {"updates": st.none() | st.integers(0, 10**6), "raw_frames_total": st.none() | st.integers(0, 10**9)},
    optional={"evaluations": st.lists(st.builds(evaluation, st.floats(-21, 21), finished=st.booleans()), max_size=3)},
)
OUTCOMES = st.none() | st.builds(Outcome, st.sampled_from(sorted(FINAL_STATES)), st.just("Reason"), st.just("words"))


@settings(max_examples=2000, deadline=None)
@given(seen=MEMBERS, learner=LEARNER, outcome=OUTCOMES, now=st.floats(0, 10**6), interrupted=st.booleans())
def test_whatever_is_observed(seen, learner, outcome, now, interrupted) -> None:
    job = _JOB
    look = Observation(
        status=JobStatus(outcome=outcome),
        members=seen,
        learner=LearnerSample(learner, 0.0) if learner is not None else None,
        interrupted=interrupted,
    )
    decision = decide(job, look, now)
    assert decision == decide(job, look, now), "the same look gives the same decision"
    if outcome is not None:
        assert decision.status.outcome == outcome, "an outcome is a latch"
    assert not (decision.start and decision.drain), "a job is brought up or taken down, never both"
    phases = {m.name: m.phase for m in seen}
    assert all(phases[name] in (Phase.ABSENT, Phase.EXITED) for name in decision.start)
    assert all(phases[name] in (Phase.STARTING, Phase.READY) for name in decision.drain)
    if decision.finished:
        assert all(m.phase in (Phase.ABSENT, Phase.EXITED) for m in seen), "nothing is left behind"
        assert decision.start == ()
    if interrupted:
        assert decision.status.outcome is not None


_JOB = load_manifest(EXAMPLES / "pong-apex.yaml", ["spec.actors.replicas=2"])
