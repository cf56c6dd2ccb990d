"""When a job ends, what it keeps, what counts as a failure, and what changes in its course without a restart."""

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.episode_metrics import NAME_PATTERN
from rljob.api.learner_status import Verdict
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED, never
from rljob.api.roles import SecretRef
from rljob.api.types import APIModel, Integer, JSONObject, Name, Real, Seconds, Text

Included = Literal["Learner", "Replay"]
Role = Literal["Learner", "Replay", "Actor", "Inference", "Evaluator"]


class VolumeClaim(APIModel):
    """A folder in a persistent volume."""

    claim_name: Annotated[str, Text(253, "a PersistentVolumeClaim")]
    """A claim in the job's namespace."""
    sub_path: Annotated[str, Text(1024, "a path without '..'", r"^([^/.][^/]*(/[^/.][^/]*)*)?$", shortest=0)] = ""
    """Folder in the volume."""


class ObjectStore(APIModel):
    """A bucket."""

    url: Annotated[str, Text(2048, 'a bucket such as "s3://bucket/prefix"', r"^s3://[^/]+(/.*)?$")]
    """Bucket, and a prefix for this job alone."""
    secret_ref: SecretRef | None = None
    """Credentials, as variables of the learner (AWS_ACCESS_KEY_ID ...). Unset: the pod's identity."""
    endpoint: Annotated[str, Text(2048, "a URL", r"^(https?://.+)?$", shortest=0)] = ""
    """Address of the server; empty: AWS."""


class CheckpointStorage(APIModel):
    """Where checkpoints go; set exactly one field."""

    persistent_volume_claim: VolumeClaim | None = None
    """A folder in a persistent volume."""
    object_store: ObjectStore | None = None
    """A bucket of S3 or of a compatible server."""


def _everything() -> list[Included]:
    return ["Learner", "Replay"]


class CheckpointSpec(APIModel):
    """What is saved, how often and where."""

    interval_seconds: Annotated[Seconds, WHILE_SUSPENDED, UNLEARNED] = 300
    """Time between two checkpoints."""
    retain: Annotated[int, Integer(1, 1000), WHILE_SUSPENDED, UNLEARNED] = 5
    """Newest checkpoints to keep."""
    include: Annotated[list[Included], WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=_everything, max_length=2)
    """What to keep. Without Replay, a restart loses stored experience."""
    storage: Annotated[
        CheckpointStorage | None,
        never("the saved checkpoints would stay behind; a new job can start from them (restoreFrom)"),
        UNLEARNED,
    ] = None
    """Where checkpoints go. Unset: the run folder on one machine; on a cluster a claim that is deleted with the job or, without
    a default StorageClass, the learner's pod."""
    restore_from: Annotated[
        str,
        Text(
            2048, '"Latest", "None" or a URI such as "file:///runs/pong-1"', r"^(Latest|None|[a-z][a-z0-9+.-]*://.+)$"
        ),
        never("the job started from it; to start from elsewhere, make a new job"),
    ] = "Latest"
    """What a new job starts from. Latest and None: nothing. A file:// or s3:// URI: networks and optimiser of that checkpoint,
    or of a run's newest one, with counts from 0 and an empty replay. Restarts always use the job's own newest verified
    checkpoint."""


class TargetReturn(APIModel):
    """Stop when evaluations are good enough."""

    value: Annotated[float, Real()]
    """Mean return of a full evaluation."""
    window_evaluations: Annotated[int, Integer(1, 100)] = 1
    """Consecutive evaluations in the mean."""


class TargetMetric(APIModel):
    """Stop when evaluations are good enough by what the environment itself reports."""

    name: Annotated[str, Text(64, "printable ASCII that does not begin with _, such as is_success", NAME_PATTERN)]
    """Name of a number in info at the end of an episode."""
    value: Annotated[float, Real()]
    """Mean of a full evaluation; for true or false, the share of true."""
    window_evaluations: Annotated[int, Integer(1, 100)] = 1
    """Consecutive evaluations in the mean."""

    def unreported(self, verdict: Verdict) -> str:
        """That not all games of an evaluation have it, in words; empty where they have."""
        waits, having = f"successPolicy.metric waits for {self.name!r}, which the environment", verdict.metric_games
        if self.name in having:
            return (
                f"{waits} reported as a finite number in {having[self.name]:g} of {verdict.episodes} games: a mean over these "
                "says nothing of all and does not count; report it at the end of every episode, 0 where it is not so"
            )
        reported = ", ".join(verdict.metrics) or "nothing"
        return (
            ""
            if self.name in verdict.metrics
            else f"{waits} does not report as a finite number at an episode's end: it reports {reported}"
        )


class SuccessPolicy(APIModel):
    """When the job is complete; the first criterion that is met wins."""

    raw_frames: Annotated[Annotated[int, Integer(1)] | None, ANY_TIME] = None
    """Raw frames played by all actors."""
    target_return: Annotated[TargetReturn | None, WHILE_SUSPENDED] = None
    """Return that evaluations must reach."""
    metric: Annotated[TargetMetric | None, WHILE_SUSPENDED] = None
    """Mean of a number from the environment that evaluations must reach."""


