"""The conditions of a job and every reason they can have, in one table with what each means.

A condition says one thing about a job. Its reason is one of a fixed set of words, so that a script may compare it; its message
is for people. Conditions are found by their type, never by their place in the list.
"""

from dataclasses import dataclass
from enum import StrEnum

ConditionType = StrEnum(
    "ConditionType",
    {
        "ACCEPTED": "Accepted",
        "ADMITTED": "Admitted",
        "REPLAY_READY": "ReplayReady",
        "LEARNER_READY": "LearnerReady",
        "INFERENCE_READY": "InferenceReady",
        "ACTORS_READY": "ActorsReady",
        "READY": "Ready",
        "PROGRESSING": "Progressing",
        "SCALING_ACTIVE": "ScalingActive",
        "SCALING_LIMITED": "ScalingLimited",
        "CHECKPOINT_VALID": "CheckpointValid",
        "TRACKED": "Tracked",
        "SUSPENDED": "Suspended",
        "FAILURE_TARGET": "FailureTarget",
        "FAILED": "Failed",
        "STALLED": "Stalled",
        "COMPLETE": "Complete",
    },
)
"""The types of conditions, in the order in which they are shown."""


Reason = StrEnum(
    "Reason",
    {
        "ACCEPTING": "Accepting",
        "ACTORS_CRASH_LOOPING": "ActorsCrashLooping",
        "BACKOFF_LIMIT_EXCEEDED": "BackoffLimitExceeded",
        "CHECKPOINTING": "Checkpointing",
        "CHECKPOINT_UNREADABLE": "CheckpointUnreadable",
        "COMPLETE": "Complete",
        "CORRUPT": "Corrupt",
        "CRASH_LOOPING": "CrashLooping",
        "DEADLINE_EXCEEDED": "DeadlineExceeded",
        "DEGRADED": "Degraded",
        "DESIRED_WITHIN_RANGE": "DesiredWithinRange",
        "DIMINISHING_RETURNS": "DiminishingReturns",
        "DRAINING": "Draining",
        "EARLY_STOPPED": "EarlyStopped",
        "EVICTED": "Evicted",
        "EXPERIENCE_BLOCKED": "ExperienceBlocked",
        "FAILED": "Failed",
        "FAILURE_POLICY_RULE": "FailurePolicyRule",
        "FINISHING": "Finishing",
        "GONE": "Gone",
        "IMAGE_PULL_FAILED": "ImagePullFailed",
        "INVALID_SPEC": "InvalidSpec",
        "KEYS_LOST": "KeysLost",
        "LEARNER_ADVANCING": "LearnerAdvancing",
        "LEARNER_STALLED": "LearnerStalled",
        "METRIC_REACHED": "MetricReached",
        "MISSING": "Missing",
        "NAME_CONFLICT": "NameConflict",
        "NAMESPACE_TERMINATING": "NamespaceTerminating",
        "NODE_LOST": "NodeLost",
        "NON_FINITE_LOSS": "NonFiniteLoss",
        "NOT_MADE": "NotMade",
        "NOT_MANAGED": "NotManaged",
        "NOT_SENT": "NotSent",
        "PAUSED": "Paused",
        "PODS_PENDING": "PodsPending",
        "PODS_READY": "PodsReady",
        "PODS_STOPPED": "PodsStopped",
        "POD_SECURITY_FORBIDDEN": "PodSecurityForbidden",
        "POD_TEMPLATE_REJECTED": "PodTemplateRejected",
        "POLICY_LAG": "PolicyLag",
        "PROGRESS_DEADLINE_EXCEEDED": "ProgressDeadlineExceeded",
        "QUOTA_EVICTED": "QuotaEvicted",
        "QUOTA_EXCEEDED": "QuotaExceeded",
        "QUOTA_LIMITED": "QuotaLimited",
        "QUOTA_RESERVED": "QuotaReserved",
        "RENDERING_UNKNOWN": "RenderingUnknown",
        "RESTARTING": "Restarting",
        "RESTORING": "Restoring",
        "RESUMED": "Resumed",
        "RUNNING": "Running",
        "SCALE_DOWN_LIMIT": "ScaleDownLimit",
        "SCALE_DOWN_STABILIZED": "ScaleDownStabilized",
        "SCALE_UP_LIMIT": "ScaleUpLimit",
        "SCALING_DISABLED": "ScalingDisabled",
        "SENDING": "Sending",
        "SESSION_ENDED": "SessionEnded",
        "STALE": "Stale",
        "STALE_METRICS": "StaleMetrics",
        "STARTING": "Starting",
        "STARTUP_DEADLINE_EXCEEDED": "StartupDeadlineExceeded",
        "STARVED": "Starved",
        "STEP_BUDGET_REACHED": "StepBudgetReached",
        "STORAGE_ERROR": "StorageError",
        "SUSPENDED": "Suspended",
        "SUSPENDING": "Suspending",
        "TARGET_RETURN_REACHED": "TargetReturnReached",
        "TOO_FEW_REPLICAS": "TooFewReplicas",
        "TOO_MANY_REPLICAS": "TooManyReplicas",
        "TURN_FAILED": "TurnFailed",
        "UNSCHEDULABLE": "Unschedulable",
        "USER_REQUESTED": "UserRequested",
        "VALID": "Valid",
        "VALID_METRIC_FOUND": "ValidMetricFound",
        "VERIFIED": "Verified",
        "WAITING_FOR_QUOTA": "WaitingForQuota",
        "WARMING_UP": "WarmingUp",
    },
)
"""Every reason of every condition; `CATALOGUE` says which belongs where and what it means."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table: ``status`` (True, False or Unknown) and ``reason`` of a condition, and what that means."""

    type: ConditionType
    status: str
    reason: Reason
    meaning: str


