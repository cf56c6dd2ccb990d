"""RLlib's IMPALA on Pong with the Nature network: agent steps per second in a time window.

Runs in a virtual environment of its own (`rllib.txt` says which); `impala_peers.py` starts it beside rljob. Batches of 32 x 20
steps with V-trace, RLlib's own Atari wrappers and default network, told to be the Nature one. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from importlib.metadata import version
from typing import Any

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ale_py
import gymnasium
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env
from window import Window

UNROLL, BATCH_UNROLLS = 20, 32


def make_pong(_config: Any) -> gymnasium.Env:
    gymnasium.register_envs(ale_py)
    return wrap_atari_for_new_api_stack(gymnasium.make("PongNoFrameskip-v4"), dim=84, frameskip=4, framestack=4)


def configuration(arguments: argparse.Namespace) -> IMPALAConfig:
    register_env("pong", make_pong)
    nature = DefaultModelConfig(
        conv_filters=[[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]],
        conv_activation="relu",
        head_fcnet_hiddens=[512],
        head_fcnet_activation="relu",
        vf_share_layers=True,
    )
    return (
        IMPALAConfig()
        .environment("pong")
        .framework("torch")
        .env_runners(
            num_env_runners=arguments.runners,
            num_envs_per_env_runner=arguments.envs_per_runner,
            rollout_fragment_length=UNROLL,
            num_cpus_per_env_runner=0.5,
        )
        .learners(num_learners=arguments.learners, num_cpus_per_learner=1)
        .training(train_batch_size_per_learner=UNROLL * BATCH_UNROLLS, lr=6e-4, vtrace=True, grad_clip=40.0)
        .rl_module(model_config=nature)
        .reporting(min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=100)
        .debugging(seed=arguments.seed, log_level="ERROR")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up-seconds", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--runners", type=int, default=2, help="processes that play")
    parser.add_argument("--envs-per-runner", type=int, default=4)
    parser.add_argument("--learners", type=int, choices=(0, 1), default=0, help="0: learns in the driver's process")
    parser.add_argument(
        "--patience-seconds", type=float, default=600, help="give up when the window is not over by then"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    # Ray counts half a core each as a slot; the processes share the machine's cores freely.
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    algorithm = configuration(arguments).build_algo()
    window, started, done = Window(arguments.warm_up_seconds, arguments.seconds), time.monotonic(), False
    while not done and time.monotonic() - started < arguments.patience_seconds:
        result = algorithm.train()
        sampled = result["env_runners"].get("num_env_steps_sampled_lifetime", 0)
        trained = result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0)
        done = window.note(int(sampled), int(trained or 0))
    algorithm.stop()
    ray.shutdown()
    if not done:
        print(f"RLlib did not finish its window within {arguments.patience_seconds:g} s", file=sys.stderr)
        return 1
    settings = {name: getattr(arguments, name) for name in ("runners", "envs_per_runner", "learners")}
    versions = {name: version(name) for name in ("ray", "torch", "ale-py", "gymnasium", "numpy")}
    print(json.dumps({"system": "RLlib IMPALA", **window.result, "settings": settings, "versions": versions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
