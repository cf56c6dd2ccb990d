"""Jobs, members and observations for tests of the controller: everything is ready unless a test says otherwise."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rljob.api import RLJob, load_manifest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.decide import decide
from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import CheckpointFacts, CheckpointState, Observation
from rljob_operator.core.rules.clocks import IDLE_SECONDS

PONG, CARTPOLE = (Path(__file__).parent / name for name in ("pong.yaml", "cartpole.yaml"))
"""A job of Ape-X and one of IMPALA."""
START = 1_700_000_000.0
LONG_AGO = START - 1000.0
STORAGE = "spec.checkpoint.storage={persistentVolumeClaim: {claimName: checkpoints}}"


SERVERS = ("spec.actors.inference=Central", "spec.inference.replicas=1")
"""Actors ask an inference server of its own, ``inference-0``."""


def make_job(*sets: str) -> RLJob:
    """Pong with two actors and a place for checkpoints."""
    return load_manifest(PONG, ["spec.actors.replicas=2", STORAGE, *sets])


def members(actors: int = 2, **phases: Phase) -> tuple[Member, ...]:
    """All members of a job, ready since long ago; names with underscores give another phase."""
    names = ["replay-0", "learner", *(f"actor-{k}" for k in range(actors)), "evaluator"]
    return tuple(member(name, phases.get(name.replace("-", "_"), Phase.READY)) for name in names)


def member(name: str, phase: Phase = Phase.READY, **fields: Any) -> Member:
    ready = LONG_AGO if phase in (Phase.READY, Phase.EXITED, Phase.DRAINING) else None
    given = {"since_seconds": LONG_AGO, "incarnation": f"{name}-life", "ready_seconds": ready} | fields
    return Member(name, Role.of(name), phase, **given)


def exited(name: str, seen: tuple[Member, ...], **fields: Any) -> tuple[Member, ...]:
    """``seen`` with one member ended unasked at START; it had worked unless ``ready_seconds`` says otherwise."""
    given = {"phase": Phase.EXITED, "since_seconds": START, "exit_code": 1, "last_words": "boom"} | fields
    return tuple(replace(m, **given) if m.name == name else m for m in seen)


def gone(*names: str, seen: tuple[Member, ...] | None = None) -> tuple[Member, ...]:
    """``seen`` without some members."""
    return tuple(m for m in (members() if seen is None else seen) if m.name not in names)


def sample(taken: float = START, updates: int = 1000, **figures: Any) -> LearnerStatus:
    """What a learner says that was asked at ``taken``."""
    said = LearnerStatus.lenient({"updates": updates, "raw_frames_total": 4 * updates} | figures)
    return replace(said, taken_seconds=taken)


def evaluation(mean: float, *, finished: bool = True, version: int = 1) -> dict[str, Any]:
    return {"mean": mean, "standard_error": 0.2, "episodes": 20, "finished": finished, "version": version}


METRIC = "spec.successPolicy={metric: {name: is_success, value: 0.9}}"


def reporting(**metrics: float) -> dict[str, Any]:
    """An evaluation with what the environment reports of its games."""
    return evaluation(0.0) | {"metrics": metrics}


def evaluations(*means: float, first: int = 1) -> list[dict[str, Any]]:
    return [evaluation(mean, version=first + k) for k, mean in enumerate(means)]


def verified(time: float, step: int = 1000) -> CheckpointFacts:
    return CheckpointFacts(CheckpointState.VERIFIED, step, time, f"file:///run/step-{step}", "sha256:ab")


_OF_THE_STORED_OBJECT = ("generation", "checkpoint_requested_at", "refusal", "written", "rendering", "scaled_by_hpa")


def look_at(job: RLJob, status: RLJobStatus, now: float, **world: Any) -> ReconcileContext:
    """A look at a job; ``world`` is what is stored beside its spec, the session, and what is observed."""
    stored = {name: world.pop(name) for name in _OF_THE_STORED_OBJECT if name in world}
    session = world.pop("session", None)
    return ReconcileContext.at(DesiredState(job, **stored), status, Observation(**world), now, session)


def decided(look: ReconcileContext) -> Decision:
    """The decision on what was looked at."""
    return decide(look.desired, look.status, look.observed, look.now, look.session)


class Controller:
    """A controller of one job whose status goes through JSON between any two looks, as after a restart.

    ``world`` holds what is observed; a test changes it and asks for the next decision.
    """

    def __init__(self, job: RLJob, **world: Any) -> None:
        self.job = job
        self.now = START
        self.status = RLJobStatus()
        self.world: dict[str, Any] = {"members": members(), "learner": None} | world
        self.last: Decision | None = None

    def look(self, after: float = 0.0, **world: Any) -> Decision:
        """Let ``after`` seconds pass, with a look at the unchanged world every half minute, then `jump`."""
        while after > IDLE_SECONDS:
            self.jump(IDLE_SECONDS)
            after -= IDLE_SECONDS
        return self.jump(after, **world)

    def jump(self, seconds: float, **world: Any) -> Decision:
        """Set the clock on without a look in between, change the world or the ``job``, and decide."""
        self.now += seconds
        self.job = world.pop("job", self.job)
        self.world |= world
        self.last = decided(look_at(self.job, self.status, self.now, **self.world))
        self.status = RLJobStatus.model_validate(json.loads(json.dumps(self.last.status.document())))
        assert self.status == self.last.status, "the status survives its way through JSON"
        return self.last

    def trained(self, updates: int = 1000) -> Decision:
        """The job is up and its learner has just advanced."""
        self.look(learner=sample(self.now, updates - 1))
        return self.look(1.0, learner=sample(self.now + 1.0, updates))

    def reason(self, type: str) -> tuple[str, str]:
        """(status, reason) of a condition; empty words while there is none."""
        return self.said(type)[:2]

    def said(self, type: str) -> tuple[str, str, str]:
        """(status, reason, message) of a condition; empty words while there is none."""
        condition = self.status.condition(type)
        return ("", "", "") if condition is None else (condition.status, condition.reason, condition.message)

    def ends(self, *waits: float) -> list[str]:
        """How the job has ended after each of these waits, in seconds: the reason, or an empty word while it goes on."""
        return [end_of(self.look(seconds)) for seconds in waits]

    def after(self, seconds: float, world: dict[str, Any] | None = None, /, **expected: Any) -> Decision:
        """`look` after some seconds at a world that has changed, and `expect`."""
        decision = self.look(seconds, **(world or {}))
        self.expect(**expected)
        return decision

    def story(self, *steps: tuple[float, dict[str, Any], dict[str, Any]]) -> None:
        """`after`, step by step: the seconds that pass, what has changed in the world by then, and what is expected."""
        for seconds, world, expected in steps:
            self.after(seconds, world, **expected)

    def looks(self, *worlds: dict[str, Any]) -> Decision:
        """A look a second, each at what has changed in the world by then; answers the last decision."""
        return [self.look(1.0, **world) for world in worlds][-1]

    def expect(self, **expected: Any) -> None:
        """Compare with what was decided and is said: ``end`` (`end_of` the decision), (status, reason) of conditions by their
        types, fields of the last decision, of the status, and of its parts ``restarts``, ``autoscaling``, ``controller``."""
        assert {name: self._found(name) for name in expected} == expected

    def _found(self, name: str) -> Any:
        if name == "end":
            return end_of(self.last)
        if name[0].isupper():
            return self.reason(name)
        parts = (self.last, self.status, self.status.restarts, self.status.autoscaling, self.status.controller)
        return getattr(next(part for part in parts if hasattr(part, name)), name)


def end_of(decision: Decision) -> str:
    """The reason why a decision ends the job; an empty word where it goes on."""
    return "" if decision.outcome is None else decision.outcome.reason


def running(*sets: str, **world: Any) -> Controller:
    """A job that is up and trains."""
    controller = Controller(make_job(*sets), **world)
    controller.trained()
    return controller
