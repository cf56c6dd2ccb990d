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
        "COMPLETE": "Complete",
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
        "TWO_AUTOSCALERS": "TwoAutoscalers",
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
    ConditionType.ACCEPTED: "the spec is valid",
    ConditionType.ADMITTED: "the job may use resources",
    ConditionType.REPLAY_READY: "every replay shard serves; absent without a replay service",
    ConditionType.LEARNER_READY: "the learner serves",
    ConditionType.INFERENCE_READY: "every separate inference server serves; absent without one",
    ConditionType.ACTORS_READY: "the smallest number of actors is ready, and no other is held up",
    ConditionType.READY: "the job trains, or is complete; its reason is the state in one word",
    ConditionType.PROGRESSING: "the learner advances",
    ConditionType.SCALING_ACTIVE: "the wanted (External: recommended) number of actors follows fresh metrics",
    ConditionType.SCALING_LIMITED: "something keeps the number of actors from the recommended or requested one",
    ConditionType.CHECKPOINT_VALID: "the newest checkpoint was read back and is younger than three intervals",
    ConditionType.TRACKED: "W&B and MLflow accept the metrics; absent without `tracking`",
    ConditionType.SUSPENDED: "the user or the queue has suspended the job, and no pod runs",
    ConditionType.FAILURE_TARGET: "the job will fail; members are still leaving",
    ConditionType.FAILED: "the job has failed for good, and no pod runs",
    ConditionType.STALLED: "the same, for kstatus (Helm, Flux, kpt)",
    ConditionType.COMPLETE: "the job has succeeded for good, and no pod runs",
}


