"""The roles of a job, and their parts of ``spec``: what the pods of all have in common (fields of a PodSpec by their own names,
and a patch for all the others), and what each has of its own. ``spec.inference`` computes the actions with ``actors.inference:
Central``; ``spec.autoscaling`` says how the number of actors follows the learner."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rljob.api.environment import EvaluatorEnvironment
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED
from rljob.api.types import APIModel, Flag, Integer, QuantityText, Real, Seconds, Text, quantity, refuse

LabelText = Annotated[str, Text(253, "a label or annotation", shortest=0)]
ResourceName = Annotated[
    str,
    Text(
        253,
        'a qualified resource name such as "cpu", "memory" or "nvidia.com/gpu"',
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
Amounts = Annotated[dict[ResourceName, Annotated[str, QuantityText(fractions=True)]], Field(max_length=16)]
Labels = Annotated[dict[LabelText, LabelText], Field(max_length=64)]


class SecretRef(APIModel):
    """A Secret of the job's namespace."""

    name: Annotated[str, Text(253, "a Secret")]
    """A Secret in the job's namespace."""


class Resources(APIModel):
    """What a container asks for and may use, as in Kubernetes."""

    requests: Amounts = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Amounts = Field(default_factory=dict)
    """What the container may not exceed."""

    def cores(self) -> int:
        """Whole processor cores that the container may use: its limit, or else its request; at least 1."""
        return max(1, int(quantity(self.limits.get("cpu") or self.requests.get("cpu", "1"))))


class EnvVar(APIModel):
    """An environment variable: ``value``, or ``valueFrom``. All else beside its name is kept as written. The API server checks
    it when pods are made; its schema would not fit here five times over."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Text(253, "an environment variable")]
    """Name of the variable."""

    @model_validator(mode="after")
    def _has_a_text(self) -> Self:
        if not isinstance((self.model_extra or {}).get("value", ""), str | None):
            raise refuse("allowed: a value that is a text (quote a number, on and true)")
        return self


CoreObject = Annotated[dict[str, Any], Field(max_length=64)]
"""A mapping of one of core's types, kept as it is written."""
ContainerImage = Annotated[str, Text(512, "a container image", r"^[^\s]+$")]


