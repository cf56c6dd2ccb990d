"""Every metric a role exports, declared once: name, kind, help, and where its value stands in the status document.

A declaration holds a path into the role's status document, so a hot path only ever counts in plain ints and floats, and
``/metrics`` and ``/status`` cannot disagree. ``docs/metrics.md`` is written from these tables (:mod:`.metrics`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rljob.telemetry.flat_figures import number

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "rljob_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family.

    Attributes:
        name: without the prefix; counters end in ``_total``, and a unit stands in the name.
        kind: counter (only grows while the role lives), gauge or histogram.
        help: one sentence for the person who reads the figure.
        path: where the value stands in the status document, ``a/b/c``. With ``label``, a mapping from the label's value
            to the number, or a text whose value becomes the label of a series that is 1.
        label: a second label beside the role's own, or empty.
    """

    name: str
    kind: Kind
    help: str
    path: str
    label: str = ""

    @property
    def full_name(self) -> str:
        """The name as Prometheus sees it."""
        return PREFIX + self.name


# Shared by all roles; all but the state are of the process (`process.py`) and not from the status document.
PROCESS: Final = (
    Metric("rss_bytes", "gauge", "Resident memory of the role's process.", "rss_bytes"),
    Metric("shm_bytes", "gauge", "Shared part of the resident memory.", "shm_bytes"),
    Metric("cpu_seconds_total", "counter", "CPU time of the role's process and its children.", "cpu_seconds"),
    Metric(
        "core_wait_cores",
        "gauge",
        "Cores that their running threads waited for, as others or a limit took them.",
        "core_wait_cores",
    ),
    Metric("open_files", "gauge", "Open file descriptors, with sockets.", "open_files"),
    Metric(
        "socket_receive_queue_bytes",
        "gauge",
        "Received bytes in sockets, not yet read.",
        "receive_queue_bytes",
    ),
    Metric(
        "socket_send_queue_bytes",
        "gauge",
        "Sent bytes in sockets, not yet acknowledged.",
        "send_queue_bytes",
    ),
    Metric("start_time_seconds", "gauge", "Start of the metrics server, Unix time.", "start_time_seconds"),
    Metric("state", "gauge", "1 for the role's present state.", "state", "state"),
)

ACTOR: Final = (
    Metric("env_steps_total", "counter", "Agent steps taken in all environments of this actor.", "steps"),
    Metric("raw_frames_total", "counter", "Emulator frames of those steps (with frame skip).", "raw_frames"),
    Metric("episodes_total", "counter", "Episodes ended, by how.", "episodes_by_end", "end"),
    Metric(
        "environment_failures_total",
        "counter",
        "Environments that failed and were replaced.",
        "environment_failures",
    ),
    Metric("transitions_produced_total", "counter", "Transitions put into chunks.", "produced"),
    Metric(
        "transitions_dropped_total",
        "counter",
        "Transitions given up before acknowledgement.",
        "dropped",
        "reason",
    ),
    Metric("bytes_encoded_total", "counter", "Bytes of encoded chunks.", "bytes_encoded"),
    Metric("chunks_sent_total", "counter", "Chunks sent, with repeats.", "chunks_sent"),
    Metric("chunks_acknowledged_total", "counter", "Chunks acknowledged by the replay.", "chunks_acknowledged"),
    Metric("chunks_resent_total", "counter", "Chunks sent again after a lost connection.", "chunks_resent"),
    Metric("chunks_refused_total", "counter", "Chunks refused by the replay.", "refused", "reason"),
    Metric("credits_available", "gauge", "Chunks this actor may send before it must wait.", "credits"),
    Metric("unacknowledged_chunks", "gauge", "Chunks kept until they are acknowledged.", "unacknowledged_chunks"),
    Metric(
        "actor_blocked_seconds_total",
        "counter",
        "Time without a credit (the learner cannot keep up) or an answer of the inference server.",
        "blocked_seconds",
    ),
    Metric(
        "actor_inference_wait_seconds_total",
        "counter",
        "The part without an answer of the inference server.",
        "inference_wait_seconds",
    ),
    Metric(
        "actor_inference_resent_total",
        "counter",
        "Requests for actions sent again.",
        "inference_resent",
    ),
    Metric("actor_steps_per_second", "gauge", "Recent agent steps per second.", "steps_per_second"),
    Metric("policy_version", "gauge", "Version of the actor's weights.", "policy_version"),
    Metric("weight_age_seconds", "gauge", "Time since those weights arrived.", "weight_age_seconds"),
    Metric("zmq_eagain_total", "counter", "Sends refused by a full socket.", "eagain"),
    Metric("stage_seconds_total", "counter", "Time per stage of the loop.", "stages", "stage"),
)

