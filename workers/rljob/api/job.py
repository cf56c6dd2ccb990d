"""RLJob, group ``rljob.dev``, version ``v1alpha1``: one training job, on one machine or a cluster."""

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.autoscaling import AutoscalingSpec
from rljob.api.cluster import MonitoringSpec, NetworkSpec, SchedulingSpec
from rljob.api.course import ForkSpec, ScheduledChange
from rljob.api.environment import EnvironmentSource
from rljob.api.lifecycle import CheckpointSpec, EarlyStopping, FailurePolicy, SuccessPolicy
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED, never
from rljob.api.pods import SecretRef
from rljob.api.presets import PresetName
from rljob.api.presets.values import REMOVABLE
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.replay import ReplaySpec
from rljob.api.roles import ActorsSpec, EvaluatorSpec, InferenceSpec, LearnerSpec
from rljob.api.tracking import TrackingSpec
from rljob.api.types import APIModel, Flag, Integer, Name, Seconds, SecondsOrZero, Text

API_VERSION = "rljob.dev/v1alpha1"
KIND = "RLJob"


_Texts = dict[Annotated[str, Text(1 << 20, "text")], Annotated[str, Text(1 << 20, "text", shortest=0)]]


class Metadata(APIModel):
    """The job's identity. How long and how many labels and annotations may be is for the API server to say."""

    name: Annotated[
        str,
        Text(
            45,
            "a DNS label (lower-case letters, digits, '-', a letter first) short enough for \"<name>-actor-12345\"",
            r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        ),
    ]
    """The job's name; pods, services and the run folder are named after it."""
    namespace: Name = "default"
    """Its namespace on a cluster."""
    labels: _Texts = Field(default_factory=dict)
    """Labels; kueue.x-k8s.io/queue-name names a queue."""
    annotations: _Texts = Field(default_factory=dict)
    """Notes; a new text in rljob.dev/checkpoint-requested-at asks for a checkpoint."""


_REMOVABLE = f"^({'|'.join(path.replace('.', '[.]') for path in REMOVABLE)})$"