class RoleSpec(APIModel):
    """Base of the roles that run as pods. What a PodSpec has too goes by the same name and has core's own form."""

    resources: Annotated[Resources, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=Resources)
    """Resources of each pod."""
    image: Annotated[ContainerImage | None, WHILE_SUSPENDED] = None
    """Image of this role, instead of spec.image."""
    env: Annotated[list[EnvVar] | None, Field(max_length=128), WHILE_SUSPENDED] = None
    """Environment variables of the container:
    https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/"""
    node_selector: Annotated[Labels | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Labels that a node must have."""
    tolerations: Annotated[list[CoreObject] | None, Field(max_length=32), WHILE_SUSPENDED, UNLEARNED] = None
    """Taints that the pods tolerate: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    pod_template: Annotated[CoreObject | None, WHILE_SUSPENDED] = None
    """Patch (metadata, spec) on the generated pod, as for ``kubectl patch --type=strategic``: volumes, affinity,
    serviceAccountName ... The role's container is named worker: https://kubernetes.io/docs/concepts/workloads/pods/"""


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
    """The device of the learner or of an inference server."""

    resource_name: ResourceName = "nvidia.com/gpu"
    """Extended resource to ask for."""
    count: Annotated[int, Integer(0, 16)] | None = None
    """Number of devices. 0: use the CPU. 1: ask for a device and use it. Unset: resources.limits[resourceName], else a CUDA
    device that rljob run finds, and none on a cluster."""
    device: Literal["Auto", "Accelerator"] = "Auto"
    """Where to compute. Auto: on the device, but a learner whose update takes the CPU less than 0.9 ms, and acting that is
    faster there, on the CPU. Accelerator: on the device without a measurement."""
    on_missing: Literal["Fail", "UseCPU"] | None = None
    """What to do if the requested device is missing or broken. Fail: exit with code 78, which fails the job. Unset: Fail on a
    cluster, UseCPU with a warning under rljob run."""

    def as_limited(self, resources: Resources) -> Accelerator:
        """With the number of devices that a role's limits name, as those of any pod may, where ``count`` is not given."""
        named = resources.limits.get(self.resource_name)
        if named is None or self.count is not None:
            return self
        return self.model_copy(update={"count": round(quantity(named))})


class LearnerSpec(RoleSpec):
    """The process that trains the network, or several that do so together."""

    accelerator: Annotated[Accelerator, WHILE_SUSPENDED] = Field(default_factory=Accelerator)
    """Device that the learner uses; with several processes, each of them."""
    processes: Annotated[int, Integer(1, 64), WHILE_SUSPENDED] = 1
    """Processes, each a pod, that train together: each has batchSize / processes of every batch, and their gradients are added
    up."""

    @property
    def members(self) -> list[str]:
        """Names of the members; the first one leads."""
        return ["learner"] if self.processes == 1 else [f"learner-{rank}" for rank in range(self.processes)]


class ActorsSpec(RoleSpec):
    """The processes that play the environment."""

    replicas: Annotated[int, Integer(0, 100_000), ANY_TIME] = 1
    """Number of actors: the first one with autoscaling Internal, the requested one with External."""
    envs_per_actor: Annotated[int, Integer(1, 4096), WHILE_SUSPENDED] = 8
    """Environments that one actor steps together."""
    inference: Annotated[Literal["Local", "Central"], WHILE_SUSPENDED] = "Local"
    """Where actions are computed. Local: in each actor. Central: by the server of spec.inference."""
    precision: Annotated[Literal["Auto", "Plain", "FP32", "BF16", "INT8"] | None, WHILE_SUSPENDED] = None
    """Arithmetic of acting. Unset: the algorithm's precision. Auto: the faster of FP32 and BF16 (if the CPU has it). INT8: on the
    CPU; changes a few actions."""
    compression: Annotated[Literal["Auto", "LZ4", "Delta"], WHILE_SUSPENDED, UNLEARNED] = "Auto"
    """Compression of observed bytes and integers. Delta: differences between frames. Auto: the smaller one in the actor's first
    segments."""
    spot: Annotated[Flag, WHILE_SUSPENDED, UNLEARNED] = False
    """Prefer spot nodes of GKE, AKS, EKS and Karpenter, and tolerate their taints on GKE and AKS."""
    topology_spread: Annotated[Literal["None", "Preferred", "Required"], WHILE_SUSPENDED, UNLEARNED] = "None"
    """Spread the actors over hosts."""


def member_of(actor: str, servers: int) -> int:
    """Which of ``servers`` an actor belongs to: the number at the end of its name in turn, so that actors spread evenly."""
    digits = actor[len(actor.rstrip("0123456789")) :]
    return int(digits or 0) % servers


def credits_per_actor(envs_per_actor: int) -> int:
    """Chunks that one actor may have on the way: one for each of its environments, and a few to hide the round trip."""
    return max(4, envs_per_actor)


class EvaluatorSpec(RoleSpec):
    """A process beside the training that plays whole, unclipped games with the newest weights."""

    enabled: Annotated[Flag, ANY_TIME] = True
    """Run an evaluator."""
    episodes: Annotated[int, Integer(1, 10_000), WHILE_SUSPENDED] = 100
    """Most games of a verdict. From 20 games on it ends as soon as their mean reaches successPolicy.targetReturn with 99 %
    confidence, or misses it."""
    return_bounds: Annotated[
        Annotated[list[Annotated[float, Real()]], Field(min_length=2, max_length=2)] | None, WHILE_SUSPENDED, UNLEARNED
    ] = None
    """Least and most return of one game, [low, high]. Without bounds an early verdict assumes returns that are about normal.
    Unset: known for Pong and CartPole."""
    interval_seconds: Annotated[Seconds, WHILE_SUSPENDED, UNLEARNED] = 300
    """Time between the starts of two evaluations; on one machine from the end of the last one."""
    trigger_return: Annotated[Annotated[float, Real()] | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Mean training return, of at least ten games, from which evaluations start. Unset: at once."""
    environment: Annotated[EvaluatorEnvironment | None, WHILE_SUSPENDED] = None
    """Differences from the training environment."""


class InferenceSpec(RoleSpec):
    """The server that answers observations with actions, in batches from many actors (as in SEED RL)."""

    replicas: Annotated[int, Integer(0, 1000), WHILE_SUSPENDED, UNLEARNED] = 0
    """Separate servers, each a pod or process; 0 runs the server in the learner."""
    accelerator: Annotated[Accelerator, WHILE_SUSPENDED] = Field(default_factory=Accelerator)
    """Device of each separate server, with the fields of learner.accelerator. A server in the learner uses the learner's."""
    max_batch_size: Annotated[int, Integer(1, 65_536), WHILE_SUSPENDED, UNLEARNED] = 64
    """Most observations in a batch."""


GUARD_PERCENT = 80
"""The guard on policy lag, in percent of the limit beyond which unrolls are discarded, for their lag is then seen no more."""
Replicas = Annotated[int, Integer(0, 100_000)]


class ScalingTarget(APIModel):
    """What the controller steers towards."""

    queue_utilization_percent: Annotated[int, Integer(1, 99)] = 50
    """Target fill of IMPALA's queue of unrolls. ApeXDQN follows its samplesPerInsert."""


class ScalingGuards(APIModel):
    """What forbids growth."""

    max_policy_lag_updates: Annotated[int, Integer(1)] = 400
    """Policy lag (95th percentile) above which actors are removed."""


class AutoscalingSpec(APIModel):
    """The number of actors over time."""

    mode: Literal["Internal", "External", "Disabled"] = "Disabled"
    """Who sets the number of actors. Internal: the controller. External: a client of /scale. Disabled: actors.replicas."""
    min_replicas: Replicas = 1
    """Fewest actors."""
    max_replicas: Replicas = 100
    """Most actors."""
    target: ScalingTarget = Field(default_factory=ScalingTarget)
    """What the autoscaler steers to."""
    guards: ScalingGuards = Field(default_factory=ScalingGuards)
    """What limits growth of the number."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """Stop scaling in one direction or both."""
