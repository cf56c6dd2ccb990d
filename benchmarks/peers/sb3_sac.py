"""Stable-Baselines3's SAC, or SBX's, with RL Baselines3 Zoo's settings for the environment: the return after so many steps.

Runs in a virtual environment of its own; `sac_peers.py` starts it beside rljob. One environment, an update a step. Prints one
JSON line with the mean of the last policy's games, which acts without noise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from importlib.metadata import version
from typing import Any

import gymnasium
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

SETTINGS: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {"learning_starts": 10_000},
    "LunarLanderContinuous-v3": {
        "learning_starts": 10_000,
        # The zoo's rate falls to zero over its 500,000 steps, of which a shorter run makes the first.
        "learning_rate": lambda left, steps: 7.3e-4 * (1 - (1 - left) * steps / 500_000),
        "tau": 0.01,
        "policy_kwargs": {"net_arch": [400, 300]},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", choices=("stable_baselines3", "sbx"), default="stable_baselines3")
    parser.add_argument("--environment", choices=sorted(SETTINGS), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--games", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(SETTINGS[arguments.environment])
    if "learning_rate" in settings:
        falling = settings["learning_rate"]
        settings["learning_rate"] = lambda left: falling(left, arguments.steps)
    started = time.monotonic()
    sac = importlib.import_module(arguments.module).SAC
    model = sac("MlpPolicy", gymnasium.make(arguments.environment), seed=arguments.seed, device="cpu", **settings)
    model.learn(arguments.steps)
    seconds = time.monotonic() - started
    returns, _ = evaluate_policy(
        model, Monitor(gymnasium.make(arguments.environment)), arguments.games, return_episode_rewards=True
    )
    packages = {"stable_baselines3": "stable-baselines3", "sbx": "sbx-rl"}
    found = {
        "peer": packages[arguments.module],
        "return_mean": sum(returns) / len(returns),
        "seconds": seconds,
        "updates": model._n_updates,
        "versions": {name: version(name) for name in (packages[arguments.module], "torch", "gymnasium", "mujoco")},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
