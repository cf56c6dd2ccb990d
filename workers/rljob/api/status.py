"""``status`` of an RLJob: what the controller tells about a job, and what it must remember of it.

Written by the controller alone. Everything that `rljob_operator.core.decide` remembers is here, in
`rljob.api.controller_memory`, so a controller that is restarted goes on as if nothing had happened. Fields that a newer
controller added are ignored when an older one reads.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from rljob.api.controller_memory import ControllerMemory
from rljob.api.status_model import Count, Message, ShortText, StatusModel, Timestamp, Word
from rljob.api.types import DecimalText, Integer, Text

MAX_FAILURES = 5
"""Ends that a status lists."""


class Condition(StatusModel):
    """One condition, as metav1.Condition. `rljob.api.conditions` lists types and reasons."""

    type: Annotated[str, Text(64, "a condition's type")]
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: Word = ""
    """One word that scripts may compare."""
    message: Message = ""
    """The reason in words, for people."""
    observed_generation: Count = 0
    """Generation of the spec that it is about."""
    last_transition_time: Timestamp
    """When the status last changed."""


class Restarts(StatusModel):
    """Failures of members."""

    counted: Count = 0
    """Failures that count towards backoffLimit; 0 again after an hour of health."""
    ignored: Count = 0
    """Failures that do not count: actors, other evaluators, disruptions, and matches of an ignoring rule."""


class LearnerStatus(StatusModel):
    """The learner as last seen."""

    ready: bool = False
    """Whether it answers and trains."""
    pod_name: ShortText = ""
    """Pod, or process on one machine."""
    node_name: ShortText = ""
    """Node of the pod."""
    start_time: Timestamp | None = None
    """When it last became ready."""


class ReplayStatus(StatusModel):
    """The replay shards as last seen."""

    ready: Count = 0
    """Number of shards that serve."""
    desired: Count = 0
    """Number of shards wanted."""


class InferenceStatus(StatusModel):
    """The inference servers of their own (inference.replicas) as last seen."""

    ready: Count = 0
    """Number of servers that answer."""
    desired: Count = 0
    """Wanted servers; 0 if actors or the learner compute actions."""


class ActorsStatus(StatusModel):
    """The actors as last seen."""

    replicas: Count = 0
    """Actors that exist and are not leaving (scale subresource)."""
    ready: Count = 0
    """Number of actors that play."""
    draining: Count = 0
    """Actors that are leaving."""
    selector: Annotated[str, Text(512, "a label selector", shortest=0)] = ""
    """Label selector of the actors' pods (scale subresource)."""


class ScalingCalculation(StatusModel):
    """Every number of one decision about the number of actors. `docs/autoscaling.md` shows how to redo it."""

    before: Count = 0
    """Number of actors wanted before."""
    capacity_per_second: Annotated[float, DecimalText(0)] | None = None
    """Items that the learner consumes in a second without waiting."""
    per_actor_per_second: Annotated[float, DecimalText(0)] | None = None
    """Items that an actor delivers in a second without blocking."""
    integral: Annotated[float, DecimalText()] | None = None
    """Integral part; capacity / rate is multiplied by one plus this."""
    missing_items: Annotated[float, DecimalText()] | None = None
    """Items that the queue lacks of its target; negative if it holds more."""
    trim_seconds: Annotated[float, DecimalText(0)] | None = None
    """Time in which the trim would close that gap."""
    wanted: Annotated[float, DecimalText(0)] | None = None
    """capacity / rate x (1 + integral) + missingItems / (rate x trimSeconds); at least 0."""
    uncertainty: Annotated[float, DecimalText(0)] | None = None
    """Relative uncertainty of wanted; growth goes to wanted x (1 - uncertainty)."""
    tolerance: Annotated[float, DecimalText(0)] | None = None
    """Difference, in actors, below which nothing changes."""
    target: Count = 0
    """Whole number aimed for."""
    min_replicas: Count | None = None
    """Lower bound. Unset with mode External, like the next ones up to policyMost, but for the guard."""
    max_replicas: Count | None = None
    """Upper bound of spec, machine and queue."""
    most_wanted: Count | None = None
    """Most actors wanted in the last 180 s; shrinking stops there."""
    guard: Word = ""
    """PolicyLag, Unschedulable or Gain, if one limits."""
    guard_most: Count | None = None
    """Most actors that the guard allows."""
    policy_least: Count | None = None
    """Fewest actors after one decision: a fifth fewer."""
    policy_most: Count | None = None
    """Most actors after one decision: twice as many, or 4 more."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """autoscaling.pause at that time."""
    after: Count = 0
    """Actors wanted (External: recommended) after it."""


class AutoscalingStatus(StatusModel):
    """The last decision about the number of actors, with the numbers to check it by hand."""

    desired_replicas: Count = 0
    """Number of actors wanted."""
    recommended_replicas: Count = 0
    """Internal: actors wanted without limits. External: actors to request through /scale. Disabled: actors.replicas."""
    limited_by: Word = ""
    """What keeps desiredReplicas from it (External, Disabled: from actors.replicas)."""
    last_scale_time: Timestamp | None = None
    """When desiredReplicas last changed."""
    last_decision: Message = ""
    """The last decision in words."""
    calculation: ScalingCalculation | None = None
    """The same numbers by name; unset if the number was held or follows a user's change."""
    memory: dict[str, Any] = Field(default_factory=dict, max_length=64)
    """State of the control law; for the controller alone."""


