"""``status.controller`` of an RLJob: what the controller must remember of a job from one reconciliation to the next.

For the controller alone; it may change between versions.
"""

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.status_model import Count, Message, ShortText, StatusModel, Timestamp, Word
from rljob.api.types import DecimalText, Text

MAX_REMEMBERED_MEMBERS = 2000
"""Room for every replay shard, the learner, every inference server and the evaluator at once (1,258), and for hundreds of
actors."""

MAX_CURVE_POINTS = 24
TREND_POINTS = 9
"""Moments of a run that a window of earlyStopping is judged by."""
MAX_SETTINGS = 16384
"""Characters that may be remembered of an operator's settings; the built-in ones take 1,100."""


class PlateauMemory(StatusModel):
    """The full evaluations so far, for earlyStopping.plateau."""

    best: Annotated[float, DecimalText()] | None = None
    """The best mean that counted as an improvement."""
    without: Count = 0
    """Evaluations since then without an improvement."""
    version: Count = 0
    """Policy version of the newest evaluation counted."""


class TrendPoint(StatusModel):
    """One moment of a run, for the rules of earlyStopping that watch medians over a window."""

    raw_frames: Count
    """Raw frames so far."""
    mean_return: Annotated[float, DecimalText()] | None = None
    """Training return then; unset before there are enough games."""
    value_loss: Annotated[float, DecimalText()] | None = None
    """Value loss then."""


class TrendMemory(StatusModel):
    """What earlyStopping.trainingReturn or valueLoss has seen."""

    points: list[TrendPoint] = Field(default_factory=list, max_length=TREND_POINTS)
    """The newest moments, a ninth of the window apart: their medians are those of the window."""
    best_return: Annotated[float, DecimalText()] | None = None
    """The highest median of the training return."""
    lowest_loss: Annotated[float, DecimalText()] | None = None
    """The lowest median of the value loss since the return was last at its best."""
    without: Count = 0
    """Moments in a row at which the rule had cause to end the job."""


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
    """Ends in a row before it had worked for ten seconds, which make a crash loop: no disruption, nothing that a rule ignores."""
    vain_starts: Count = 0
    """The same with disruptions and what a rule ignores: the more, the longer the next start waits."""
    time: Timestamp
    """When the latest end was seen."""
    dismissed: bool = False
    """An ended actor without a place, since fewer actors are wanted: it is not counted, and begins anew if it gets a place
    again."""


class AdvanceMemory(StatusModel):
    """The learner's advance."""

    updates: Count = 0
    """Updates as last seen."""
    time: Timestamp
    """When ``updates`` last grew."""
    most_updates: Count = 0
    """Most updates since the learner last started; one that goes back to a checkpoint by itself has fewer for a while."""
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


class RenderingMemory(StatusModel):
    """What a job is made with where its manifest does not say."""

    version: Count = 0
    """Version of the way in which pods are rendered."""
    image: Annotated[str, Text(512, "a container image", shortest=0)] = ""
    """Image of roles that name none."""
    gpu_image: Annotated[str, Text(512, "a container image", shortest=0)] = ""
    """Image of a learner with a device that names none; empty takes ``image``."""
    settings: Annotated[str, Text(MAX_SETTINGS, "JSON", shortest=0)] = ""
    """The operator's other settings."""


class CurvePoint(StatusModel):
    """One moment of the run, for the estimate of the time to go. Time is active time."""

    active_seconds: Count
    """Active seconds of the job."""
    raw_frames: Count = 0
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
    placed: Timestamp | None = None
    """Since when every part that the job needs has a place; unset while one waits for a node, a volume or quota."""
    started: Timestamp | None = None
    """When the roles last were all ready after a start."""
    watched_since: Timestamp | None = None
    """Since when the job has been watched without a gap; unset where there was none. What is waited for is waited for from here
    at the earliest."""
    advance: AdvanceMemory | None = None
    """The learner's advance."""
    members: list[MemberMemory] = Field(default_factory=list, max_length=MAX_REMEMBERED_MEMBERS)
    """Members that ended unasked lately. Where more did than there is room for, actors are left out."""
    last_counted_failure: Timestamp | None = None
    """When restarts.counted last grew."""
    learner_epoch: Count = 0
    """The least epoch that the newest learner takes: later than any before it, so that of two learners the newer one counts."""
    suspension: SuspensionMemory | None = None
    """A suspension under way or in force."""
    started_with: ShortText = ""
    """Digest of what roles read when they start, as it was when those that run were started: on one machine of the spec in force
    (`rljob.api.live`), on a cluster of what the job's user wrote."""
    rendering: RenderingMemory | None = None
    """What pods are made with since the job was last started; unset on one machine."""
    checkpoint_request: CheckpointRequestMemory | None = None
    """The user's last request for a checkpoint."""
    plateau: PlateauMemory | None = None
    """The evaluations so far, where the job stops on a plateau."""
    training_return: TrendMemory | None = None
    """The training return so far, where earlyStopping.trainingReturn watches it."""
    value_loss: TrendMemory | None = None
    """The value loss so far, where earlyStopping.valueLoss watches it."""
    curve: list[CurvePoint] = Field(default_factory=list, max_length=MAX_CURVE_POINTS)
    """Moments of the run, thinned as their number grows."""
    outcome: OutcomeMemory | None = None
    """How the job ends."""
