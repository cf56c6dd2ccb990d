"""Stable-Baselines3 DQN on Pong with its published Atari settings: updates and steps per second in a time window.

Runs in a virtual environment of its own (``pip install stable-baselines3 ale-py opencv-python-headless``); `end_to_end.py`
and `ladder/bench.py`, which asks for other frames, another network and an update a step, start it beside rljob. Prints one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version

import ale_py
import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecFrameStack
from torch import nn


class Compact(BaseFeaturesExtractor):
    """rljob's network for 42x42, but for its last layer."""

    def __init__(self, observation_space: gymnasium.spaces.Box) -> None:
        super().__init__(observation_space, features_dim=128)
        layers: list[nn.Module] = []
        channels, side = observation_space.shape[0], observation_space.shape[1]
        for out_channels, kernel, stride in ((16, 6, 4), (32, 3, 2)):
            layers += [nn.Conv2d(channels, out_channels, kernel, stride), nn.GroupNorm(1, out_channels), nn.ReLU()]
            channels, side = out_channels, (side - kernel) // stride + 1
        dense = (nn.Linear(channels * side * side, 128), nn.LayerNorm(128), nn.ReLU())
        self.layers = nn.Sequential(*layers, nn.Flatten(), *dense)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layers(observation)
        return features


NETWORKS = {
    "Nature": None,
    "Compact": {"features_extractor_class": Compact, "net_arch": []},
}


class Window(BaseCallback):
    """Counts updates and steps between ``warm_up_seconds`` after the first update and ``seconds`` later, then stops."""

    def __init__(self, warm_up_seconds: float, seconds: float) -> None:
        super().__init__()
        self._warm_up, self._seconds = warm_up_seconds, seconds
        self._first: float | None = None
        self._start: tuple[float, int, int, float] | None = None
        self.result: dict[str, float] = {}

    def _on_step(self) -> bool:
        now, updates, steps = time.perf_counter(), self.model._n_updates, self.num_timesteps
        if updates == 0:
            return True
        self._first = self._first or now
        if self._start is None:
            if now - self._first >= self._warm_up:
                self._start = (now, updates, steps, time.process_time())
            return True
        elapsed = now - self._start[0]
        if elapsed < self._seconds:
            return True
        self.result = {
            "updates_per_second": (updates - self._start[1]) / elapsed,
            "steps_per_second": (steps - self._start[2]) / elapsed,
            "cores": (time.process_time() - self._start[3]) / elapsed,
        }
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm-up-seconds", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frame-size", type=int, default=84)
    parser.add_argument("--network", choices=NETWORKS, default="Nature")
    parser.add_argument("--train-freq", type=int, default=4)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    arguments = parser.parse_args()
    gymnasium.register_envs(ale_py)
    torch.set_num_threads(arguments.threads)
    seen = {"screen_size": arguments.frame_size}
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=1, seed=arguments.seed, wrapper_kwargs=seen), 4)
    window = Window(arguments.warm_up_seconds, arguments.seconds)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=1e-4,
        buffer_size=100_000,
        learning_starts=arguments.learning_starts,
        batch_size=32,
        train_freq=arguments.train_freq,
        gradient_steps=1,
        target_update_interval=1_000,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        policy_kwargs=NETWORKS[arguments.network],
        device="cpu",
        seed=arguments.seed,
    )
    model.learn(10_000_000, callback=window)
    versions = {name: version(name) for name in ("stable-baselines3", "torch", "ale-py", "gymnasium")}
    print(json.dumps({"system": "stable-baselines3 DQN", **window.result, "versions": versions}))


if __name__ == "__main__":
    main()