class RLJobSpec(APIModel):
    """What a user wants of a job; only its name and this have to be written."""

    suspend: Annotated[Flag, ANY_TIME, UNLEARNED] = False
    """True: save a checkpoint, then remove all pods."""
    managed_by: Annotated[
        str,
        Text(63, "a controller, such as rljob.dev/operator", r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"),
        never("two controllers would act on one set of pods"),
        UNLEARNED,
    ] = "rljob.dev/operator"
    """The controller responsible; others leave the job alone."""
    image: Annotated[str | None, Text(512, "a container image", r"^[^\s]+$"), WHILE_SUSPENDED] = None
    """Image of all roles; that of the operator's own release unless given."""
    image_pull_secrets: Annotated[list[SecretRef], WHILE_SUSPENDED, UNLEARNED] = Field(
        default_factory=list, max_length=16
    )
    """Secrets for the image's registry."""
    preset: Annotated[PresetName | None, never("the job was started from it; write what differs beside it")] = None
    """A whole job to start from: algorithm, environment, replay, evaluator and success. What is written beside it wins, field by
    field. With another environment.id, its fields of its own environment do not count. ``rljob explain preset`` lists them."""
    preset_without: Annotated[
        list[Annotated[str, Text(253, "what a preset says, such as successPolicy.targetReturn", _REMOVABLE)]],
        never("the job was started from the preset without it"),
    ] = Field(default_factory=list, max_length=64)
    """Fields of the preset that do not count, by their paths below spec, such as successPolicy.targetReturn. A null in such a
    field removes nothing."""
    algorithm: AlgorithmSpec = Field(default_factory=AlgorithmSpec)
    """What learns, with which hyper-parameters; a preset says it, too."""
    environment: Annotated[EnvironmentSource, never("what was learned and stored belongs to the environment")]
    """What is played; a preset says it, too."""
    seed: Annotated[int, Integer(0, 2**31 - 1), WHILE_SUSPENDED] = 1
    """Seed of networks, exploration, sampling and environments."""
    fork: Annotated[ForkSpec | None, ANY_TIME] = None
    """Another run's checkpoint, whose weights, optimiser and running statistics the learner goes on with, with counts and
    parameters of its own."""
    schedule: Annotated[list[ScheduledChange], ANY_TIME] = Field(default_factory=list, max_length=100)
    """Live fields that the learner sets as the run gets on, in this order."""
    learner: LearnerSpec = Field(default_factory=LearnerSpec)
    """The process that trains."""
    replay: ReplaySpec | None = None
    """The store of experience, for ApeXDQN and, from transitions, Custom."""
    actors: ActorsSpec = Field(default_factory=ActorsSpec)
    """The processes that play."""
    inference: InferenceSpec = Field(default_factory=InferenceSpec)
    """The server that computes actions where actors.inference is Central."""
    autoscaling: Annotated[AutoscalingSpec, ANY_TIME] = Field(default_factory=AutoscalingSpec)
    """How the number of actors follows the learner."""
    evaluator: EvaluatorSpec = Field(default_factory=EvaluatorSpec)
    """The process that judges."""
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    """What is saved, how often, and where."""
    success_policy: SuccessPolicy = Field(default_factory=SuccessPolicy)
    """When the job is complete."""
    early_stopping: EarlyStopping = Field(default_factory=EarlyStopping)
    """When to give up."""
    backoff_limit: Annotated[int, Integer(0, 10_000), ANY_TIME, UNLEARNED] = 4
    """Failures of learner, replay, inference servers and an evaluator that success waits for, in all, before the job fails;
    actors do not count."""
    failure_policy: Annotated[FailurePolicy, ANY_TIME, UNLEARNED] = Field(default_factory=FailurePolicy)
    """How failures of members count, and what they lead to."""
    active_deadline_seconds: Annotated[Seconds | None, ANY_TIME, UNLEARNED] = None
    """Longest the job may run, suspension not counted."""
    startup_deadline_seconds: Annotated[Seconds, ANY_TIME, UNLEARNED] = 1800
    """Longest until the roles are ready."""
    progress_deadline_seconds: Annotated[Seconds, ANY_TIME, UNLEARNED] = 1800
    """Longest without a learner update."""
    ttl_seconds_after_finished: Annotated[SecondsOrZero | None, ANY_TIME, UNLEARNED] = None
    """Delete the job this long after its end; unset keeps it."""
    scheduling: Annotated[SchedulingSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=SchedulingSpec)
    """How the job is admitted and placed."""
    network: Annotated[NetworkSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=NetworkSpec)
    """Who may talk to the pods."""
    monitoring: Annotated[MonitoringSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=MonitoringSpec)
    """How figures are scraped."""
    tracking: Annotated[TrackingSpec | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Where figures are sent as well: W&B, MLflow."""

    @property
    def judged_environment(self) -> EnvironmentSource:
        """``environment`` with what ``evaluator.environment`` has of its own."""
        return self.environment.model_copy(
            update={name: value for name, value in self.evaluator.environment or () if value is not None}
        )

    @property
    def required_replay(self) -> ReplaySpec:
        """``replay``, for code that serves replay algorithms only. Raises ManifestError where the job has none."""
        if self.replay is None:
            raise ManifestError([Problem("spec.replay", ABSENT, f"required with algorithm {self.algorithm.type}")])
        return self.replay

    @property
    def requested_actors(self) -> int:
        """``actors.replicas``, within the bounds of the autoscaler where there is one."""
        scaling, asked = self.autoscaling, self.actors.replicas
        return asked if scaling.mode == "Disabled" else max(scaling.min_replicas, min(scaling.max_replicas, asked))


class RLJob(APIModel):
    """One training job."""

    api_version: Literal["rljob.dev/v1alpha1"]
    """The API this document is written for."""
    kind: Literal["RLJob"]
    """What the document describes: one training job."""
    metadata: Metadata
    """Its name, and what else tells it apart. generateName and what else an API server knows or adds here is accepted, too:
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/"""
    spec: RLJobSpec
    """What is wanted of the job."""
