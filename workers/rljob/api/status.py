"""``status`` of an RLJob: what the controller tells about a job, and what it must remember of it.

Written by the controller alone. Everything that `rljob_operator.decide` remembers is here, so a controller that is restarted
goes on as if nothing had happened. Fields that a newer controller added are ignored when an older one reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rljob.api.timestamps import Timestamp
from rljob.api.types import DecimalText, Integer, Text

MAX_MESSAGE = 1024
"""Longest message; longer ones are cut at a word."""
MAX_FAILURES = 5
MAX_REMEMBERED_MEMBERS = 1000
MAX_CURVE_POINTS = 24

Count = Annotated[int, Integer(0)]
Message = Annotated[str, Text(MAX_MESSAGE, "text", shortest=0)]
ShortText = Annotated[str, Text(253, "text", shortest=0)]
Word = Annotated[str, Text(64, "a CamelCase word", shortest=0)]


class StatusModel(BaseModel):
    """Base of the status types: camelCase outside, snake_case inside, immutable; unknown fields are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        use_attribute_docstrings=True,
    )


class Condition(StatusModel):
    """One condition, as metav1.Condition. `rljob.api.conditions` lists types and reasons."""

    type: Annotated[str, Text(64, "a condition's type")]
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Word = ""
    """Why, in one word that a script may compare."""
    message: Message = ""
    """Why, for people."""
    observed_generation: Count = 0
    """The generation of the spec that this was said about."""
    last_transition_time: Timestamp
    """When ``status`` last changed."""


class Restarts(StatusModel):
    """Ends of members that were not asked for."""

    counted: Count = 0
    """Of learner, replay and inference servers, towards backoffLimit; back to 0 after failurePolicy.resetAfterSeconds of
    health."""
    ignored: Count = 0
    """Not counted: of actors and the evaluator, disruptions, and what a rule of failurePolicy ignores."""


class LearnerStatus(StatusModel):
    """The learner as last seen."""

    ready: bool = False
    """Whether it serves."""
    pod_name: ShortText = ""
    """Its pod, or its process's name on one machine."""
    node_name: ShortText = ""
    """Where it runs."""
    start_time: Timestamp | None = None
    """When it became ready in its present life."""


class ReplayStatus(StatusModel):
    """The replay shards as last seen."""

    ready: Count = 0
    """Shards that serve."""
    desired: Count = 0
    """Shards there should be."""


class InferenceStatus(StatusModel):
    """The inference servers of their own (inference.replicas) as last seen."""

    ready: Count = 0
    """Servers that answer."""
    desired: Count = 0
    """Servers there should be; 0 where actors or the learner compute the actions."""


class ActorsStatus(StatusModel):
    """The actors as last seen."""

    replicas: Count = 0
    """Actors that exist and are not leaving (scale subresource)."""
    ready: Count = 0
    """Actors that play."""
    draining: Count = 0
    """Actors that are leaving."""
    selector: Annotated[str, Text(512, "a label selector", shortest=0)] = ""
    """Selects the actors' pods (scale subresource)."""


class AutoscalingStatus(StatusModel):
    """What the controller last decided about the number of actors, with the numbers to check it by hand."""

    desired_replicas: Count = 0
    """Actors there should be."""
    recommended_replicas: Count = 0
    """Actors that the law would want without limits."""
    limited_by: Word = ""
    """What keeps the two apart: the reason of ScalingLimited, or nothing."""
    last_scale_time: Timestamp | None = None
    """When desiredReplicas last changed."""
    last_decision: Message = ""
    """The last decision as a sentence with all its numbers."""
    memory: dict[str, Any] = Field(default_factory=dict, max_length=64)
    """What the law remembers between two decisions; for the controller alone."""