class Plateau(APIModel):
    """Stop when the mean return of evaluations improves no more."""

    min_delta: Annotated[float, Real(0)] = 0.0
    """Smallest improvement that counts."""
    patience_evaluations: Annotated[int, Integer(1, 10_000)] = 20
    """Evaluations without improvement before the job stops."""
    grace_raw_frames: Annotated[int, Integer(0)] = 0
    """Ignore evaluations of weights from before this many raw frames."""


class TrainingReturn(APIModel):
    """Stop when the training return no longer improves. This needs no evaluations: a policy below evaluator.triggerReturn has
    none."""

    min_delta: Annotated[float, Real(0)] = 0.0
    """Smallest improvement that counts."""
    window_raw_frames: Annotated[int, Integer(1)] = 5_000_000
    """Raw frames of the median, and without improvement before the job stops."""
    grace_raw_frames: Annotated[int, Integer(0)] = 0
    """Raw frames before the first judgement."""


class ValueLoss(APIModel):
    """Stop when the value loss grows far beyond its earlier level while the training return is no better, as in training that
    diverges. The loss is the first of value_loss, critic_loss and loss that the algorithm reports."""

    factor: Annotated[float, Real(1, above=True)] = 10.0
    """The median loss must exceed this many times its lowest median since the best return."""
    window_raw_frames: Annotated[int, Integer(1)] = 500_000
    """Raw frames of the median, and of too large a loss before the job stops."""
    grace_raw_frames: Annotated[int, Integer(0)] = 500_000
    """Raw frames before the first judgement."""


class EarlyStopping(APIModel):
    """When to give up. `rljob why --rules` shows when a rule would have ended recorded runs."""

    plateau: Annotated[Plateau | None, ANY_TIME] = None
    """Stop if evaluations no longer improve."""
    training_return: Annotated[TrainingReturn | None, ANY_TIME] = None
    """Stop if the training return no longer improves."""
    value_loss: Annotated[ValueLoss | None, ANY_TIME] = None
    """Stop if the value loss diverges."""
    on_non_finite_loss: Annotated[Literal["Fail", "RestoreAndContinue", "Ignore"], WHILE_SUSPENDED] = "Fail"
    """What to do if a loss is infinite or NaN."""


class ExitCodes(APIModel):
    """Exit codes that a rule is about."""

    operator: Literal["In", "NotIn"] = "In"
    """Whether the code is in values or not."""
    values: list[Annotated[int, Integer(0, 255)]] = Field(min_length=1, max_length=255)
    """Exit codes; 128 + n for signal n. 0 is a failure, too."""


class PodCondition(APIModel):
    """A pod's condition that a rule is about."""

    type: Annotated[str, Text(316, "a condition's type")]
    """Type of the condition, such as DisruptionTarget."""
    status: Literal["True", "False", "Unknown"] = "True"
    """Status that matches."""


class FailureRule(APIModel):
    """What to do about one kind of failure."""

    name: Name
    """Name of the rule in events."""
    roles: list[Role] = Field(default_factory=list, max_length=5)
    """Roles that it applies to; empty means all."""
    on_exit_codes: ExitCodes | None = None
    """Exit codes that match; those of disrupted pods never do."""
    on_pod_conditions: list[PodCondition] = Field(default_factory=list, max_length=20)
    """Conditions of the pod; any one matches."""
    action: Literal["FailJob", "RestartRole", "RestartRoleAndIgnoreBackoff", "Ignore"]
    """What to do about a match."""


class FailurePolicy(APIModel):
    """How failures count."""

    rules: list[FailureRule] = Field(default_factory=list, max_length=32)
    """Rules; the first match decides."""


class ForkSpec(APIModel):
    """One fork. It is done once: the next checkpoint names its id, so that a restarted learner does not repeat it."""

    id: Name
    """Name of the fork; a new id asks for a new fork."""
    source: Annotated[
        str, Text(2048, 'a URI such as "file:///runs/pong-1"', r"^[a-z][a-z0-9+.-]*://.+$"), Field(alias="from")
    ]
    """URI of a checkpoint, or of a run (its newest one). On a cluster: a bucket, or a volume that the learner mounts."""
    digest: Annotated[str, Text(71, "sha256: and 64 hexadecimal digits", r"^sha256:[0-9a-f]{64}$")]
    """Digest of the checkpoint's tensors (status.checkpoint.digest of the other run). Another checkpoint is refused."""


class ScheduledChange(APIModel):
    """One entry of a schedule."""

    after_raw_frames: Annotated[int, Integer(0)]
    """Raw frames of all actors from which the change applies. The last entry that applies wins."""
    set: Annotated[dict[str, Any], JSONObject()] = Field(min_length=1)
    """Paths of live fields, such as algorithm.learningRate, and their new values."""
