"""``status`` of an RLJob: what the controller tells about a job, and what it must remember of it.

Written by the controller alone. Everything that `rljob_operator.core.decide` remembers is here, in
`rljob.api.controller_memory`, so a controller that is restarted goes on as if nothing had happened. Fields that a newer
controller added are ignored when an older one reads.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.controller_memory import ControllerMemory
from rljob.api.status_model import Count, Message, ShortText, StatusModel, Word
from rljob.api.timestamps import Timestamp
from rljob.api.types import DecimalText, Integer, JSONObject, Opaque, Text

MAX_FAILURES = 5
"""Ends that a status lists."""


class Condition(StatusModel):
    """One condition, as metav1.Condition. `rljob.api.conditions` lists types and reasons."""

    type: Annotated[str, Text(64, "a condition's type")]
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether what the condition says holds."""
    reason: Word = ""
    """Why, in one word that a script may compare."""
    message: Message = ""
    """Why it is so, for people."""
    observed_generation: Count = 0
    """The generation of the spec that this is about."""
    last_transition_time: Timestamp
    """When ``status`` last changed."""


class Restarts(StatusModel):
    """Ends of members that were not asked for."""

    counted: Count = 0
    """Ends of learner, replay, inference servers and an evaluator that success waits for, towards backoffLimit; back to 0 after
    an hour of health."""
    ignored: Count = 0
    """Ends that are not counted: of actors and another evaluator, disruptions, and what a rule of failurePolicy ignores."""


class LearnerStatus(StatusModel):
    """The learner as last seen."""

    ready: bool = False
    """Whether the learner answers and trains."""
    pod_name: ShortText = ""
    """Its pod, or its process's name on one machine."""
    node_name: ShortText = ""
    """The node that its pod runs on."""
    start_time: Timestamp | None = None
    """When it became ready in its present life."""


class ReplayStatus(StatusModel):
    """The replay shards as last seen."""

    ready: Count = 0
    """How many shards serve experience."""
    desired: Count = 0
    """Shards there should be."""


class InferenceStatus(StatusModel):
    """The inference servers of their own (inference.replicas) as last seen."""

    ready: Count = 0
    """How many servers answer actors."""
    desired: Count = 0
    """Servers there should be; 0 where actors or the learner compute the actions."""


class ActorsStatus(StatusModel):
    """The actors as last seen."""

    replicas: Count = 0
    """Actors that exist and are not leaving (scale subresource)."""
    ready: Count = 0
    """How many actors play the environment."""
    draining: Count = 0
    """Actors that are leaving."""
    selector: Annotated[str, Text(512, "a label selector", shortest=0)] = ""
    """Selects the actors' pods (scale subresource)."""


class ScalingCalculation(StatusModel):
    """Every number that one decision about the number of actors was made of. `docs/autoscaling.md` shows how to redo it."""

    before: Count = 0
    """How many actors were wanted before."""
    capacity_per_second: Annotated[float, DecimalText(0)] | None = None
    """Items that the learner digests in a second in which it does not wait."""
    per_actor_per_second: Annotated[float, DecimalText(0)] | None = None
    """Items that arrive from an actor in a second in which it is not blocked."""
    integral: Annotated[float, DecimalText()] | None = None
    """The integral part: capacity / rate is multiplied by one plus this."""
    missing_items: Annotated[float, DecimalText()] | None = None
    """Items that the queue lacks of its target; negative where it holds more."""
    trim_seconds: Annotated[float, DecimalText(0)] | None = None
    """Time in which the trim would mend that."""
    wanted: Annotated[float, DecimalText(0)] | None = None
    """capacity / rate x (1 + integral) + missingItems / (rate x trimSeconds); never below 0."""
    uncertainty: Annotated[float, DecimalText(0)] | None = None
    """By how much wanted may be too high, relative: a growth goes to wanted x (1 - uncertainty)."""
    tolerance: Annotated[float, DecimalText(0)] | None = None
    """Actors; a smaller difference between wanted and before changes nothing."""
    target: Count = 0
    """The whole number aimed for."""
    min_replicas: Count | None = None
    """Lower bound. Unset, like all up to policyMost but the guard, with mode External."""
    max_replicas: Count | None = None
    """Upper bound, as far as the machine and the queue allow."""
    most_wanted: Count | None = None
    """The most wanted within the last 180 s: a shrinking goes so far."""
    guard: Word = ""
    """PolicyLag, Unschedulable or Gain; empty where no guard limits."""
    guard_most: Count | None = None
    """The most actors that the guard allows."""
    policy_least: Count | None = None
    """The fewest actors that one decision may lead to: a fifth fewer."""
    policy_most: Count | None = None
    """The most actors that one decision may lead to: twice as many, or 4 more."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """What autoscaling.pause was then, which holds changes back."""
    after: Count = 0
    """Actors wanted after it; with mode External, recommended."""


class AutoscalingStatus(StatusModel):
    """What the controller last decided about the number of actors, with the numbers to check it by hand."""

    desired_replicas: Count = 0
    """Actors there should be."""
    recommended_replicas: Count = 0
    """Mode Internal: actors that the law would want without limits. External: actors to ask for through /scale, after the
    guards and the pause; what is asked for is obeyed within the bounds. Disabled: actors.replicas."""
    limited_by: Word = ""
    """What keeps desiredReplicas from it (External, Disabled: from actors.replicas); what ScalingLimited's reason follows
    from."""
    last_scale_time: Timestamp | None = None
    """When desiredReplicas last changed."""
    last_decision: Message = ""
    """The last decision as a sentence with all its numbers."""
    calculation: ScalingCalculation | None = None
    """The same numbers, each by name; unset where the number was held or a user's change was taken over."""
    memory: dict[str, Any] = Field(default_factory=dict, max_length=64)
    """What the law remembers between two decisions; for the controller alone."""


