"""RLJob, group ``rljob.dev``, version ``v1alpha1``: one training job, on one machine or a cluster."""

from typing import Annotated, Final, Literal

from pydantic import Field

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.environment import EnvironmentSource
from rljob.api.lifecycle import CheckpointSpec, EarlyStopping, FailurePolicy, ForkSpec, ScheduledChange, SuccessPolicy
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED, never
from rljob.api.presets import REMOVABLE, PresetName
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.replay import ReplaySpec
from rljob.api.roles import ActorsSpec, AutoscalingSpec, EvaluatorSpec, InferenceSpec, LearnerSpec, SecretRef
from rljob.api.types import APIModel, Flag, Integer, Name, Seconds, SecondsOrZero, Text

API_VERSION = "rljob.dev/v1alpha1"
KIND = "RLJob"


_Texts = dict[Annotated[str, Text(1 << 20, "text")], Annotated[str, Text(1 << 20, "text", shortest=0)]]


NAME: Final = Text(
    45,
    "a DNS label (lower-case letters, digits, '-', a letter first) short enough for \"<name>-actor-12345\"",
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
)


class Metadata(APIModel):
    """The job's identity. The API server limits number and length of labels and annotations."""

    name: Annotated[str, NAME]
    """Name of the job, its pods, services and run folder."""
    namespace: Name = "default"
    """Namespace on a cluster."""
    labels: _Texts = Field(default_factory=dict)
    """Labels; kueue.x-k8s.io/queue-name names a queue."""
    annotations: _Texts = Field(default_factory=dict)
    """Annotations; a new value of rljob.dev/checkpoint-requested-at asks for a checkpoint."""


DATA_PORTS: Final = range(5551, 5557)
"""Ports of the pods on which roles talk to each other."""


class CodeSpec(APIModel):
    """Your own files, which every pod unpacks and works in. `rljob run -n` writes this."""

    config_map: Annotated[str, Text(253, "a ConfigMap")]
    """A ConfigMap in the job's namespace, with a tar archive compressed by gzip as its entry code.tar.gz."""
    digest: Annotated[str, Text(71, "sha256: and 64 digits of the archive", r"^sha256:[0-9a-f]{64}$")]
    """The archive that the pods take; a role that finds another one fails the job."""


class Kueue(APIModel):
    """How the job queues, if metadata.labels has kueue.x-k8s.io/queue-name."""

    actor_block_size: Annotated[int, Integer(1, 10_000)] = 16
    """Actors that Kueue admits together."""


class SchedulingSpec(APIModel):
    """How the cluster admits and places the job as a whole."""

    kueue: Kueue = Field(default_factory=Kueue)
    """How the job asks Kueue for quota."""


class NetworkSpec(APIModel):
    """Who may talk to the job's pods, and how."""

    policy: Literal["Enabled", "Disabled"] = "Enabled"
    """A NetworkPolicy that admits only pods of the same job."""
    encryption: Literal["None", "Curve"] = "Curve"
    """Curve encrypts and authenticates every connection between pods."""


class MonitoringSpec(APIModel):
    """How metrics are scraped."""

    metrics_port: Annotated[int, Integer(1024, 65_535)] = 9090
    """Port of /metrics, /healthz, /readyz and /status in each pod."""


_Word = Text(128, "a name without '/'", r"^[^/\s]([^/\n]*[^/\s])?$")
_URI = Text(
    2048,
    'a tracking URI without credentials, such as "http://mlflow:5000"',
    r"^[^\s@:]+(:[^\s@0-9][^\s@]*)?$",  # to MLflow "mlflow:5000" is a scheme that it does not know
)


class WandbTracking(APIModel):
    """A run of W&B; its client is the extra [wandb]. The key comes from WANDB_API_KEY or from `wandb login`."""

    project: Annotated[str, _Word] = "rljob"
    """Name of the project."""
    entity: Annotated[str, _Word] | None = None
    """Team or user. Unset: the key's own."""
    group: Annotated[str, _Word] | None = None
    """Group of runs, such as an experiment's name."""
    tags: Annotated[list[Annotated[str, Text(64, "a tag")]], Field(max_length=64)] = Field(default_factory=list)
    """Tags of the run."""


class MLflowTracking(APIModel):
    """A run of MLflow; its client is the extra [mlflow]. Credentials come from MLFLOW_TRACKING_TOKEN and the like."""

    uri: Annotated[str, _URI]
    """Address of the tracking server."""
    experiment: Annotated[str, Text(256, "a name", r"^\S(.*\S)?$")] = "rljob"
    """Experiment; created if missing."""


class TrackingSpec(APIModel):
    """Trackers that also get the metrics. A tracker that cannot be reached never delays training; its points are sent later."""

    wandb: WandbTracking | None = None
    """Send metrics to W&B."""
    mlflow: MLflowTracking | None = None
    """Send metrics to MLflow."""
    secret_ref: SecretRef | None = None
    """Credentials on a cluster, as variables (WANDB_API_KEY, MLFLOW_TRACKING_TOKEN ...) of the tracker's containers alone."""


