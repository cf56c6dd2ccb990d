"""Stable-Baselines3's PPO with the settings that it is given: agent steps a second in a time window.

Runs in a virtual environment of its own (``pip install stable-baselines3 'gymnasium[mujoco]'``); `ppo_peers.py` starts it beside
rljob. Observations and rewards are normalised by SB3's own wrapper where asked for. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from window import Window


class Measured(BaseCallback):
    """Stops the training once the window is over."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def _on_step(self) -> bool:
        return not self.window.note(self.num_timesteps, self.model._n_updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--warm-up-seconds", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--minibatches", type=int, required=True)
    parser.add_argument("--processes", action="store_true", help="environments in processes of their own")
    arguments = parser.parse_args()
    torch.set_num_threads(2 if not arguments.processes else 1)
    kind: Any = SubprocVecEnv if arguments.processes else DummyVecEnv
    env = VecNormalize(make_vec_env(arguments.environment, n_envs=arguments.envs, seed=1, vec_env_cls=kind))
    window = Window(arguments.warm_up_seconds, arguments.seconds)
    size = arguments.envs * arguments.steps // arguments.minibatches
    model = PPO("MlpPolicy", env, n_steps=arguments.steps, batch_size=size, n_epochs=arguments.epochs, device="cpu")
    model.learn(1_000_000_000, callback=Measured(window))
    versions = {name: version(name) for name in ("stable-baselines3", "torch", "gymnasium")}
    print(json.dumps({"peer": "stable-baselines3 PPO", **window.result, "versions": versions}))


if __name__ == "__main__":
    main()
