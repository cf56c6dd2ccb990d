"""A world that does whatever it likes to a job, and what must hold at every look at it.

Each case is one look: `decide` on whatever the world has become. At every second look, by chance, the status is led through JSON,
as by a controller that was restarted.
The test takes a few thousand cases; `python tests/unit/operator/test_properties.py 60` runs for a minute and prints how many it
took and what they cost (`docs/performance.md` has the figures).
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rljob.api import RLJob, load_manifest
from rljob.api.conditions import CATALOGUE, ConditionType, Reason
from rljob.api.status import RLJobStatus
from rljob_operator.decide import decide
from rljob_operator.model import (
    Admission,
    CheckpointFacts,
    CheckpointState,
    Decision,
    Member,
    Observation,
    Phase,
    Refusal,
    Role,
    Session,
)
from rljob_operator.sample import BadSample, parse_sample

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
MIN, MAX = 2, 9
STORAGE = "spec.checkpoint.storage={persistentVolumeClaim: {claimName: checkpoints}}"
COMMON = [
    STORAGE,
    "spec.actors.replicas=3",
    "spec.startupDeadlineSeconds=120",
    "spec.progressDeadlineSeconds=200",
    "spec.failurePolicy.resetAfterSeconds=100",
    "spec.checkpoint.intervalSeconds=30",
    "spec.successPolicy.envFrames=6000",
]
RULES = "spec.failurePolicy.rules=[{name: odd, onExitCodes: {values: [3]}, action: %s}]"
SETTINGS = (
    [],
    ["spec.suspend=true"],
    ["spec.suspend=true", "spec.checkpoint.onSuspend=BestEffort"],
    ["spec.actors.replicas=7"],
    ["spec.actors.startupWave=1", "spec.actors.onEviction=Ignore"],
    ["spec.activeDeadlineSeconds=300", "spec.evaluator.enabled=false", "spec.successPolicy.targetReturn="],
    ["spec.podCleanup={onComplete: None, onFailed: All}", RULES % "FailJob"],
    ["spec.podCleanup={afterSeconds: 20}", "spec.ttlSecondsAfterFinished=30", RULES % "Ignore"],
    ["spec.autoscaling.pause=ScaleIn", "spec.backoffLimit=0"],
)
MODES = ("Internal", "External", "Disabled")


def _jobs() -> dict[tuple[str, int], RLJob]:
    found = {}
    for mode in MODES:
        periods = "samplePeriodSeconds: 5, rateWindowSeconds: 10"
        bounds = f"spec.autoscaling={{mode: {mode}, minReplicas: {MIN}, maxReplicas: {MAX}, {periods}}}"
        for k, sets in enumerate(SETTINGS):
            extra = list(sets)
            if "spec.evaluator.enabled=false" in extra:
                extra.append("spec.evaluator.triggerReturn=")
            found[mode, k] = load_manifest(EXAMPLES / "pong-apex.yaml", [*COMMON, bounds, *extra])
    return found


JOBS: dict[tuple[str, int], RLJob] = {}


@dataclass
class World:
    """Members that live and die at random, a learner that tells the truth, nonsense or nothing, and a user who edits."""

    chance: random.Random
    now: float = 1_700_000_000.0
    mode: str = "Internal"
    setting: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    updates: int = 0
    frames: int = 0
    life: int = 0
    observed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not JOBS:
            JOBS.update(_jobs())
        self.mode = self.chance.choice(MODES)
        self.observed = {"keeps_remains": self.chance.random() < 0.5, "generation": 1}

    @property
    def job(self) -> RLJob:
        return JOBS[self.mode, self.setting]

    def often(self, probability: float) -> bool:
        return self.chance.random() < probability

    def turn(self) -> None:
        """Some time passes, and something happens."""
        self.now += self.chance.choice((0.0, 0.5, 1.0, 5.0, 5.0, 30.0))
        self.observed["leap_seconds"] = 0.0
        if self.often(0.005):
            self.now += self.chance.choice((-3600.0, 400.0))
        if self.often(0.01):
            leap = self.chance.choice((-3600.0, 30_000.0))
            self.now, self.observed["leap_seconds"] = self.now + leap, leap
        if self.often(0.03):
            self.setting = self.chance.randrange(len(SETTINGS)) if self.often(0.5) else 0
            self.observed["generation"] += 1
        for name, member in list(self.members.items()):
            self.members[name] = self._lived(member)
        if self.members and self.often(0.01):
            del self.members[self.chance.choice(sorted(self.members))]
        self._learner()
        self._surroundings()

    def _lived(self, member: Member) -> Member:
        to = dict[str, Any](since_seconds=self.now)
        if member.phase is Phase.STARTING and self.often(0.5):
            return replace(member, phase=Phase.READY, ready_seconds=self.now, waiting=None, **to)
        if member.phase is Phase.DRAINING and self.often(0.6):
            return replace(member, phase=Phase.EXITED, asked=True, exit_code=self.chance.choice((0, -9, 1)), **to)
        if member.phase in (Phase.STARTING, Phase.READY) and self.often(0.01):
            code = self.chance.choice((0, 1, 3, -9, 137, 1, 1, -9, 1, 70, 78) if self.often(0.1) else (1, -9))
            disrupted = "spot notice" if self.often(0.3) else ""
            return replace(member, phase=Phase.EXITED, exit_code=code, disrupted=disrupted, last_words="bang", **to)
        if member.phase is Phase.STARTING and self.often(0.05):
            return replace(member, waiting=self.chance.choice((Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED)))
        return member

    def _learner(self) -> None:
        learner = self.members.get("learner")
        if learner is None or learner.phase is not Phase.READY or self.often(0.2):
            self.observed["missing"] = "timed out"
            return
        self.updates = max(0, self.updates + self.chance.choice((0, 1, 50, 50, 50)))
        if self.often(0.01):
            self.updates //= 2
        self.frames += self.chance.choice((0, 40, 400))
        document: dict[str, Any] = {
            "updates": self.updates,
            "raw_frames_total": self.frames,
            "learner_wait_fraction": self.chance.random(),
            "actors_blocked_fraction": self.chance.random(),
            "consumption_per_second": 1000.0 * self.chance.random(),
            "production_per_second": 100.0 * self.chance.random(),
            "queue_depth_batches": 64.0 * self.chance.random(),
            "queue_bound_batches": 64.0,
            "policy_lag_updates_p95": 500.0 * self.chance.random(),
            "evaluations": [{"mean": 30.0 * self.chance.random() - 20.0, "standard_error": 1.0, "episodes": 20}],
        }
        if self.often(0.1):
            document[self.chance.choice(sorted(document))] = self.chance.choice((float("nan"), -1, "x", None, 1e99))
        taken = self.now - self.chance.choice((0.0, 0.0, 1.0, 100.0))
        try:
            self.observed |= {"learner": parse_sample(document, taken), "missing": ""}
        except BadSample as problem:
            self.observed["missing"] = str(problem)

    def _surroundings(self) -> None:
        if self.often(0.1):
            state = self.chance.choice((CheckpointState.VERIFIED, CheckpointState.VERIFIED, *CheckpointState))
            facts = CheckpointFacts(state, self.updates, self.now, "file:///c", "sha256:0", "words")
            self.observed["checkpoint"] = CheckpointFacts() if state is CheckpointState.MISSING else facts
        if self.often(0.01):
            self.observed["checkpoint_requested_at"] = self.chance.choice(("", f"{self.now}", "now"))
        if self.often(0.02):
            refusal = Refusal(Reason.POD_TEMPLATE_REJECTED, "words", blocking=self.often(0.5))
            self.observed["refusal"] = refusal if self.often(0.3) else None
        if self.often(0.02):
            held = Admission(True, Reason.QUOTA_RESERVED, max_actors=self.chance.choice((None, 1, 5)))
            lost = Admission(False, Reason.EVICTED)
            self.observed["admission"] = self.chance.choice((None, None, held, lost))
        if self.often(0.02):
            self.observed["max_actors"] = self.chance.choice((None, None, 1, 4))
            self.observed["cores"] = self.chance.choice((None, 2, 5))
        if self.often(0.01):
            session = Session(self.chance.uniform(0, 100), 50.0, self.often(0.1))
            self.observed["session"] = self.chance.choice((None, None, session))

    def apply(self, decision: Decision) -> None:
        """Do what was decided, most of the time: a substrate may fail and be asked again."""
        for name in decision.start:
            if self.often(0.9):
                self.life += 1
                self.members[name] = Member(
                    name, Role(name.partition("-")[0]), Phase.STARTING, self.now, str(self.life)
                )
        for name in decision.drain:
            if self.often(0.9):
                self.members[name] = replace(self.members[name], phase=Phase.DRAINING, since_seconds=self.now)
        for name in decision.remove:
            self.members.pop(name)


def restarted(status: RLJobStatus) -> RLJobStatus:
    """The status as a controller finds it that was started just now."""
    return RLJobStatus.model_validate_json(status.model_dump_json(by_alias=True, exclude_none=True))


def check(job: RLJob, seen: Observation, decision: Decision, now: float) -> None:
    """What holds at every look."""
    before, after = seen.status, decision.status
    phases = {m.name: m.phase for m in seen.members}
    assert len(set(decision.start)) == len(decision.start)
    assert not set(decision.start) & set(decision.drain)
    assert all(phases.get(n, Phase.ABSENT) in (Phase.ABSENT, Phase.EXITED) for n in decision.start)
    assert all(phases[n] in (Phase.STARTING, Phase.READY) for n in decision.drain)
    assert all(phases[n] is Phase.EXITED for n in decision.remove)

    outcome = before.controller.outcome
    if outcome is not None:
        assert after.controller.outcome is not None
        times = {outcome.time, min(outcome.time, round(now, 3))}  # a clock set back may bring it to the present
        assert after.controller.outcome.time in times
        same = outcome.model_copy(update={"time": after.controller.outcome.time})
        assert after.controller.outcome == same, "an end is decided once"
        assert decision.start == (), "nothing is made again for a job that ends"
    if before.finished:
        assert after == before, "a finished job's status never changes"
        assert decision.finished
    assert not (after.is_true("Failed") and after.is_true("Complete"))
    if after.is_true("Failed"):
        assert after.is_true("FailureTarget")
    if after.finished and not before.finished:
        assert after.completion_time == round(now, 3)
        left = [m for m in seen.members if m.alive]
        assert not any(m.role is Role.LEARNER for m in left), "the accelerator is free"
        cleanup = job.spec.pod_cleanup
        assert not left or (
            seen.keeps_remains and ("None" in (cleanup.on_complete, cleanup.on_failed) or cleanup.after_seconds)
        )
    if job.spec.suspend or (seen.admission is not None and not seen.admission.admitted):
        assert decision.start == (), "nothing starts for a job that is to be suspended"
        assert outcome is not None or after.controller.outcome is None, "nor is it judged"

    _check_scaling(job, seen, decision, now)
    assert len(after.failures) <= 5
    assert all(len(c.message) <= 1024 for c in after.conditions)
    assert len({c.type for c in after.conditions}) == len(after.conditions)
    assert decision.requeue_seconds is None or decision.requeue_seconds >= 0
    reason = after.controller.outcome.reason if after.controller.outcome is not None and outcome is None else ""
    waited = ("StartupDeadlineExceeded", "ProgressDeadlineExceeded")
    assert not (seen.leap_seconds and reason in waited), "no leap of the clock lets a wait run out"


def _check_scaling(job: RLJob, seen: Observation, decision: Decision, now: float) -> None:
    before, after = seen.status.autoscaling, decision.status.autoscaling
    scaling = job.spec.autoscaling
    decided = decision.status.controller.outcome is None and after != before
    if decided and scaling.mode != "Disabled":
        assert MIN <= after.desired_replicas <= MAX
    if decided and seen.max_actors is not None:
        assert after.desired_replicas <= max(MIN, seen.max_actors)
    if decided and seen.cores is not None and scaling.mode != "Disabled":
        assert after.desired_replicas <= max(MIN, seen.cores)
    wish = before.memory.get("requested")
    if decided and scaling.mode == "Internal" and wish == job.spec.actors.replicas:
        fresh = (
            seen.learner is not None
            and -1 <= now - seen.learner.taken_seconds <= scaling.missing_metrics.stale_after_seconds
        )
        limits = [
            c
            for c in (seen.max_actors, seen.cores, seen.admission.max_actors if seen.admission else None, MAX)
            if c is not None
        ]
        bounded = max(MIN, min(before.desired_replicas, *limits))
        assert fresh or after.desired_replicas == bounded, "no decision from a stale sample"
    members = [m for m in seen.members if m.role is Role.ACTOR and m.phase in (Phase.STARTING, Phase.READY)]
    started = [n for n in decision.start if n.startswith("actor")]
    if started:
        assert len(members) + len(started) <= after.desired_replicas
        starting = sum(m.phase is Phase.STARTING for m in members)
        assert starting + len(started) <= job.spec.actors.startup_wave


def walk(seed: int, looks: int) -> tuple[int, set[str]]:
    """One job's life; answers how many looks it took and the states it went through."""
    world = World(random.Random(seed))
    status, states = RLJobStatus(), set[str]()
    for look in range(looks):
        world.turn()
        seen = Observation(status=status, members=tuple(world.members.values()), **world.observed)
        decision = decide(world.job, seen, world.now)
        check(world.job, seen, decision, world.now)
        if look % 4 == 0:
            assert decision == decide(world.job, seen, world.now), "the same look gives the same decision"
        world.apply(decision)
        status = decision.status
        states.add(status.state)
        if world.often(0.5):
            status = restarted(status)
            assert status == decision.status, "nothing is lost on the way through JSON"
        if decision.delete_job:
            return look + 1, states
    return looks, states


def run(seconds: float, first_seed: int = 0) -> tuple[int, set[str]]:
    """Walk for a time; answers the number of cases and the states that the walks went through."""
    cases, states, seed = 0, set(), first_seed
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        looks, seen = walk(seed, 120)
        cases, seed = cases + looks, seed + 1
        states |= seen
    return cases, states


def test_a_world_that_does_whatever_it_likes(any_seed: Any) -> None:
    states: set[str] = set()
    cases = 0
    for seed in range(30):
        looks, seen = walk(any_seed(seed), 120)
        states |= seen
        cases += looks
    assert cases > 3000, "of 3600: few walks are cut short"
    ready = {entry.reason.value for entry in CATALOGUE if entry.type is ConditionType.READY}
    assert states == ready or any_seed.fresh, "the walks go everywhere"


if __name__ == "__main__":
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    began = time.thread_time()
    done, ended = run(length)
    print(
        json.dumps(
            {
                "cases": done,
                "seconds": length,
                "cases_per_minute": 60 * done / length,
                "cpu_seconds": time.thread_time() - began,
                "states": sorted(ended),
            }
        )
    )