class ProgressStatus(StatusModel):
    """How far the job is. Written at most every 30 seconds, or on a change of one percent; every 90 seconds on a cluster whose
    API server is slow."""

    learner_updates: Count = 0
    """Updates of the learner."""
    raw_frames: Count = 0
    """Raw frames of all actors."""
    eval_return: Annotated[float, DecimalText()] | None = None
    """Mean return of the newest full evaluation."""
    percent: Annotated[int, Integer(0, 100)] | None = None
    """Progress to the success policy, if known."""
    estimated_seconds_remaining: Count | None = None
    """Remaining time at the present rate, if known."""
    queue_fill_percent: Annotated[int, Integer(0, 100)] | None = None
    """Fill of the learner's queue: at 0 the learner starves, at 100 actors are blocked."""
    policy_lag_updates: Count | None = None
    """Policy lag (95th percentile)."""
    next_unit: Message = ""
    """What would add most steps per second, and how many actors pay off."""
    last_update_time: Timestamp | None = None
    """When this was written."""


class CheckpointStatus(StatusModel):
    """The newest verified checkpoint."""

    step: Count = 0
    """Learner updates in it."""
    time: Timestamp | None = None
    """When it was written."""
    uri: Annotated[str, Text(2048, "a URI", shortest=0)] = ""
    """Where the checkpoint is."""
    digest: Annotated[str, Text(128, "a digest", shortest=0)] = ""
    """Digest of its tensors, such as sha256:ab12."""


class FollowedStatus(StatusModel):
    """Whether the running learner follows live fields, `schedule` and `fork` of the spec."""

    wanted: ShortText = ""
    """Digest of these parts of the spec."""
    followed: bool = False
    """Whether the learner applies them; False without a running learner."""
    scheduled: Count = 0
    """Entries of the schedule that apply."""


class ForkStatus(StatusModel):
    """What became of `spec.fork`."""

    id: ShortText = ""
    """The fork's id in the spec."""
    state: Literal["Waiting", "Done", "Refused"] = "Waiting"
    """Waiting, Done or Refused; after Refused the learner keeps its own weights."""
    message: Message = ""
    """Why it was refused, or what was taken."""
    source: Annotated[str, Text(2048, "a URI", shortest=0), Field(alias="from")] = ""
    """Where the requested checkpoint is."""
    updates: Count | None = None
    """The learner's own updates at the fork."""
    raw_frames: Count | None = None
    """The job's raw frames at the fork."""


class AdmissionStatus(StatusModel):
    """What the queue has admitted."""

    workload: ShortText = ""
    """Workload of learner, replay and the first actors."""
    actor_blocks: Count = 0
    """Admitted blocks of actors."""
    pending_blocks: Count = 0
    """Waiting blocks of actors."""


class Failure(StatusModel):
    """One failure of a member."""

    time: Timestamp
    """When it was seen."""
    role: Word
    """Learner, Replay, Actor, Inference or Evaluator."""
    pod_name: ShortText
    """Name of the failed member."""
    exit_code: int | None = Field(default=None, ge=-255, le=255)
    """Exit code; 128 + n for signal n."""
    reason: Word = ""
    """Error, Killed, Hung (stopped, as it did not answer), Ended (by itself, with code 0) or Disrupted."""
    action: Word = ""
    """What the controller did."""
    message: Annotated[str, Text(256, "text", shortest=0)] = ""
    """End of its log."""


class RLJobStatus(StatusModel):
    """Status of a job."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes; 0 before the first reconciliation."""
    algorithm: Word = ""
    """The algorithm that learns."""
    environment: ShortText = ""
    """The environment that is played."""
    start_time: Timestamp | None = None
    """When the controller first acted on the job."""
    completion_time: Timestamp | None = None
    """When the job ended."""
    active_seconds: Count = 0
    """Time not suspended, for activeDeadlineSeconds."""
    restarts: Restarts = Field(default_factory=Restarts)
    """How often members have failed."""
    learner: LearnerStatus = Field(default_factory=LearnerStatus)
    """The learner as last seen."""
    replay: ReplayStatus = Field(default_factory=ReplayStatus)
    """The replay shards as last seen."""
    inference: InferenceStatus = Field(default_factory=InferenceStatus)
    """The inference servers as last seen."""
    actors: ActorsStatus = Field(default_factory=ActorsStatus)
    """The actors as last seen."""
    autoscaling: AutoscalingStatus = Field(default_factory=AutoscalingStatus)
    """The last decision about the number of actors."""
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    """How far the job is."""
    checkpoint: CheckpointStatus | None = None
    """The newest verified checkpoint."""
    following: FollowedStatus | None = None
    """Whether the learner follows live fields, schedule and fork."""
    fork: ForkStatus | None = None
    """What became of the fork."""
    admission: AdmissionStatus | None = None
    """What the queue has admitted."""
    failures: list[Failure] = Field(default_factory=list, max_length=MAX_FAILURES)
    """The last failures of members, oldest first."""
    conditions: list[Condition] = Field(default_factory=list, max_length=24)
    """State of the job; find each condition by its type."""
    controller: Annotated[ControllerMemory, WithJsonSchema({"type": "object"})] = Field(
        default_factory=ControllerMemory
    )
    """The controller's own memory."""

    def condition(self, type: str) -> Condition | None:
        """The condition of a type, or None where there is none."""
        return next((c for c in self.conditions if c.type == type), None)

    def is_true(self, type: str) -> bool:
        """Whether the condition of a type is there and True."""
        found = self.condition(type)
        return found is not None and found.status == "True"

    @property
    def state(self) -> str:
        """The job's state in one word: the reason of Ready. Empty before the first reconciliation."""
        ready = self.condition("Ready")
        return ready.reason if ready is not None else ""

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return self.is_true("Complete") or self.is_true("Failed")