REPLAY: Final = (
    Metric("replay_items", "gauge", "Transitions that can be sampled now.", "items"),
    Metric("replay_capacity_items", "gauge", "Transitions that fit.", "capacity"),
    Metric("replay_bytes", "gauge", "Bytes of stored experience.", "bytes"),
    Metric("replay_fill_ratio", "gauge", "Fill, 0..1; at 1 new chunks overwrite the oldest.", "fill"),
    Metric("replay_durable", "gauge", "1 while the log has everything acknowledged, else 0.", "durable"),
    Metric("replay_durability", "gauge", "1 for On or Off: whether the job keeps a log.", "durability", "durability"),
    Metric("replay_inserted_total", "counter", "Transitions inserted.", "inserted_total"),
    Metric("replay_sampled_total", "counter", "Transitions sampled, with repeats.", "sampled_total"),
    Metric("replay_chunks_total", "counter", "Chunks accepted.", "chunks_total"),
    Metric("replay_batches_total", "counter", "Batches sent to the learner.", "batches_total"),
    Metric("replay_capacity_bytes", "gauge", "Limit in bytes; 0 is none.", "capacity_bytes"),
    Metric("replay_duplicate_chunks_total", "counter", "Chunks seen before and dropped.", "duplicates_total"),
    Metric("replay_rejected_total", "counter", "Messages refused.", "rejected_total", "reason"),
    Metric(
        "replay_stale_priority_updates_total",
        "counter",
        "Priority updates for overwritten experience.",
        "stale_priority_updates_total",
    ),
    Metric(
        "replay_invalid_priority_updates_total",
        "counter",
        "Priority updates with an invalid value.",
        "invalid_priority_updates_total",
    ),
    Metric("replay_samples_per_insert", "gauge", "Samples per inserted transition, so far.", "samples_per_insert"),
    Metric(
        "limiter_error_samples",
        "gauge",
        "Inserts x target ratio - samples: above 0 the learner is behind, below 0 the actors are.",
        "limiter/error",
    ),
    Metric("limiter_buffer_samples", "gauge", "Largest error before a side is blocked.", "limiter/buffer"),
    Metric("limiter_blocked", "gauge", "1 for the side that is held back.", "limiter/blocked", "side"),
    Metric(
        "replay_queue_depth_batches",
        "gauge",
        "Batches that the learner may still draw.",
        "queue_depth_batches",
    ),
    Metric("replay_queue_bound_batches", "gauge", "Largest queue depth.", "queue_bound_batches"),
    Metric(
        "replay_insert_blocked_seconds_total",
        "counter",
        "Time in which actors got no credits.",
        "insert_blocked_seconds",
    ),
    Metric(
        "replay_sample_blocked_seconds_total",
        "counter",
        "Time in which a learner's request waited.",
        "sample_blocked_seconds",
    ),
    Metric("tree_root", "gauge", "Sum of all priorities (the root of the sum tree).", "priority_total"),
    Metric("tree_drift_ratio", "gauge", "Relative rounding error of that sum; about 1e-16 is sound.", "priority_drift"),
    Metric(
        "refused_handshakes_total",
        "counter",
        "Connections refused, as their key is not the job's.",
        "refused_handshakes_total",
    ),
    Metric("replay_episodes_total", "counter", "Episodes reported by all actors over the whole run.", "episodes_total"),
    Metric("redis_latency_seconds", "gauge", "Duration of the last write to the log.", "redis/latency_seconds"),
    Metric("redis_lag_chunks", "gauge", "Chunks accepted but not yet in the log.", "redis/lag_chunks"),
    Metric("redis_used_memory_bytes", "gauge", "Memory of the log's Redis.", "redis/used_memory_bytes"),
    Metric("redis_failures_total", "counter", "Writes to the log that failed.", "redis/failures_total"),
    Metric("redis_reachable", "gauge", "1 while the log's Redis answers, else 0.", "redis/reachable"),
    Metric("zmq_eagain_total", "counter", "Sends refused by a full socket.", "eagain"),
    Metric("stage_seconds_total", "counter", "Time per stage of the loop.", "stages", "stage"),
)