class ProgressStatus(StatusModel):
    """How far the job is. Written at most every 30 seconds, or on a change of one percent."""

    learner_updates: Count = 0
    """Updates of the learner."""
    env_frames: Count = 0
    """Raw frames played by all actors."""
    eval_return: Annotated[float, DecimalText()] | None = None
    """Mean return of the newest full evaluation."""
    percent: Annotated[int, Integer(0, 100)] | None = None
    """Share of the way to the success policy; unset where nobody can know."""
    estimated_seconds_remaining: Count | None = None
    """Time to go at the present rate; unset where nobody can know."""
    queue_fill_percent: Annotated[int, Integer(0, 100)] | None = None
    """Fill of the learner's queue when this was written: 0, the learner starves; 100, the actors are blocked. Unset where
    the learner did not say."""
    policy_lag_updates: Count | None = None
    """Policy lag (95th percentile) when this was written; unset where the learner did not say."""
    last_update_time: Timestamp | None = None
    """When this was written."""


class CheckpointStatus(StatusModel):
    """The newest verified checkpoint."""

    step: Count = 0
    """Learner updates in it."""
    time: Timestamp | None = None
    """When it was written."""
    uri: Annotated[str, Text(2048, "a URI", shortest=0)] = ""
    """Where it is."""
    digest: Annotated[str, Text(128, "a digest", shortest=0)] = ""
    """Digest of its tensors, such as sha256:ab12."""


class AdmissionStatus(StatusModel):
    """What the queue has admitted."""

    workload: ShortText = ""
    """The Workload of learner, replay and the first actors."""
    actor_blocks: Count = 0
    """Blocks of actors admitted."""
    pending_blocks: Count = 0
    """Blocks of actors that wait."""


class Failure(StatusModel):
    """One end of a member that nobody asked for."""

    time: Timestamp
    """When it was seen."""
    role: Word
    """Learner, Replay, Actor, Inference or Evaluator."""
    pod_name: ShortText
    """Which member."""
    exit_code: int | None = Field(default=None, ge=-255, le=255)
    """Its exit code; 128 + n where signal n ended it."""
    reason: Word = ""
    """Error, Killed or Disrupted."""
    action: Word = ""
    """What was done about it."""
    message: Annotated[str, Text(256, "text", shortest=0)] = ""
    """The last words of its log."""


class PlateauMemory(StatusModel):
    """The full evaluations so far, for earlyStopping.plateau."""

    best: Annotated[float, DecimalText()] | None = None
    """The best mean that counted as an improvement."""
    without: Count = 0
    """Evaluations since then that were none."""
    version: Count = 0
    """Policy version of the newest evaluation counted."""


class OutcomeMemory(StatusModel):
    """How the job ends, from the moment it is decided. It never changes again."""

    state: Literal["Complete", "Failed"]
    """Which end."""
    reason: Word
    """Reason of the final condition."""
    message: Message = ""
    """Message of the final condition."""
    time: Timestamp
    """When it was decided."""


class MemberMemory(StatusModel):
    """A member that has ended unasked lately."""

    name: ShortText
    """Which member."""
    incarnation: ShortText = ""
    """The life whose end has been dealt with."""
    quick_ends: Count = 0
    """Ends in a row before it had worked for ten seconds; disruptions do not count."""
    time: Timestamp
    """When the latest end was seen."""
    abandoned: bool = False
    """Not started again (actors.onEviction: Ignore) until the wanted number of actors changes."""


class AdvanceMemory(StatusModel):
    """The learner's advance."""

    updates: Count = 0
    """Updates as last seen."""
    time: Timestamp
    """When ``updates`` last grew."""
    most_updates: Count = 0
    """Most updates ever seen; a learner that goes back to a checkpoint has fewer for a while."""
    most_time: Timestamp
    """When ``mostUpdates`` last grew."""


class SuspensionMemory(StatusModel):
    """A suspension under way or in force."""

    since: Timestamp
    """When it was asked for."""
    checkpoint_time: Timestamp | None = None
    """When the learner was asked for a checkpoint: one from then on counts."""
    checkpoint_step: Count = 0
    """Learner updates when it was asked; a checkpoint with fewer does not count."""
    saved: bool = False
    """Whether learner and replay may go: the state is safe, or need not be."""


