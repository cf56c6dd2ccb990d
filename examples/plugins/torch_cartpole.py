"""CartPole in plain torch: thousands of games in a step, on the device that ``device`` names.

    rljob run cartpole-torch
    rljob run cartpole-torch --set spec.environment.kwargs.device=cuda --set spec.actors.envsPerActor=1024

The cart and pole of Barto, Sutton and Anderson 1983 with the constants of Gymnasium's CartPole-v1, which judges what was learned:
without ``num_envs`` the factory gives that one. Nothing here asks the device for a number, so that the host runs ahead of it.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

GRAVITY = 9.8  # m/s^2
PUSH = 10.0  # N
POLE_KG, TOTAL_KG = 0.1, 1.1
HALF_POLE_M = 0.5
STEP_SECONDS = 0.02
FARTHEST_M, STEEPEST = 2.4, math.radians(12)
MOST_STEPS = 500


class TorchCartPole(VectorEnv[Tensor, Tensor, Tensor]):
    """``num_envs`` games. Observations float32 [N, 4]: place, speed, angle, its rate."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs = num_envs
        bound = np.array([2 * FARTHEST_M, np.inf, 2 * STEEPEST, np.inf], np.float32)
        self.single_observation_space = gymnasium.spaces.Box(-bound, bound)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._random = torch.Generator(device)
        self._state = torch.zeros(num_envs, 4, device=device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Tensor, dict[str, Any]]:
        if seed is not None:
            self._random.manual_seed(seed)
        self._state, self._steps = self._beginnings(), torch.zeros_like(self._steps)
        return self._state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """``actions`` int64 [N]: 0 pushes to the left. ``final_obs`` are the states before any game was begun anew."""
        reached = moved(self._state, actions)
        steps = self._steps + 1
        terminated = (reached[:, 0].abs() > FARTHEST_M) | (reached[:, 2].abs() > STEEPEST)
        truncated = (steps >= MOST_STEPS) & ~terminated
        ended = terminated | truncated
        self._state = torch.where(ended.unsqueeze(1), self._beginnings(), reached)
        self._steps = torch.where(ended, 0, steps)
        return self._state, torch.ones_like(reached[:, 0]), terminated, truncated, {"final_obs": reached}

    def _beginnings(self) -> Tensor:
        """States as games begin, uniform in [-0.05, 0.05]."""
        return 0.1 * torch.rand(self._state.shape, generator=self._random, device=self._state.device) - 0.05


def moved(state: Tensor, actions: Tensor) -> Tensor:
    """The states [N, 4] after a push for one step, by Euler's method."""
    _, speed, angle, rate = state.unbind(1)
    sine, cosine = angle.sin(), angle.cos()
    moment = POLE_KG * HALF_POLE_M
    # What the cart's acceleration would be if the pole kept its rate.
    pushed = ((2.0 * actions - 1.0) * PUSH + moment * rate.square() * sine) / TOTAL_KG
    inertia = HALF_POLE_M * (4.0 / 3.0 - POLE_KG * cosine.square() / TOTAL_KG)
    turning = (GRAVITY * sine - pushed * cosine) / inertia
    acceleration = pushed - moment * turning * cosine / TOTAL_KG
    return state + STEP_SECONDS * torch.stack([speed, acceleration, rate, turning], dim=1)


def make(num_envs: int | None = None, device: str = "cpu", render_mode: str | None = None) -> Any:
    """Many games on ``device``, or, without ``num_envs``, Gymnasium's one for scoring and video."""
    if num_envs is None:
        return gymnasium.make("CartPole-v1", render_mode=render_mode)
    return TorchCartPole(num_envs, device)
