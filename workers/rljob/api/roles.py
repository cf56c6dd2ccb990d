"""The roles of a job, and their parts of ``spec``. ``spec.inference`` computes the actions with ``actors.inference: Central``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.environment import EvaluatorEnvironment
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED
from rljob.api.pods import ResourceName, Resources, RoleSpec
from rljob.api.types import APIModel, Flag, Integer, Real, Seconds, quantity


class Role(StrEnum):
    """The roles of a job, in the order in which they start."""

    REPLAY = "replay"
    LEARNER = "learner"
    INFERENCE = "inference"
    ACTOR = "actor"
    EVALUATOR = "evaluator"

    @classmethod
    def of(cls, name: str) -> Role:
        """The role of the member ``name``: ``actor-12`` is an actor. Raises ValueError."""
        return cls(name.partition("-")[0])


class Accelerator(APIModel):
    """The device that the learner, or an inference server, computes on."""

    resource_name: ResourceName = "nvidia.com/gpu"
    """The extended resource to ask for; never guessed from its suffix."""
    count: Annotated[int, Integer(0, 16)] | None = None
    """How many: 0 computes on the CPU everywhere, 1 asks for one and computes on it. Unset: what resources.limits has of
    resourceName; where that is nothing, a cluster is asked for none, while rljob run uses a CUDA device that is there. More than
    one is refused, as only one would be used."""
    device: Literal["Auto", "Accelerator"] = "Auto"
    """Auto: where a device may be used and works, the role measures how long it takes there and on the CPU, with the job's own
    network and batch, and computes where it is faster. Accelerator: on the device, without a measurement."""
    on_missing: Literal["Fail", "UseCPU"] | None = None
    """What a role does that has asked for a device and finds none that works: Fail ends it with exit code 78, which fails the
    job; UseCPU computes on the CPU. Unset: Fail on a cluster, UseCPU with a warning under rljob run."""

    def as_limited(self, resources: Resources) -> Accelerator:
        """With the number of devices that a role's limits name, as those of any pod may, where ``count`` is not given."""
        named = resources.limits.get(self.resource_name)
        if named is None or self.count is not None:
            return self
        return self.model_copy(update={"count": round(quantity(named))})


class LearnerSpec(RoleSpec):
    """The one process that trains the network."""

    accelerator: Annotated[Accelerator, WHILE_SUSPENDED] = Field(default_factory=Accelerator)
    """The device it computes on."""


class ActorsSpec(RoleSpec):
    """The processes that play the environment."""

    replicas: Annotated[int, Integer(0, 100_000), ANY_TIME] = 1
    """How many actors. With autoscaling Internal it is the number to begin with, with External the number asked for; either way
    it counts within minReplicas and maxReplicas, and may be left out."""
    envs_per_actor: Annotated[int, Integer(1, 4096), WHILE_SUSPENDED] = 8
    """Environments that one actor steps together."""
    inference: Annotated[Literal["Local", "Central"], WHILE_SUSPENDED] = "Local"
    """Local: each actor computes its own actions. Central: the server of spec.inference does, for all of them."""
    precision: Annotated[Literal["Auto", "FP32", "BF16", "INT8"] | None, WHILE_SUSPENDED] = None
    """Arithmetic of acting, in actors or inference servers; unset: the algorithm's precision. Auto: the fastest of FP32, BF16
    where the processor has it, and INT8 as long as 99 % of greedy actions are the same. INT8: on the CPU, faster or not."""
    compression: Annotated[Literal["Auto", "LZ4", "Delta"], WHILE_SUSPENDED, UNLEARNED] = "Auto"
    """How bytes and whole numbers that are observed travel and are stored. LZ4: as they are. Delta: as differences to the frame
    before. Auto: as was smaller in an actor's first segments, if that takes its processor at most twice as long."""
    spot: Annotated[Flag, WHILE_SUSPENDED, UNLEARNED] = False
    """Play on spot nodes, which cost less and may be taken away at any time. The pods tolerate the taints of such nodes on GKE
    and AKS, and prefer nodes with the labels of GKE, AKS, EKS and Karpenter; where there are none they play elsewhere. Taints of
    your own go into tolerations."""
    topology_spread: Annotated[Literal["None", "Preferred", "Required"], WHILE_SUSPENDED, UNLEARNED] = "None"
    """Spread the actors over hosts, so that a lost one takes few of them."""


def credits_per_actor(envs_per_actor: int) -> int:
    """Chunks that one actor may have on the way: one for each of its environments, and a few to hide the round trip."""
    return max(4, envs_per_actor)


class EvaluatorSpec(RoleSpec):
    """A process beside the training that plays whole, unclipped games with the newest weights."""

    enabled: Annotated[Flag, ANY_TIME] = True
    """Whether there is one."""
    episodes: Annotated[int, Integer(1, 10_000), WHILE_SUSPENDED] = 100
    """Games of a verdict, chosen before the first begins. The first 20 are a screen: an evaluation that cannot be expected to
    reach successPolicy.targetReturn any more is given up, and is no verdict. On one machine training stands still for the
    games after the screen."""
    interval_seconds: Annotated[Seconds, WHILE_SUSPENDED, UNLEARNED] = 300
    """Time between the starts of two evaluations; from the end of one for which training stood still."""
    trigger_return: Annotated[Annotated[float, Real()] | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Evaluate only once the mean training return of ten games or more has reached this; unset evaluates from the start."""
    environment: Annotated[EvaluatorEnvironment | None, WHILE_SUSPENDED] = None
    """What it plays in, where that is not the environment of the training."""


class InferenceSpec(RoleSpec):
    """The server that answers observations with actions, in batches from many actors (as in SEED RL)."""

    replicas: Annotated[int, Integer(0, 1000), WHILE_SUSPENDED, UNLEARNED] = 0
    """Servers of their own, each a pod or process; 0 puts the server into the learner."""
    accelerator: Annotated[Accelerator, WHILE_SUSPENDED] = Field(default_factory=Accelerator)
    """The device that each server of its own computes on; one in the learner uses the learner's."""
    max_batch_size: Annotated[int, Integer(1, 65_536), WHILE_SUSPENDED, UNLEARNED] = 64
    """Largest number of observations in a batch."""