MEANING_WHEN_TRUE: dict[ConditionType, str] = {
    ConditionType.ACCEPTED: "the spec can be run",
    ConditionType.ADMITTED: "the job may use resources: its queue has given it quota, or no queue is asked",
    ConditionType.REPLAY_READY: "every replay shard serves; not said of a job without a replay service",
    ConditionType.LEARNER_READY: "the learner serves",
    ConditionType.INFERENCE_READY: "every inference server of its own serves; not said of a job without any",
    ConditionType.ACTORS_READY: "at least the smallest number of actors is ready, and nothing keeps one of the others from it",
    ConditionType.READY: "training is going on, or has come to its end; its reason is the job's state in one word",
    ConditionType.PROGRESSING: "the learner has advanced a moment ago",
    ConditionType.SCALING_ACTIVE: "the number of actors, or with mode External the recommended one, follows fresh figures",
    ConditionType.SCALING_LIMITED: "something keeps the number of actors from the one that is recommended or asked for",
    ConditionType.CHECKPOINT_VALID: "the newest checkpoint was read back, has its digest, and is younger than three intervals",
    ConditionType.TRACKED: "W&B and MLflow take the figures that are sent to them; said of a job with `tracking`",
    ConditionType.SUSPENDED: "nothing of the job runs, because its user or its queue wants that",
    ConditionType.FAILURE_TARGET: "the job is going to fail; some of its members are still leaving",
    ConditionType.FAILED: "the job has failed, for good; nothing of it runs",
    ConditionType.STALLED: "the job has failed; Helm, Flux, kpt and all that read kstatus see it by this word",
    ConditionType.COMPLETE: "the job has succeeded, for good; nothing of it runs",
}