def _entries() -> tuple[Entry, ...]:
    t, r = ConditionType, Reason
    role_ready = (
        ("True", r.PODS_READY, "enough members are ready"),
        ("False", r.PODS_PENDING, "members have not started, or are starting"),
        ("False", r.PODS_STOPPED, "no member runs or should: the job is suspended, leaving or over"),
        ("False", r.UNSCHEDULABLE, "no node has the resources that a member asks for"),
        ("False", r.QUOTA_EXCEEDED, "a ResourceQuota of the namespace refuses a member"),
        ("False", r.IMAGE_PULL_FAILED, "the image of a member can't be pulled"),
        ("False", r.NODE_LOST, "a member's node has stopped reporting; the member may still work"),
        ("False", r.CRASH_LOOPING, "a member ends again and again before it works"),
        ("False", r.RESTARTING, "a member has ended and restarts"),
    )
    failures = (
        ("True", r.DEADLINE_EXCEEDED, "`activeDeadlineSeconds` is over, without time in suspension"),
        ("True", r.STARTUP_DEADLINE_EXCEEDED, "the roles were not ready within `startupDeadlineSeconds`"),
        ("True", r.PROGRESS_DEADLINE_EXCEEDED, "the learner did not advance for `progressDeadlineSeconds`"),
        ("True", r.BACKOFF_LIMIT_EXCEEDED, "more than `backoffLimit` counted failures"),
        ("True", r.FAILURE_POLICY_RULE, "a `failurePolicy` rule or exit code 78 rules out a restart"),
        ("True", r.ACTORS_CRASH_LOOPING, "more than half of the actors end before they work"),
        ("True", r.NON_FINITE_LOSS, "the loss was not finite and `onNonFiniteLoss` is `Fail`"),
    )
    rows: dict[ConditionType, tuple[tuple[str, Reason, str], ...]] = {
        t.ACCEPTED: (
            ("True", r.VALID, "this generation of the spec applies; the message lists preset values that do not"),
            ("False", r.INVALID_SPEC, "the spec breaks a rule; the last valid one, if any, still applies"),
            ("False", r.COMPLETE, "the job was Complete before the edit, which has no effect"),
            ("False", r.FAILED, "the job had Failed before the edit, which has no effect"),
            ("False", r.POD_TEMPLATE_REJECTED, "the API server refuses a pod made from a role's `podTemplate`"),
            ("False", r.POD_SECURITY_FORBIDDEN, "the namespace's pod security level forbids a pod of the job"),
            ("False", r.NAME_CONFLICT, "another owner has an object with a name that the job needs"),
            ("False", r.NAMESPACE_TERMINATING, "the namespace is being deleted"),
            ("False", r.NOT_MADE, "a webhook, the API server or the operator prevents a part"),
            ("False", r.KEYS_LOST, "the Secrets with the job's keys were deleted; the message says what to do"),
            ("False", r.RENDERING_UNKNOWN, "another release of the operator made the running pods; suspend and resume"),
        ),
        t.ADMITTED: (
            ("True", r.QUOTA_RESERVED, "the queue has reserved quota"),
            ("True", r.NOT_MANAGED, "the job uses no queue"),
            ("False", r.WAITING_FOR_QUOTA, "the job waits in its queue"),
            ("False", r.QUOTA_EXCEEDED, "a ResourceQuota of the namespace refuses a pod; running pods go on"),
            ("False", r.EVICTED, "the queue has taken the quota back"),
        ),
        t.REPLAY_READY: role_ready,
        t.LEARNER_READY: role_ready,
        t.INFERENCE_READY: role_ready,
        t.ACTORS_READY: role_ready,
        t.READY: (
            ("True", r.RUNNING, "the learner trains and every role is ready"),
            ("True", r.DEGRADED, "the learner trains, but the message names something that is missing"),
            ("False", r.ACCEPTING, "the spec is not accepted yet, or a needed pod is refused; see Accepted"),
            ("False", r.WAITING_FOR_QUOTA, "queue or ResourceQuota has no room for the pods that learning needs"),
            ("False", r.STARTING, "the roles start; the message says what is awaited"),
            ("False", r.RESTORING, "the roles start, and the learner continues from a checkpoint"),
            ("False", r.SUSPENDING, "drain, checkpoint, stop; see Suspended"),
            ("False", r.SUSPENDED, "the job is suspended"),
            ("False", r.SESSION_ENDED, "the run was stopped, or the time of `rljob run` is over; you can resume it"),
            ("False", r.FINISHING, "the end is decided; members are leaving"),
            ("False", r.TURN_FAILED, "the operator can't manage the job and retries; running pods go on"),
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
                "the learner waits for a batch and every actor to insert; the message names the shard",
            ),
            ("False", r.WARMING_UP, "no update yet since the start: the roles start, or the replay fills"),
            ("False", r.SUSPENDED, "the job is suspended or being suspended, or waits for quota"),
            ("False", r.SESSION_ENDED, "the run was stopped, or the time of `rljob run` is over"),
            ("False", r.FINISHING, "the job is over"),
        ),
        t.SCALING_ACTIVE: (
            ("True", r.VALID_METRIC_FOUND, "the learner's metrics are fresh and in range"),
            ("False", r.STALE_METRICS, "the learner's metrics are missing, old or out of range; the number is held"),
            ("False", r.SCALING_DISABLED, "`autoscaling.mode` is Disabled, or the job does not run"),
            ("False", r.WARMING_UP, "no decision before the learner has advanced for one rate window"),
            ("False", r.PAUSED, "`autoscaling.pause` holds the number"),
        ),
        t.SCALING_LIMITED: (
            ("True", r.TWO_AUTOSCALERS, "`autoscaling.mode` is Internal, and an HPA sets `actors.replicas` too"),
            ("True", r.TOO_MANY_REPLICAS, "limited by `maxReplicas` or the machine"),
            ("True", r.TOO_FEW_REPLICAS, "limited by `minReplicas`"),
            ("True", r.SCALE_UP_LIMIT, "a decision at most doubles the number, or adds 4"),
            ("True", r.SCALE_DOWN_LIMIT, "a decision removes at most a fifth"),
            ("True", r.SCALE_DOWN_STABILIZED, "more were wanted within the last 180 s"),
            ("True", r.QUOTA_LIMITED, "queue or ResourceQuota admits no more actors"),
            ("True", r.UNSCHEDULABLE, "added actors find no node"),
            (
                "True",
                r.POLICY_LAG,
                "policy lag is, or recently was with more actors, above `guards.maxPolicyLagUpdates`",
            ),
            ("True", r.DIMINISHING_RETURNS, "growth has not shown 10 % of its nominal gain; it waits or is taken back"),
            ("True", r.PAUSED, "`autoscaling.pause` forbids this direction"),
            ("False", r.DESIRED_WITHIN_RANGE, "no limit applies"),
        ),
        t.CHECKPOINT_VALID: (
            ("True", r.VERIFIED, "it was read back and its digest is right"),
            ("False", r.MISSING, "there is none yet"),
            ("False", r.GONE, "it is lost, or goes with the learner's pod"),
            ("False", r.STALE, "the newest is older than three intervals"),
            ("False", r.STORAGE_ERROR, "the last write failed; the previous checkpoint stays"),
        ),
        t.TRACKED: (
            ("True", r.SENDING, "metrics are being sent"),
            (
                "False",
                r.NOT_SENT,
                "a tracker refuses them; the run folder keeps them until it accepts",
            ),
        ),
        t.SUSPENDED: (
            ("True", r.USER_REQUESTED, "`spec.suspend` is true and no pod runs"),
            ("True", r.QUOTA_EVICTED, "the queue took the quota back and no pod runs"),
            ("False", r.DRAINING, "actors and evaluator are leaving; then the learner saves itself"),
            ("False", r.CHECKPOINTING, "waiting for a verified checkpoint; then learner and replay leave"),
            ("False", r.RESUMED, "the job was suspended before and has resumed"),
        ),
        t.FAILURE_TARGET: failures,
        t.FAILED: failures,
        t.STALLED: failures,
        t.COMPLETE: (
            ("True", r.STEP_BUDGET_REACHED, "`successPolicy.rawFrames` raw frames were played"),
            ("True", r.TARGET_RETURN_REACHED, "`successPolicy.targetReturn` was reached"),
            ("True", r.METRIC_REACHED, "`successPolicy.metric` was reached"),
            ("True", r.EARLY_STOPPED, "a rule of `earlyStopping` ended training"),
        ),
    }
    return tuple(Entry(type, *row) for type in ConditionType for row in rows[type])


CATALOGUE: tuple[Entry, ...] = _entries()
"""Every (type, status, reason) that occurs."""