class CheckpointRequestMemory(StatusModel):
    """A user's request for a checkpoint."""

    requested_at: ShortText
    """The annotation's text."""
    seen: Timestamp
    """When the controller first saw it."""
    done: bool = False
    """Whether a verified checkpoint from after the request was seen."""


class CurvePoint(StatusModel):
    """One moment of the run, for the estimate of the time to go. Time is active time."""

    active_seconds: Count
    """Active seconds of the job."""
    env_frames: Count = 0
    """Raw frames so far."""
    mean_return: Annotated[float, DecimalText()] | None = None
    """Training return then."""


class ControllerMemory(StatusModel):
    """What the controller remembers of the job; for the controller alone, it may change between versions."""

    active_since: Timestamp | None = None
    """Since when the job is active without a break; unset while suspended. activeSeconds counts up to here."""
    spent_active_seconds: Annotated[float, DecimalText(0)] = 0.0
    """Active seconds before ``activeSince``."""
    starting_since: Timestamp | None = None
    """When the roles began to come up, at the job's start or on resuming; unset while suspended."""
    started: Timestamp | None = None
    """When the roles last were all ready after a start."""
    watched_since: Timestamp | None = None
    """Since when the job has been watched without a gap and without a leap of the clock; unset where there was none. What is
    waited for is waited for from here at the earliest."""
    advance: AdvanceMemory | None = None
    """The learner's advance."""
    members: list[MemberMemory] = Field(default_factory=list, max_length=MAX_REMEMBERED_MEMBERS)
    """Members that ended unasked lately."""
    last_counted_failure: Timestamp | None = None
    """When restarts.counted last grew."""
    suspension: SuspensionMemory | None = None
    """A suspension under way or in force."""
    checkpoint_request: CheckpointRequestMemory | None = None
    """The user's last request for a checkpoint."""
    plateau: PlateauMemory | None = None
    """The evaluations so far, where the job stops on a plateau."""
    curve: list[CurvePoint] = Field(default_factory=list, max_length=MAX_CURVE_POINTS)
    """Moments of the run, thinned as they grow more."""
    outcome: OutcomeMemory | None = None
    """How the job ends."""


class RLJobStatus(StatusModel):
    """What there is to know about a job."""

    observed_generation: Count = 0
    """The generation of the spec that this status describes."""
    start_time: Timestamp | None = None
    """When the controller first acted on the job."""
    completion_time: Timestamp | None = None
    """When the job ended; set once."""
    active_seconds: Count = 0
    """Time not suspended; for activeDeadlineSeconds. Written with progress and when the state changes."""
    restarts: Restarts = Field(default_factory=Restarts)
    """Ends of members that were not asked for."""
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
    admission: AdmissionStatus | None = None
    """What the queue has admitted."""
    failures: list[Failure] = Field(default_factory=list, max_length=MAX_FAILURES)
    """The last ends that nobody asked for, oldest first."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16)
    """What holds and why; find them by type."""
    controller: ControllerMemory = Field(default_factory=ControllerMemory)
    """What the controller remembers of the job; for the controller alone."""

    def condition(self, type: str) -> Condition | None:
        """The condition of a type, or None while nothing was said about it."""
        return next((c for c in self.conditions if c.type == type), None)

    def is_true(self, type: str) -> bool:
        """Whether the condition of a type is there and True."""
        found = self.condition(type)
        return found is not None and found.status == "True"

    @property
    def state(self) -> str:
        """The job's state in one word: the reason of Ready. Empty before the first look."""
        ready = self.condition("Ready")
        return ready.reason if ready is not None else ""

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return self.is_true("Complete") or self.is_true("Failed")

    def document(self) -> dict[str, Any]:
        """The status as plain values, as the cluster's API and ``status.json`` hold it; unset fields are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
