"""Sample Factory's PPO on HalfCheetah or CartPole with the settings of its MuJoCo example: agent steps a second in a time window.

Runs in a virtual environment of its own; `ppo_peers.py` starts it beside rljob. Batches, epochs and unrolls are as they are
given, all else as its example has it: `--asynchronous` lets its workers play while it learns, which is what rljob does with
`maxPolicyLag: 1`. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory_run import measured
from sf_examples.mujoco.mujoco_params import mujoco_override_defaults
from window import Window


def make(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    return gymnasium.make(name, render_mode=render_mode)


def configuration(arguments: argparse.Namespace, folder: str) -> Any:
    steps = arguments.unroll * arguments.unrolls
    options = {
        "algo": "APPO",
        "env": arguments.environment,
        "experiment": "throughput",
        "train_dir": folder,
        "device": "cpu",
        "num_workers": 2,
        "num_envs_per_worker": arguments.envs // 2,
        "worker_num_splits": 2,
        "async_rl": arguments.asynchronous,
        "num_epochs": arguments.epochs,
        "num_batches_per_epoch": arguments.minibatches,
        "batch_size": steps // arguments.minibatches,
        "rollout": arguments.unroll,
        "decorrelate_experience_max_seconds": 0,
        "with_wandb": False,
        "train_for_env_steps": 10**9,
    }
    command = [f"--{name}={value}" for name, value in options.items()]
    parser, known = parse_sf_args(argv=command)
    mujoco_override_defaults(known.env, parser)
    return parse_full_cfg(parser, command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--warm-up-seconds", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--unroll", type=int, required=True)
    parser.add_argument("--unrolls", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--minibatches", type=int, required=True)
    parser.add_argument("--asynchronous", action="store_true")
    arguments = parser.parse_args()
    register_env(arguments.environment, make)
    window = Window(arguments.warm_up_seconds, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        if not measured(configuration(arguments, folder), window):
            return 1
    versions = {name: version(name) for name in ("sample-factory", "torch", "gymnasium", "mujoco")}
    print(json.dumps({"peer": "Sample Factory PPO", **window.result, "versions": versions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
