"""Names that are no fields of an RLJob: what other libraries call one, and what earlier manifests did."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from rljob.api.algorithm import SHARED

CALLED_HERE: Final[Mapping[str, str]] = {
    name: path
    for path, names in {
        "environment.id": "env env_id env_name environment_id environment.name",
        "environment.kwargs": "env_kwargs env_config",
        "environment.frameStack": "env_framestack num_stack",
        "environment.atari.frameSkip": "env_frameskip frame_skip",
        "actors.replicas": "workers num_workers num_env_runners num_actors",
        "actors.envsPerActor": "n_envs num_envs num_envs_per_worker num_envs_per_env_runner actors.environments actors.envs",
        "learner.accelerator.count": "gpu gpus device num_gpus num_gpus_per_learner",
        "replay.capacity": "buffer_size replay_buffer_size",
        "replay.rateLimiter.minSize": "learning_starts",
        "replay.rateLimiter.samplesPerInsert": "train_freq gradient_steps training_intensity",
        "evaluator.episodes": "n_eval_episodes evaluation_duration",
        "evaluator.intervalSeconds": "eval_freq evaluation_interval",
        "successPolicy.rawFrames": "total_timesteps timesteps train_for_env_steps max_steps num_frames max_frames "
        "total_frames",
        "successPolicy": "stop stop_criteria termination",
        "successPolicy.targetReturn.value": "reward_threshold stop_reward",
        "activeDeadlineSeconds": "timeout timeout_seconds max_seconds",
        "seed": "seed random_seed",
        "algorithm": "model policy trainer training",
        "algorithm.type": "algo algorithm.name",
        "algorithm.learningRate": "lr policy_lr",
        "algorithm.gradientClipNorm": "max_grad_norm grad_clip",
        "algorithm.hiddenUnits": "net_arch fcnet_hiddens",
        "algorithm.unrollLength": "n_steps num_steps rollout rollout_length rollout_fragment_length",
        "algorithm.epochs": "n_epochs num_epochs update_epochs num_sgd_iter",
        "algorithm.minibatches": "num_minibatches num_batches_per_epoch",
        "algorithm.entropyCost": "ent_coef entropy_coeff exploration_loss_coeff",
        "algorithm.valueCost": "vf_coef vf_loss_coeff value_loss_coeff",
        "algorithm.normalizeObservations": "normalize_input norm_obs",
        "algorithm.normalizeReturns": "norm_reward",
        "algorithm.recurrent": "use_lstm use_rnn",
        "algorithm.targetUpdateTau": "tau",
        "algorithm.ppo.clipRange": "clip_coef clip_param ppo_clip_ratio",
        "algorithm.ppo.normalizeAdvantages": "norm_adv",
        "algorithm.sac.criticLearningRate": "q_lr",
        "algorithm.sac.initialTemperature": "alpha",
    }.items()
    for name in names.split()
}
"""A name elsewhere, or a section and a name -> the path below `spec`."""

MOVED: Final[Mapping[str, str]] = {
    "*.volumes": "*.podTemplate.spec.volumes",
    "*.volumeMounts": "*.podTemplate.spec.containers: [{name: worker, volumeMounts: [...]}]",
    "*.serviceAccountName": "*.podTemplate.spec.serviceAccountName",
    "*.affinity": "*.podTemplate.spec.affinity",
    "*.priorityClassName": "*.podTemplate.spec.priorityClassName",
    "*.runtimeClassName": "*.podTemplate.spec.runtimeClassName",
    "*.topologySpread": "*.podTemplate.spec.topologySpreadConstraints",
    "algorithm.*.seed": "seed",
    **{f"algorithm.*.{name}": f"algorithm.{name}" for name in SHARED},
    "replay.sampling": "nothing: the learner mirrors the store",
    "autoscaling.trimTimeConstantSeconds": "nothing: it is always 300",
    "autoscaling.tolerancePercent": "nothing: it is always 5",
    "autoscaling.behavior": "nothing: a decision adds as many again or 4, or takes away a fifth, 180 s after more was wanted",
    "autoscaling.missingMetrics": "nothing: figures older than 45 s count as missing, and the number is held",
    "autoscaling.samplePeriodSeconds": "nothing: it is always 15",
    "autoscaling.rateWindowSeconds": "nothing: it is always 60",
    "autoscaling.guards.minMarginalGainPercent": "nothing: it is always 10",
    "environment.maxFailuresPer10000Steps": "nothing: it is always 10",
    "actors.onEviction": "nothing: an actor that was taken away is replaced",
    "actors.drainSeconds": "nothing: it is always 25; a podTemplate may give a pod another terminationGracePeriodSeconds",
    "actors.startupWave": "nothing: it is always 32",
    "inference.maxWaitMilliseconds": "nothing: it is always 2",
    "inference.timeoutSeconds": "nothing: it is always 30",
    "checkpoint.onSuspend": "nothing: a suspension asks for a checkpoint, and again a minute after one that failed",
    "checkpoint.suspendTimeoutSeconds": "nothing: it is always 600",
    "failurePolicy.resetAfterSeconds": "nothing: it is always 3600",
    "failurePolicy.maxActorCrashLoopPercent": "nothing: it is always 50",
    "podCleanup": "nothing: all pods go after success; after a failure pods that ended by themselves stay for their logs",
    "monitoring.podMonitor": "nothing: the label rljob.dev/scrape: 'false' in podTemplate keeps a role's pods from being scraped",
}
"""A path below ``spec``, or a pattern of paths (``*`` is a role's section) -> the path to write instead, or "nothing" and the
reason."""


def moved_to(path: str) -> str:
    """What to write instead of the field at ``path`` below ``spec``, or why nothing; empty where there was never such a field."""
    instead = next((instead for pattern, instead in MOVED.items() if fnmatchcase(path, pattern)), "")
    reason = instead.removeprefix("nothing: ")
    return (
        reason
        if reason != instead
        else instead and f"write spec.{instead.replace('*', path.partition('.')[0])} instead"
    )