LEARNER: Final = (
    Metric("learner_updates_total", "counter", "Gradient updates over the whole run.", "updates"),
    Metric("learner_samples_total", "counter", "Transitions learned from, with repeats.", "samples"),
    Metric("run_env_steps_total", "counter", "Agent steps of all actors over the whole run.", "steps_total"),
    Metric("run_raw_frames_total", "counter", "Emulator frames of all actors over the whole run.", "raw_frames_total"),
    Metric("run_episodes_total", "counter", "Episodes of all actors over the whole run.", "episodes_total"),
    Metric(
        "mean_return",
        "gauge",
        "Mean score of the last 20 training games; with Ape-X, of the greedier half of environments.",
        "mean_return",
    ),
    Metric("mean_length_steps", "gauge", "Mean length of the same games, in agent steps.", "mean_length_steps"),
    Metric(
        "episode_metric",
        "gauge",
        "Mean over these games of a number that the environment reports in `info` at an episode's end, such as `is_success`; "
        "a share if it is true or false.",
        "episode",
        "name",
    ),
    Metric(
        "learner_queue_depth_batches",
        "gauge",
        "Batches that the learner may still draw (queue depth).",
        "queue_depth_batches",
    ),
    Metric("learner_queue_bound_batches", "gauge", "Largest queue depth.", "queue_bound_batches"),
    Metric("ready_batches", "gauge", "Prefetched batches; at 0 the learner waits.", "ready_batches"),
    Metric("learner_wait_seconds_total", "counter", "Time the learner waited for a batch.", "stages/learner/wait"),
    Metric(
        "learner_wait_fraction",
        "gauge",
        "Recent share of time in which the learner waited, 0..1.",
        "learner_wait_fraction",
    ),
    Metric(
        "actors_blocked_fraction",
        "gauge",
        "Recent share of time in which actors were held back, 0..1.",
        "actors_blocked_fraction",
    ),
    Metric(
        "policy_lag_updates",
        "gauge",
        "Recent mean policy lag.",
        "policy_lag_updates",
    ),
    Metric("policy_lag_bucket_updates", "histogram", "Policy lag of samples.", "policy_lag_histogram"),
    Metric("learner_updates_per_second", "gauge", "Recent updates per second.", "updates_per_second"),
    Metric("run_env_steps_per_second", "gauge", "Recent agent steps per second, all actors.", "steps_per_second"),
    Metric("run_raw_frames_per_second", "gauge", "Recent emulator frames per second.", "raw_frames_per_second"),
    Metric("samples_per_insert", "gauge", "Samples learned per inserted transition.", "samples_per_insert"),
    Metric("loss", "gauge", "Loss of the last update.", "loss"),
    Metric(
        "learner_epoch",
        "gauge",
        "The learner's epoch; each start takes a later one.",
        "epoch",
    ),
    Metric("checkpoint_step", "gauge", "Update number of the newest checkpoint.", "checkpoint/step"),
    Metric("checkpoint_state", "gauge", "1 for the state of the newest checkpoint.", "checkpoint/state", "state"),
    Metric(
        "checkpoint_written_timestamp_seconds",
        "gauge",
        "Time of the newest valid checkpoint, Unix time; absent without one.",
        "checkpoint/written_unix",
    ),
    Metric(
        "checkpoint_interval_seconds",
        "gauge",
        "The job's checkpoint interval.",
        "checkpoint/interval_seconds",
    ),
    Metric("recompiles_total", "counter", "Compilations of the update step after the first.", "recompiles"),
    Metric(
        "amp_skipped_steps_total", "counter", "Updates skipped because a gradient was not finite.", "skipped_updates"
    ),
    Metric("learning_rate", "gauge", "Step size of the optimiser.", "learning_rate"),
    Metric("gradient_norm", "gauge", "Recent mean norm of the gradient before clipping.", "gradient_norm"),
    Metric("queue_unrolls_received_total", "counter", "Unrolls accepted from actors.", "queue/received"),
    Metric("queue_unrolls_learned_total", "counter", "Unrolls learned from.", "queue/learned"),
    Metric(
        "queue_unrolls_dropped_total",
        "counter",
        "Discarded unrolls: stale (too old), epoch (weights of an earlier learner), overflow, centring.",
        "queue/dropped",
        "reason",
    ),
    Metric("queue_unrolls_in_flight", "gauge", "Unrolls received, not yet learned or dropped.", "queue/in_flight"),
    Metric("lag_limit_updates", "gauge", "Age of weights above which unrolls are discarded.", "lag_limit_updates"),
    Metric(
        "queue_arrival_age_updates",
        "gauge",
        "90th percentile of the weights' age on arrival.",
        "queue/arrival_age_updates",
    ),
    Metric("queue_head_age_updates", "gauge", "Age of the oldest waiting unroll's weights.", "queue/head_age_updates"),
    Metric(
        "production_per_second",
        "gauge",
        "Unrolls or inserted transitions per second, all actors.",
        "production_per_second",
    ),
    Metric(
        "consumption_per_second",
        "gauge",
        "Unrolls learned, or transitions drawn, per second.",
        "consumption_per_second",
    ),
    Metric(
        "policy_lag_updates_p95",
        "gauge",
        "Recent 95th percentile of policy lag.",
        "policy_lag_updates_p95",
    ),
    Metric("entropy", "gauge", "Recent mean entropy of the policy, in nats.", "entropy"),
    Metric("policy_loss", "gauge", "Recent mean policy term of the loss.", "policy_loss"),
    Metric("value_loss", "gauge", "Recent mean of half the squared value error.", "value_loss"),
    Metric("policy_kl", "gauge", "Recent mean KL divergence from the acting policy.", "policy_kl"),
    Metric("clip_share", "gauge", "Recent share of steps with a clipped importance ratio.", "clip_share"),
    Metric("log_std", "gauge", "Recent mean log standard deviation of continuous actions.", "log_std"),
    Metric("value", "gauge", "Recent mean value of observations, in units of the reward.", "value"),
    Metric(
        "explained_variance",
        "gauge",
        "Recent explained variance of the value targets, -1..1.",
        "explained_variance",
    ),
    Metric(
        "advantage_std",
        "gauge",
        "Recent standard deviation of advantages before normalisation.",
        "advantage_std",
    ),
    Metric("q_taken", "gauge", "Recent mean value of the actions learned from.", "q_taken"),
    Metric("critic_loss", "gauge", "Recent mean of half the squared errors of both critics.", "critic_loss"),
    Metric("temperature", "gauge", "Recent worth of a nat of entropy, in units of the reward.", "temperature"),
    Metric(
        "refused_handshakes_total",
        "counter",
        "Connections refused, as their key is not the job's.",
        "refused_handshakes_total",
    ),
    Metric(
        "gpu_utilization_ratio", "gauge", "Recent share of time in which the GPU computed, 0..1.", "gpu/utilization"
    ),
    Metric(
        "gpu_memory_utilization_ratio",
        "gauge",
        "Recent share of time with memory traffic, 0..1.",
        "gpu/memory_utilization",
    ),
    Metric("gpu_sm_activity_ratio", "gauge", "Recent share of multiprocessors at work, 0..1.", "gpu/sm_activity"),
    Metric("gpu_power_watts", "gauge", "Power draw of the GPU.", "gpu/power_watts"),
    Metric("gpu_power_limit_watts", "gauge", "Power limit of the GPU.", "gpu/power_limit_watts"),
    Metric("gpu_memory_used_bytes", "gauge", "GPU memory of all processes.", "gpu/memory_used_bytes"),
    Metric("gpu_memory_total_bytes", "gauge", "Total GPU memory.", "gpu/memory_total_bytes"),
    Metric("gpu_memory_allocated_bytes", "gauge", "GPU memory in the learner's tensors.", "gpu/allocated_bytes"),
    Metric(
        "gpu_stage_seconds_total",
        "counter",
        "GPU time per stage of the learner's loop, idle time included.",
        "stages/gpu",
        "stage",
    ),
    Metric("loss_scale", "gauge", "Recent mean loss scale in FP16.", "loss_scale"),
    Metric("learner_resubscriptions_total", "counter", "Refills of the replay's mirror.", "resubscriptions"),
    Metric("stage_seconds_total", "counter", "Time per stage of the loop.", "stages/learner", "stage"),
)

