"""When a job ends, what it keeps, and what counts as a failure."""

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.episode_metrics import NAME_PATTERN
from rljob.api.learner_status import Verdict
from rljob.api.mutability import ANY_TIME, UNLEARNED, WHILE_SUSPENDED, never
from rljob.api.pods import SecretRef
from rljob.api.types import APIModel, Integer, Name, Real, Seconds, Text

Included = Literal["Learner", "Replay"]
Role = Literal["Learner", "Replay", "Actor", "Inference", "Evaluator"]


class VolumeClaim(APIModel):
    """A folder in a persistent volume."""

    claim_name: Annotated[str, Text(253, "a PersistentVolumeClaim")]
    """The name of the claim, in the job's namespace."""
    sub_path: Annotated[str, Text(1024, "a path without '..'", r"^([^/.][^/]*(/[^/.][^/]*)*)?$", shortest=0)] = ""
    """Folder inside the volume."""


class ObjectStore(APIModel):
    """A bucket."""

    url: Annotated[str, Text(2048, 'a bucket such as "s3://bucket/prefix"', r"^s3://[^/]+(/.*)?$")]
    """The bucket, and a prefix in it that no other job has."""
    secret_ref: SecretRef | None = None
    """Credentials, as the learner's variables (AWS_ACCESS_KEY_ID ...); unset uses the pod's identity."""
    endpoint: Annotated[str, Text(2048, "a URL", r"^(https?://.+)?$", shortest=0)] = ""
    """Address of a store that is not AWS's own."""


class CheckpointStorage(APIModel):
    """Where checkpoints go; exactly one."""

    persistent_volume_claim: VolumeClaim | None = None
    """A folder in a volume that pods can mount."""
    object_store: ObjectStore | None = None
    """A bucket of S3, or of a server with its protocol."""


def _everything() -> list[Included]:
    return ["Learner", "Replay"]


class CheckpointSpec(APIModel):
    """What is saved, how often and where."""

    interval_seconds: Annotated[Seconds, WHILE_SUSPENDED, UNLEARNED] = 300
    """How long the learner goes on between two checkpoints."""
    retain: Annotated[int, Integer(1, 1000), WHILE_SUSPENDED, UNLEARNED] = 5
    """Newest checkpoints to keep."""
    include: Annotated[list[Included], WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=_everything, max_length=2)
    """What is kept. Learner: the state of the learner. Replay: the stored experience, in its Redis; without it the replay has it
    in memory alone, and fills anew after any restart."""
    storage: Annotated[
        CheckpointStorage | None,
        never("what was saved would stay behind; a new job can begin from it (restoreFrom)"),
        UNLEARNED,
    ] = None
    """Where. Unset: on one machine the run folder; on a cluster a claim that goes with the job, or, where the cluster has no
    default StorageClass, the learner's pod, with which they end."""
    restore_from: Annotated[
        str,
        Text(
            2048, '"Latest", "None" or a URI such as "file:///runs/pong-1"', r"^(Latest|None|[a-z][a-z0-9+.-]*://.+)$"
        ),
        never("it is what the job began from; start a new job to begin from elsewhere"),
    ] = "Latest"
    """What a new job starts from, while it has no checkpoint of its own. Latest and None: nothing. A URI: another run's networks
    and optimiser, with updates, steps and frames counted from 0 and the replay empty; file:///path or s3://bucket/prefix names a
    checkpoint, or a run, whose newest one it is. Later starts go on from the job's own newest verified checkpoint."""


class TargetReturn(APIModel):
    """Stop when evaluations are good enough."""

    value: Annotated[float, Real()]
    """Mean return to reach over the evaluator.episodes games of a whole evaluation."""
    window_evaluations: Annotated[int, Integer(1, 100)] = 1
    """Evaluations in a row that the mean is taken over."""


class TargetMetric(APIModel):
    """Stop when evaluations are good enough by what the environment itself reports."""

    name: Annotated[str, Text(64, "printable ASCII that does not begin with _, such as is_success", NAME_PATTERN)]
    """Name of a number that the environment reports in info at an episode's end."""
    value: Annotated[float, Real()]
    """Mean of it to reach over the evaluator.episodes games of a whole evaluation: a share of them where it is true or false."""
    window_evaluations: Annotated[int, Integer(1, 100)] = 1
    """Evaluations in a row that the mean is taken over."""

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
    """When the job is complete; the first criterion met wins. No member's end is one."""

    raw_frames: Annotated[Annotated[int, Integer(1)] | None, ANY_TIME] = None
    """Raw frames played by all actors."""
    target_return: Annotated[TargetReturn | None, WHILE_SUSPENDED] = None
    """The job is complete once evaluations have reached this return."""
    metric: Annotated[TargetMetric | None, WHILE_SUSPENDED] = None
    """The job is complete once evaluations have reached this mean of a number that the environment reports."""


