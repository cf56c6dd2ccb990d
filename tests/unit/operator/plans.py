"""What a world may do to a job, drawn: the faults, the size, and the edits of its user."""

import random
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from hypothesis import strategies as st
from rljob.api import RLJob, load_manifest

from tests.support.controller import CARTPOLE, PONG

MANIFESTS = {"ApeXDQN": PONG, "IMPALA": CARTPOLE}
MODES = ("Internal", "External", "Disabled")


class Fault(StrEnum):
    """What a world may do to a job."""

    END = "members end unasked, one by one"
    MASS_END = "a large part of the members ends at once"
    LOOP = "some names end soon after each start"
    DISRUPT = "nodes take members away soon after each start"
    NODES = "nodes are lost, and are heard of again"
    VANISH = "members are gone without a trace"
    FLAP = "members that were ready are not, and are again"
    REPLACE = "another client replaces a member under its own name"
    STUCK = "members find no place or no image"
    FATAL = "exit codes that end the job or that a rule names"
    SLOPPY = "the substrate forgets some of what was decided"
    SILENCE = "the learner tells nonsense or nothing, or goes back"
    CLOCK = "the clock is set, or the machine sleeps"
    SUSPEND = "a user suspends and resumes"
    EDIT = "a user edits numbers, servers and rules"
    QUOTA = "a queue gives and takes quota"
    MACHINE = "the machine allows fewer actors"
    REFUSAL = "the spec is refused"
    CHECKPOINT = "checkpoints go wrong, and are asked for"
    SESSION = "the terminal closes"
    SUCCESS = "the job can reach its aim"


EVERY_FAULT = frozenset(Fault)


@dataclass(frozen=True)
class Plan:
    """Everything that is drawn about a world.

    ``actors`` is the scale: bounds and numbers asked for are parts of it. ``servers`` are inference servers of their own.
    """

    algorithm: str = "ApeXDQN"
    mode: str = "Internal"
    servers: int = 0
    actors: int = 9
    keeps_remains: bool = False
    faults: frozenset[Fault] = EVERY_FAULT
    seed: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        """minReplicas and maxReplicas."""
        return max(1, 2 * self.actors // 9), self.actors


def plans(*, actors: int = 9, faults: frozenset[Fault] = EVERY_FAULT) -> st.SearchStrategy[Plan]:
    """Worlds with up to ``actors`` actors that do some or all of ``faults``."""
    some = st.frozensets(st.sampled_from(sorted(faults))) if faults else st.just(faults)
    return st.builds(
        Plan,
        algorithm=st.sampled_from(sorted(MANIFESTS)),
        mode=st.sampled_from(MODES),
        servers=st.sampled_from((0, 1, 3)),
        actors=st.just(actors),
        keeps_remains=st.booleans(),
        faults=st.one_of(st.just(faults), some),
        seed=st.integers(0, 2**32 - 1),
    )


def plan_of(seed: int) -> Plan:
    """One plan of all for each seed, for walks without a property around them."""
    chance = random.Random(seed)
    return Plan(
        chance.choice(sorted(MANIFESTS)),
        chance.choice(MODES),
        chance.choice((0, 1, 3)),
        keeps_remains=chance.random() < 0.5,
        seed=seed,
    )


RULES = "spec.failurePolicy.rules=[{name: odd, onExitCodes: {values: [3]}, action: %s}]"
PATIENT = ("spec.startupDeadlineSeconds=1000000", "spec.progressDeadlineSeconds=1000000", "spec.backoffLimit=10000")


def edits(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """What a user may make of the job; the first is the job as it is meant."""
    least, _ = plan.bounds
    found: list[tuple[str, ...]] = [(), (), ()]
    if Fault.SUSPEND in plan.faults:
        found += [("spec.suspend=true",)]
    if Fault.EDIT in plan.faults:
        no_judge = ("spec.evaluator.enabled=false", "spec.successPolicy.targetReturn=", "spec.evaluator.triggerReturn=")
        found += [
            (f"spec.actors.replicas={least}",),
            (f"spec.actors.replicas={7 * plan.actors // 9}",),
            (RULES % "RestartRoleAndIgnoreBackoff", *no_judge),
            (RULES % "FailJob",),
            ("spec.ttlSecondsAfterFinished=30", RULES % "Ignore"),
            ("spec.autoscaling.pause=ScaleIn",),
            ("spec.actors.inference=Local", "spec.inference.replicas=0"),
            ("spec.actors.inference=Central", "spec.inference.replicas=2"),
        ]
    return tuple(found)


@lru_cache(maxsize=4096)
def job_of(plan: Plan, edit: tuple[str, ...]) -> RLJob:
    """The job of a plan after an edit. Deadlines and the limits on failures are far away where nothing is to end the job."""
    least, most = plan.bounds
    sets = [
        "spec.checkpoint.storage={persistentVolumeClaim: {claimName: checkpoints}}",
        f"spec.actors.replicas={max(1, plan.actors // 3)}",
        "spec.checkpoint.intervalSeconds=30",
        f"spec.autoscaling={{mode: {plan.mode}, minReplicas: {least}, maxReplicas: {most}}}",
    ]
    if plan.algorithm == "ApeXDQN":
        sets.append("spec.replay.capacity=10000000" if plan.actors > 100 else "spec.replay.shards=2")
    elif plan.actors > 100:
        sets.append("spec.algorithm.impala.unrollQueue.maxPolicyLagUpdates=10000")
    if plan.servers:
        sets += ["spec.actors.inference=Central", f"spec.inference.replicas={plan.servers}"]
    if Fault.SUCCESS in plan.faults:
        sets += [
            "spec.startupDeadlineSeconds=120",
            "spec.progressDeadlineSeconds=200",
            "spec.successPolicy.rawFrames=6000",
        ]
    else:
        sets += [*PATIENT, "spec.activeDeadlineSeconds="]
    return load_manifest(MANIFESTS[plan.algorithm], [*sets, *edit])