class ProgressStatus(StatusModel):
    """How far the job is. Written at most every 30 seconds, or on a change of one percent; every 90 seconds on a cluster whose
    API server is slow."""

    learner_updates: Count = 0
    """Updates of the learner."""
    raw_frames: Count = 0
    """Raw frames played by all actors."""
    eval_return: Annotated[float, DecimalText()] | None = None
    """Mean return of the newest full evaluation."""
    percent: Annotated[int, Integer(0, 100)] | None = None
    """Share of the way to the success policy; unset where it can't be known."""
    estimated_seconds_remaining: Count | None = None
    """Time to go at the present rate; unset where it can't be known."""
    queue_fill_percent: Annotated[int, Integer(0, 100)] | None = None
    """Fill of the learner's queue when this was written: 0, the learner starves; 100, the actors are blocked. Unset where it is
    unknown."""
    policy_lag_updates: Count | None = None
    """Policy lag (95th percentile) when this was written; unset where it is unknown."""
    next_unit: Message = ""
    """What would add most to the steps a second, and where the knee of one more actor is, by the learner's newest figures; empty
    before they tell. `rljob why` has all of it."""
    last_update_time: Timestamp | None = None
    """When this was written."""


class CheckpointStatus(StatusModel):
    """The newest verified checkpoint."""

    step: Count = 0
    """Learner updates in it."""
    time: Timestamp | None = None
    """When it was written."""
    uri: Annotated[str, Text(2048, "a URI", shortest=0)] = ""
    """Where the checkpoint is, as a URI."""
    digest: Annotated[str, Text(128, "a digest", shortest=0)] = ""
    """Digest of its tensors, such as sha256:ab12."""


class FollowedStatus(StatusModel):
    """Whether the running learner follows what the spec says of live fields, `schedule` and `fork`."""

    wanted: ShortText = ""
    """A digest of what the spec says of them."""
    followed: bool = False
    """Whether the learner has it in effect; False also while no learner runs."""
    scheduled: Count = 0
    """Entries of the schedule that are in effect."""


class ForkStatus(StatusModel):
    """What became of `spec.fork`, as the learner says."""

    id: ShortText = ""
    """The id in the spec that this is about."""
    state: Literal["Waiting", "Done", "Refused"] = "Waiting"
    """Refused: the learner goes on with its own weights."""
    message: Message = ""
    """Why it was refused, or what was taken."""
    source: Annotated[str, Text(2048, "a URI", shortest=0), Field(alias="from")] = ""
    """The checkpoint that was asked for."""
    updates: Count | None = None
    """The learner's own updates when it took the weights."""
    raw_frames: Count | None = None
    """Raw frames of the job then."""


class AdmissionStatus(StatusModel):
    """What the queue has admitted."""

    workload: ShortText = ""
    """The Workload of learner, replay and the first actors."""
    actor_blocks: Count = 0
    """Blocks of actors admitted."""
    pending_blocks: Count = 0
    """Blocks of actors that wait."""


class Failure(StatusModel):
    """One unexpected end of a member."""

    time: Timestamp
    """When it was seen."""
    role: Word
    """Learner, Replay, Actor, Inference or Evaluator."""
    pod_name: ShortText
    """Which member of the job failed."""
    exit_code: int | None = Field(default=None, ge=-255, le=255)
    """Its exit code; 128 + n where signal n ended it."""
    reason: Word = ""
    """Error, Killed, Hung (it did not answer and was ended), Ended (by itself, with code 0) or Disrupted."""
    action: Word = ""
    """What was done about it."""
    message: Annotated[str, Text(256, "text", shortest=0)] = ""
    """The last words of its log."""


class RLJobStatus(StatusModel):
    """What there is to know about a job."""

    observed_generation: Count = 0
    """The generation of the spec that this status describes; of a job that has ended, the newest that was seen. 0 before the
    first reconciliation."""
    effective_spec: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """The spec in force: that of observedGeneration, with its preset and all defaults filled in."""
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
    following: FollowedStatus | None = None
    """Whether the learner follows live fields, schedule and fork."""
    fork: ForkStatus | None = None
    """What became of the fork."""
    admission: AdmissionStatus | None = None
    """What the queue has admitted."""
    failures: list[Failure] = Field(default_factory=list, max_length=MAX_FAILURES)
    """The last unexpected ends of members, oldest first."""
    conditions: list[Condition] = Field(default_factory=list, max_length=24)
    """The state of the job and its reasons; find each by its type."""
    controller: Annotated[ControllerMemory, Opaque()] = Field(default_factory=ControllerMemory)
    """What the controller remembers of the job; for the controller alone."""

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