class Plateau(APIModel):
    """Stop when the mean return of evaluations improves no more."""

    min_delta: Annotated[float, Real(0)] = 0.0
    """The least difference that counts as an improvement."""
    patience_evaluations: Annotated[int, Integer(1, 10_000)] = 20
    """Evaluations without improvement before the job stops."""
    grace_raw_frames: Annotated[int, Integer(0)] = 0
    """Evaluations of weights from before so many raw frames do not count."""


class TrainingReturn(APIModel):
    """Stop when the return of training improves no more, which needs no evaluations: a policy that never comes near
    evaluator.triggerReturn has none."""

    min_delta: Annotated[float, Real(0)] = 0.0
    """The least difference that counts as an improvement."""
    window_raw_frames: Annotated[int, Integer(1)] = 5_000_000
    """The median over so many raw frames is watched, and the job stops after as many again without an improvement. The default
    leaves a slow start of Pong its time: a million steps at the lowest score."""
    grace_raw_frames: Annotated[int, Integer(0)] = 0
    """Nothing is judged before so many raw frames."""


class ValueLoss(APIModel):
    """Stop when the value loss grows far beyond what it was and the return of training is no better: training that diverges
    shows it there first. It is value_loss, critic_loss or loss of an update, the first of these that the algorithm reports."""

    factor: Annotated[float, Real(1, above=True)] = 10.0
    """How many times its lowest median since the return was last at its best the median of the loss has to exceed."""
    window_raw_frames: Annotated[int, Integer(1)] = 500_000
    """Medians are over so many raw frames, and the job stops once the loss has been too large for as many again."""
    grace_raw_frames: Annotated[int, Integer(0)] = 500_000
    """Nothing is judged before so many raw frames."""


class EarlyStopping(APIModel):
    """When to give up. `rljob why --rules` tells what a rule would have ended of runs that were recorded."""

    plateau: Annotated[Plateau | None, ANY_TIME] = None
    """The job is given up once evaluations improve no more."""
    training_return: Annotated[TrainingReturn | None, ANY_TIME] = None
    """The job is given up once the return of training improves no more."""
    value_loss: Annotated[ValueLoss | None, ANY_TIME] = None
    """The job is given up once its value loss diverges."""
    on_non_finite_loss: Annotated[Literal["Fail", "RestoreAndContinue", "Ignore"], WHILE_SUSPENDED] = "Fail"
    """A loss that is infinite or no number."""


class ExitCodes(APIModel):
    """Exit codes that a rule is about."""

    operator: Literal["In", "NotIn"] = "In"
    """In or not in values."""
    values: list[Annotated[int, Integer(0, 255)]] = Field(min_length=1, max_length=255)
    """Exit codes, 128 + n for signal n. No role ends by itself with 0, so that an end with 0 is one like any other."""


class PodCondition(APIModel):
    """A pod's condition that a rule is about."""

    type: Annotated[str, Text(316, "a condition's type")]
    """The type of the condition, such as DisruptionTarget."""
    status: Literal["True", "False", "Unknown"] = "True"
    """The status of the condition that matches."""


class FailureRule(APIModel):
    """What to do about one kind of failure."""

    name: Name
    """The rule's name in events."""
    roles: list[Role] = Field(default_factory=list, max_length=5)
    """Roles it is about; empty means all."""
    on_exit_codes: ExitCodes | None = None
    """Which exits. The code of a pod that a disruption took away does not tell why, and is ignored."""
    on_pod_conditions: list[PodCondition] = Field(default_factory=list, max_length=20)
    """Conditions of the pod that match, any one of them."""
    action: Literal["FailJob", "RestartRole", "RestartRoleAndIgnoreBackoff", "Ignore"]
    """What is done about a failure that matches."""


class FailurePolicy(APIModel):
    """How failures count."""

    rules: list[FailureRule] = Field(default_factory=list, max_length=32)
    """The first that matches decides."""