EVALUATOR: Final = (
    Metric("evaluations_total", "counter", "Evaluations finished.", "evaluations_total"),
    Metric("evaluation_episodes_total", "counter", "Games played for them.", "episodes_total"),
    Metric(
        "evaluation_steps_total",
        "counter",
        "Steps of its games; other processes report at a game's end.",
        "steps_total",
    ),
    Metric(
        "environment_failures_total",
        "counter",
        "Environments that failed during a game, which was repeated.",
        "environment_failures",
    ),
    Metric("evaluation_mean_return", "gauge", "Mean game score of the last evaluation.", "last/mean"),
    Metric("evaluation_standard_error", "gauge", "Standard error of that mean.", "last/standard_error"),
    Metric(
        "evaluation_metric",
        "gauge",
        "Mean over the last evaluation's games of a number that the environment reports in `info`, such as `is_success`.",
        "last/metrics",
        "name",
    ),
    Metric("evaluation_seconds", "gauge", "Time the last evaluation took.", "last/seconds"),
    Metric("evaluation_policy_version", "gauge", "Version of the judged weights.", "last/version"),
    Metric("stage_seconds_total", "counter", "Time per stage of the loop.", "stages", "stage"),
)


def _inference(path: str) -> tuple[Metric, ...]:
    """The metrics of an inference server whose figures stand at ``path`` of the status document."""
    return (
        Metric(
            "inference_requests_total", "counter", "Requests for actions, without repeats.", path + "requests_total"
        ),
        Metric(
            "inference_repeated_requests_total",
            "counter",
            "Repeated requests, answered as before.",
            path + "repeated_requests_total",
        ),
        Metric(
            "inference_refused_requests_total",
            "counter",
            "Valid requests that this network cannot answer.",
            path + "refused_requests_total",
        ),
        Metric("inference_malformed_total", "counter", "Malformed messages.", path + "malformed", "reason"),
        Metric("inference_observations_total", "counter", "Observations evaluated.", path + "observations_total"),
        Metric("inference_batches_total", "counter", "Batches by padded size.", path + "buckets", "size"),
        Metric("inference_batch_mean", "gauge", "Mean observations per batch, so far.", path + "batch_mean"),
        Metric("inference_bucket_fill", "gauge", "Share of computed rows that were requested.", path + "bucket_fill"),
        Metric(
            "inference_latency_p50_seconds",
            "gauge",
            "Median time from request to answer, over the last 4,096.",
            path + "latency_p50_seconds",
        ),
        Metric("inference_latency_p99_seconds", "gauge", "The same, 99th percentile.", path + "latency_p99_seconds"),
        Metric("inference_policy_version", "gauge", "Version of the server's weights.", path + "policy_version"),
    )


