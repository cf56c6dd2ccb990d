"""Sample Factory's asynchronous PPO on Pong with the Nature network: agent steps per second in a time window.

Runs in a virtual environment of its own (`sample-factory.txt` says which); `impala_peers.py` starts it beside rljob. One pass
over batches of 32 x 20 steps, with the generalised advantages of its Atari example: V-trace fails in 2.1.1 at the first summary,
which wants advantages that it did not compute. `--environment Shipped` is Sample Factory's own Atari example with its wrappers in
Python; `Native` gives it ALE's vector environment, which rljob plays on too, through its batched sampler. Input and return
normalisation, which its example has and rljob's job has not, are off: they would cost it time. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py import registration, roms
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory_run import measured
from sf_examples.atari.atari_params import atari_override_defaults
from sf_examples.atari.atari_utils import make_atari_env
from window import Window

UNROLL, BATCH_UNROLLS = 20, 32


class NativePong(gymnasium.Env):
    """``num_agents`` games on ALE's vector environment in one thread, as Sample Factory's batched sampler wants an environment.

    It speaks to ALE's compiled part, because ALE's Python class needs a later gymnasium than Sample Factory runs with.
    """

    is_multiagent = True

    def __init__(self, num_agents: int, seed: int) -> None:
        self.num_agents = num_agents
        self._seed = seed
        self._ale = ale_py._ale_py.ALEVectorInterface(
            rom_path=roms.get_rom_path("pong"),
            num_envs=num_agents,
            frame_skip=4,
            stack_num=4,
            img_height=84,
            img_width=84,
            grayscale=True,
            maxpool=True,
            noop_max=30,
            use_fire_reset=False,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=True,
            max_episode_steps=108_000,
            repeat_action_probability=0.0,
            full_action_space=False,
            batch_size=0,
            num_threads=1,
            thread_affinity_offset=-1,
            autoreset_mode="SameStep",
        )
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._ale.get_action_set()))
        self._full_strength = np.ones(num_agents, np.float32)

    def reset(self, **_: Any) -> tuple[Any, list[dict[str, Any]]]:
        every = np.arange(self.num_agents)
        observation, _info = self._ale.reset(every, self._seed + every)
        return observation, [{}] * self.num_agents

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[dict[str, Any]]]:
        self._ale.send(actions, self._full_strength)
        observation, reward, terminated, truncated, _info = self._ale.recv()
        return observation, reward.astype(np.float32), terminated, truncated, [{}] * self.num_agents


def make_shipped(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """Sample Factory's own Atari environment, with the games known to its gymnasium (ALE leaves that out for old ones)."""
    if "PongNoFrameskip-v4" not in gymnasium.registry:
        registration.register_v0_v4_envs()
    return make_atari_env(name, cfg, env_config, render_mode)


def make_native(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    # Each of a worker's halves is one such vector, which then has half of the worker's games.
    return NativePong(cfg.env_agents, 0 if env_config is None else 1000 * env_config.env_id)


def configuration(arguments: argparse.Namespace, folder: str) -> Any:
    native = arguments.environment == "Native"
    options = {
        "algo": "APPO",
        "env": "atari_pong",
        "experiment": "throughput",
        "train_dir": folder,
        "device": "cpu",
        "seed": arguments.seed,
        "num_workers": arguments.workers,
        "num_envs_per_worker": arguments.splits if native else arguments.envs_per_worker,
        "worker_num_splits": arguments.splits,
        "async_rl": True,
        "batched_sampling": native,
        "num_epochs": 1,
        "num_batches_per_epoch": 1,
        "batch_size": UNROLL * BATCH_UNROLLS,
        "rollout": UNROLL,
        "recurrence": 1,
        "with_vtrace": False,
        "normalize_input": False,
        "normalize_returns": False,
        "summaries_use_frameskip": False,  # counts agent steps
        "decorrelate_experience_max_seconds": 0,
        "with_wandb": False,
        "train_for_env_steps": 10**9,
    }
    command = [f"--{name}={value}" for name, value in options.items()]
    parser, known = parse_sf_args(argv=command)
    atari_override_defaults(known.env, parser)
    parser.add_argument("--env_agents", type=int, default=max(1, arguments.envs_per_worker // arguments.splits))
    return parse_full_cfg(parser, command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up-seconds", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--environment", choices=("Shipped", "Native"), default="Shipped")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs-per-worker", type=int, default=8)
    parser.add_argument(
        "--splits", type=int, choices=(1, 2), default=2, help="halves of a worker's games that take turns"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    register_env("atari_pong", make_native if arguments.environment == "Native" else make_shipped)
    window = Window(arguments.warm_up_seconds, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        if not measured(configuration(arguments, folder), window):
            return 1
    settings = {name: getattr(arguments, name) for name in ("environment", "workers", "envs_per_worker", "splits")}
    versions = {name: version(name) for name in ("sample-factory", "torch", "ale-py", "gymnasium", "numpy")}
    print(json.dumps({"system": "Sample Factory APPO", **window.result, "settings": settings, "versions": versions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