_REMOVABLE = f"^({'|'.join(path.replace('.', '[.]') for path in REMOVABLE)})$"


class RLJobSpec(APIModel):
    """What you want of a job; a manifest needs no more than this and a name."""

    suspend: Annotated[Flag, ANY_TIME, UNLEARNED] = False
    """true: save a checkpoint, then remove all pods."""
    managed_by: Annotated[
        str,
        Text(63, "a controller, such as rljob.dev/operator", r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"),
        never("two controllers would act on one set of pods"),
        UNLEARNED,
    ] = "rljob.dev/operator"
    """The responsible controller."""
    image: Annotated[str | None, Text(512, "a container image", r"^[^\s]+$"), WHILE_SUSPENDED] = None
    """Image of all roles. Unset: that of the operator's release."""
    image_pull_secrets: Annotated[list[SecretRef], WHILE_SUSPENDED, UNLEARNED] = Field(
        default_factory=list, max_length=16
    )
    """Secrets for the image's registry."""
    code: Annotated[CodeSpec | None, WHILE_SUSPENDED] = None
    """Your own files beside the manifest, on a cluster. Unset: all code is in the image."""
    preset: Annotated[PresetName | None, never("the job was started from it; set the fields that should differ")] = None
    """A whole job to start from; any field that you write wins."""
    preset_without: Annotated[
        list[Annotated[str, Text(253, "what a preset says, such as successPolicy.targetReturn", _REMOVABLE)]],
        never("the job was started from the preset without it"),
    ] = Field(default_factory=list, max_length=64)
    """Paths of fields to remove from the preset. A null does not remove a field."""
    algorithm: AlgorithmSpec = Field(default_factory=AlgorithmSpec)
    """What learns, and its hyper-parameters."""
    environment: Annotated[EnvironmentSource, never("the policy and the stored experience belong to the environment")]
    """What the agent plays."""
    seed: Annotated[int, Integer(0, 2**31 - 1), WHILE_SUSPENDED] = 1
    """Seed of networks, exploration, sampling and environments."""
    fork: Annotated[ForkSpec | None, ANY_TIME] = None
    """Continue with weights, optimiser and statistics of another run's checkpoint, but with this run's counts and parameters.
    """
    schedule: Annotated[list[ScheduledChange], ANY_TIME] = Field(default_factory=list, max_length=100)
    """Changes of live fields during the run, in this order."""
    learner: LearnerSpec = Field(default_factory=LearnerSpec)
    """The process that trains."""
    replay: ReplaySpec | None = None
    """The store of experience, for ApeXDQN, SAC, and Custom algorithms that learn from transitions."""
    actors: ActorsSpec = Field(default_factory=ActorsSpec)
    """The processes that play."""
    inference: InferenceSpec = Field(default_factory=InferenceSpec)
    """The server that computes actions with actors.inference: Central."""
    autoscaling: Annotated[AutoscalingSpec, ANY_TIME] = Field(default_factory=AutoscalingSpec)
    """How the number of actors follows the learner."""
    evaluator: EvaluatorSpec = Field(default_factory=EvaluatorSpec)
    """The process that judges policies."""
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    """What is saved, how often, and where."""
    success_policy: SuccessPolicy = Field(default_factory=SuccessPolicy)
    """When the job is complete."""
    early_stopping: EarlyStopping = Field(default_factory=EarlyStopping)
    """When to give up."""
    backoff_limit: Annotated[int, Integer(0, 10_000), ANY_TIME, UNLEARNED] = 4
    """Failures of learner, replay, inference servers, and an evaluator that success waits for, before the job fails."""
    failure_policy: Annotated[FailurePolicy, ANY_TIME, UNLEARNED] = Field(default_factory=FailurePolicy)
    """How failures count and what follows."""
    active_deadline_seconds: Annotated[Seconds | None, ANY_TIME, UNLEARNED] = None
    """Longest time of the job, without suspension."""
    startup_deadline_seconds: Annotated[Seconds, ANY_TIME, UNLEARNED] = 1800
    """Longest time until all roles are ready."""
    progress_deadline_seconds: Annotated[Seconds, ANY_TIME, UNLEARNED] = 1800
    """Longest time without a learner update."""
    ttl_seconds_after_finished: Annotated[SecondsOrZero | None, ANY_TIME, UNLEARNED] = None
    """Time from the job's end to its deletion; unset keeps it."""
    scheduling: Annotated[SchedulingSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=SchedulingSpec)
    """How the job is admitted and placed."""
    network: Annotated[NetworkSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=NetworkSpec)
    """Who may talk to the pods."""
    monitoring: Annotated[MonitoringSpec, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=MonitoringSpec)
    """How metrics are scraped."""
    tracking: Annotated[TrackingSpec | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Trackers that also get the metrics."""

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
    """API version of this document."""
    kind: Literal["RLJob"]
    """Kind of this document."""
    metadata: Metadata
    """Name, labels and annotations; all standard metadata is accepted:
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/"""
    spec: RLJobSpec
    """The job you want."""