INFERENCE: Final = (
    *_inference(""),
    Metric("zmq_eagain_total", "counter", "Sends refused by a full socket.", "eagain_total"),
    Metric("stage_seconds_total", "counter", "Time per stage of the loop.", "stages", "stage"),
)

ROLES: Final[dict[str, tuple[Metric, ...]]] = {
    "actor": ACTOR,
    "replay": REPLAY,
    "learner": (*LEARNER, *_inference("inference/")),
    "evaluator": EVALUATOR,
    "inference": INFERENCE,
}


@dataclass(frozen=True, slots=True)
class KnownTag:
    """A tag of another library: our ``figure``, times ``factor`` where the libraries differ in sign or in a half.

    ``beside``: another figure, without which the tag is left out, since ``figure`` would mean something else there.
    """

    tag: str
    figure: str
    factor: float = 1.0
    beside: str = ""


STABLE_BASELINES3: Final = (
    KnownTag("rollout/ep_rew_mean", "mean_return"),
    KnownTag("rollout/ep_len_mean", "mean_length_steps"),
    KnownTag("rollout/success_rate", "episode/is_success"),
    KnownTag("eval/mean_reward", "evaluation/mean"),
    KnownTag("eval/mean_ep_length", "evaluation/mean_length_steps"),
    KnownTag("eval/success_rate", "evaluation/episode/is_success"),
    KnownTag("time/fps", "steps_per_second"),
    KnownTag("time/total_timesteps", "steps_total"),
    KnownTag("train/learning_rate", "learning_rate"),
    KnownTag("train/loss", "loss"),
    KnownTag("train/policy_gradient_loss", "policy_loss", beside="value_loss"),
    KnownTag("train/value_loss", "value_loss", factor=2.0),
    KnownTag("train/entropy_loss", "entropy", factor=-1.0, beside="value_loss"),
    KnownTag("train/approx_kl", "policy_kl"),
    KnownTag("train/clip_fraction", "clip_share"),
    KnownTag("train/explained_variance", "explained_variance"),
    KnownTag("train/actor_loss", "policy_loss", beside="critic_loss"),
    KnownTag("train/critic_loss", "critic_loss"),
    KnownTag("train/ent_coef", "temperature"),
)
CLEANRL: Final = (
    KnownTag("global_step", "steps_total"),
    KnownTag("charts/episodic_return", "mean_return"),
    KnownTag("charts/episodic_length", "mean_length_steps"),
    KnownTag("charts/SPS", "steps_per_second"),
    KnownTag("charts/learning_rate", "learning_rate"),
    KnownTag("eval/episodic_return", "evaluation/mean"),
    KnownTag("losses/policy_loss", "policy_loss", beside="value_loss"),
    KnownTag("losses/value_loss", "value_loss"),
    KnownTag("losses/entropy", "entropy", beside="value_loss"),
    KnownTag("losses/approx_kl", "policy_kl"),
    KnownTag("losses/clipfrac", "clip_share"),
    KnownTag("losses/explained_variance", "explained_variance"),
    KnownTag("losses/actor_loss", "policy_loss", beside="critic_loss"),
    KnownTag("losses/qf_loss", "critic_loss"),
    KnownTag("losses/q_values", "q_taken"),
    KnownTag("losses/alpha", "temperature"),
)


def known_tags(figures: Mapping[str, float]) -> dict[str, float]:
    """What the others would call those of ``figures`` that they have."""
    return {
        each.tag: value * each.factor
        for each in (*STABLE_BASELINES3, *CLEANRL)
        if (value := number(figures.get(each.figure))) is not None and (not each.beside or each.beside in figures)
    }