def _entries() -> tuple[Entry, ...]:
    t, r = ConditionType, Reason
    role_ready = (
        ("True", r.PODS_READY, "as many members of the role are ready as are needed"),
        ("False", r.PODS_PENDING, "members of the role have not started, or start now"),
        ("False", r.PODS_STOPPED, "nothing of the role runs and nothing shall: the job is suspended, leaving or over"),
        ("False", r.UNSCHEDULABLE, "a member finds no place: no node has what it asks for"),
        ("False", r.QUOTA_EXCEEDED, "a member can't be made: a ResourceQuota of the namespace refuses it"),
        ("False", r.IMAGE_PULL_FAILED, "the image of a member can't be pulled"),
        (
            "False",
            r.NODE_LOST,
            "the cluster hears nothing of a member's node; whether the member works is not known from there",
        ),
        ("False", r.CRASH_LOOPING, "a member ends again and again before it works"),
        ("False", r.RESTARTING, "a member has ended and is started again"),
    )
    failures = (
        ("True", r.DEADLINE_EXCEEDED, "`activeDeadlineSeconds` is over; time in suspension does not count"),
        ("True", r.STARTUP_DEADLINE_EXCEEDED, "the roles were not ready within `startupDeadlineSeconds`"),
        ("True", r.PROGRESS_DEADLINE_EXCEEDED, "the learner did not advance for `progressDeadlineSeconds`"),
        (
            "True",
            r.BACKOFF_LIMIT_EXCEEDED,
            "learner, replay, inference servers and an evaluator that success waits for failed more than `backoffLimit` times",
        ),
        ("True", r.FAILURE_POLICY_RULE, "a rule of `failurePolicy`, or exit code 78, says that no restart would help"),
        ("True", r.ACTORS_CRASH_LOOPING, "more than half of the actors end before they work"),
        ("True", r.NON_FINITE_LOSS, "the loss was not finite and `onNonFiniteLoss` is `Fail`"),
        (
            "True",
            r.CHECKPOINT_UNREADABLE,
            "the learner refused to start (exit code 78) and the checkpoint it needs can't be read",
        ),
    )
    rows: dict[ConditionType, tuple[tuple[str, Reason, str], ...]] = {
        t.ACCEPTED: (
            (
                "True",
                r.VALID,
                "the spec of this generation is in force; the message says what of its preset does not count",
            ),
            ("False", r.INVALID_SPEC, "the spec breaks a rule; the last good one, if any, stays in force"),
            ("False", r.COMPLETE, "the job was Complete before it was edited, which has no effect"),
            ("False", r.FAILED, "the job had Failed before it was edited, which has no effect"),
            ("False", r.POD_TEMPLATE_REJECTED, "the API server refuses a pod made from a role's `podTemplate`"),
            ("False", r.POD_SECURITY_FORBIDDEN, "the namespace's pod security level forbids a pod of the job"),
            ("False", r.NAME_CONFLICT, "an object with a name that the job needs belongs to another owner"),
            ("False", r.NAMESPACE_TERMINATING, "the namespace is being deleted, and nothing can be made in it"),
            (
                "False",
                r.NOT_MADE,
                "a part of the job can't be made: a webhook can't be called, the API server or the operator has a fault; the "
                "message says which",
            ),
            ("False", r.KEYS_LOST, "the Secrets with the job's keys were deleted; the message says what is to be done"),
            (
                "False",
                r.RENDERING_UNKNOWN,
                "the job runs with pods of another release of the operator, which are left alone; suspend and resume",
            ),
        ),
        t.ADMITTED: (
            ("True", r.QUOTA_RESERVED, "the queue has reserved quota"),
            ("True", r.NOT_MANAGED, "no queue is asked"),
            ("False", r.WAITING_FOR_QUOTA, "the job waits in its queue"),
            ("False", r.QUOTA_EXCEEDED, "a ResourceQuota of the namespace refuses a pod of the job; what runs goes on"),
            ("False", r.EVICTED, "the queue has taken the quota back"),
        ),
        t.REPLAY_READY: role_ready,
        t.LEARNER_READY: role_ready,
        t.INFERENCE_READY: role_ready,
        t.ACTORS_READY: role_ready,
        t.READY: (
            ("True", r.RUNNING, "the learner trains and every role is ready"),
            (
                "True",
                r.DEGRADED,
                "the learner trains, but something is missing; the message says what",
            ),
            (
                "False",
                r.ACCEPTING,
                "the spec was not accepted yet, or a pod that learning needs is refused; see Accepted",
            ),
            (
                "False",
                r.WAITING_FOR_QUOTA,
                "the queue, or a ResourceQuota of the namespace, has no room for what learning needs",
            ),
            ("False", r.STARTING, "replay, learner and actors come up; the message says what is waited for"),
            ("False", r.RESTORING, "the roles come up and the learner goes on from a checkpoint"),
            ("False", r.SUSPENDING, "the job is being suspended: drain, checkpoint, stop; see Suspended"),
            ("False", r.SUSPENDED, "the job is suspended"),
            ("False", r.SESSION_ENDED, "it was stopped, or the time of `rljob run` is over; resuming goes on"),
            ("False", r.FINISHING, "the end is decided; members are leaving"),
            (
                "False",
                r.TURN_FAILED,
                "the operator can't look after the job, as the message says, and tries again, later each time; what runs goes on",
            ),
            ("True", r.COMPLETE, "the job has succeeded"),
            ("False", r.FAILED, "the job has failed"),
        ),
        t.PROGRESSING: (
            ("True", r.LEARNER_ADVANCING, "an update was made within the window, and batches or inserts move"),
            ("False", r.LEARNER_STALLED, "no update within the window; after `progressDeadlineSeconds` the job fails"),
            ("False", r.STARVED, "no update within the window because the learner waits for experience"),
            (
                "False",
                r.EXPERIENCE_BLOCKED,
                "the learner waits for a batch while every actor waits to insert; the message says which shard holds up what",
            ),
            ("False", r.WARMING_UP, "no update yet since the start: the roles start, or the replay fills"),
            ("False", r.SUSPENDED, "the job is suspended, being suspended, or waits for quota"),
            ("False", r.SESSION_ENDED, "it was stopped, or the time of `rljob run` is over"),
            ("False", r.FINISHING, "the job is over"),
        ),
        t.SCALING_ACTIVE: (
            ("True", r.VALID_METRIC_FOUND, "the learner's figures are fresh and in range"),
            ("False", r.STALE_METRICS, "the learner's figures are missing, old or out of range; the number is held"),
            ("False", r.SCALING_DISABLED, "`autoscaling.mode` is Disabled, or the job does not run"),
            ("False", r.WARMING_UP, "no decision before the learner has advanced for one rate window"),
            ("False", r.PAUSED, "`autoscaling.pause` holds the number"),
        ),
        t.SCALING_LIMITED: (
            ("True", r.TOO_MANY_REPLICAS, "more are wanted or asked for than `maxReplicas` or the machine allow"),
            ("True", r.TOO_FEW_REPLICAS, "fewer than `minReplicas` are wanted or asked for"),
            ("True", r.SCALE_UP_LIMIT, "a decision at most doubles the number, or adds 4"),
            ("True", r.SCALE_DOWN_LIMIT, "a decision takes a fifth away at most"),
            ("True", r.SCALE_DOWN_STABILIZED, "more were wanted within the last 180 s, which holds a shrinking back"),
            ("True", r.QUOTA_LIMITED, "the queue, or a ResourceQuota of the namespace, admits no more actors"),
            ("True", r.UNSCHEDULABLE, "added actors find no node"),
            (
                "True",
                r.POLICY_LAG,
                "policy lag is, or was a while ago with more actors, above `guards.maxPolicyLagUpdates`",
            ),
            (
                "True",
                r.DIMINISHING_RETURNS,
                "growth has not shown a gain of 10 % of its nominal rate, and waits for it or is taken back",
            ),
            ("True", r.PAUSED, "`autoscaling.pause` forbids this direction"),
            ("False", r.DESIRED_WITHIN_RANGE, "the number is the one that is wanted"),
        ),
        t.CHECKPOINT_VALID: (
            ("True", r.VERIFIED, "it was read back and its digest is right"),
            ("False", r.MISSING, "there is none yet"),
            ("False", r.GONE, "it is lost, or goes with the learner's pod, as the message says"),
            ("False", r.STALE, "the newest is older than three intervals"),
            ("False", r.CORRUPT, "the newest can't be read or its digest is wrong"),
            ("False", r.STORAGE_ERROR, "the last attempt to write one failed; the one before stays"),
        ),
        t.TRACKED: (
            ("True", r.SENDING, "what was recorded is handed over, at the end all of it"),
            (
                "False",
                r.NOT_SENT,
                "a tracker takes none, as the message says; points are kept in the run folder and sent when it does",
            ),
        ),
        t.SUSPENDED: (
            ("True", r.USER_REQUESTED, "`spec.suspend` is true and nothing runs"),
            ("True", r.QUOTA_EVICTED, "the queue took the quota back and nothing runs"),
            ("False", r.DRAINING, "actors and evaluator are leaving; then the learner saves itself"),
            ("False", r.CHECKPOINTING, "waiting for a verified checkpoint; then learner and replay leave"),
            ("False", r.RESUMED, "the job was suspended before and goes on"),
        ),
        t.FAILURE_TARGET: failures,
        t.FAILED: failures,
        t.STALLED: failures,
        t.COMPLETE: (
            ("True", r.STEP_BUDGET_REACHED, "`successPolicy.rawFrames` raw frames were played"),
            ("True", r.TARGET_RETURN_REACHED, "`successPolicy.targetReturn` was reached"),
            ("True", r.METRIC_REACHED, "`successPolicy.metric` was reached"),
            (
                "True",
                r.EARLY_STOPPED,
                "`earlyStopping`: evaluations or the training return no longer improve, or the value loss diverges",
            ),
        ),
    }
    return tuple(Entry(type, *row) for type in ConditionType for row in rows[type])


CATALOGUE: tuple[Entry, ...] = _entries()
"""Every (type, status, reason) that occurs. Ready and Progressing also list what an observer of the STATE column may see."""
