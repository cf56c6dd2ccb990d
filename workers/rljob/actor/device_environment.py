"""A simulator on a device, as the actor's loop steps it: arrays of any framework come in as torch's, without a copy."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rljob.envs.base import EnvironmentProblem
from rljob.envs.gymnasium_vector import DeviceVector
from rljob.envs.received import close
from rljob.loading import PLUGIN_FAILURES, short, shown, told

_NO_DLPACK = (AttributeError, TypeError, ValueError, RuntimeError, BufferError)
"""What arrays and torch raise where an array can't be converted."""


class DeviceStep(NamedTuple):
    """One step of N environments, on the device; the simulator may write to these tensors in its next step.

    frames [N, *F*]: after the step, of the next episode where one ended; final_frames [N, *F*]: before any reset. reward [N] as
    the environment gives it, in any type of number; terminated and truncated [N], in any type that is zero for no.
    """

    frames: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_frames: Tensor


class DeviceEnvironment:
    """N copies on one device, that of the observations. Not thread-safe; owns the vector and closes it.

    Resets and steps once when it is made, to check its arrays: raises EnvironmentProblem
    where they are not, and whenever the simulator fails.
    """

    def __init__(self, vector: DeviceVector, seed: int) -> None:
        self.spec = vector.spec
        self.num_envs = int(vector.env.num_envs)
        self.reward_clipping = vector.reward_clipping
        self._env = vector.env
        (self._column,) = self.spec.columns
        self._shape = (self.num_envs, *self.spec.observation[0].shape)
        try:
            with self._labelled("reset"):
                first = _tensor(self._env.reset(seed=seed)[0])
            self.device = first.device
            self._map = torch.tensor(vector.actions, device=self.device) if vector.actions else None
            self._frames("reset: observation", first)
            self.step(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
        except EnvironmentProblem:
            self.close()
            raise
        self._seed: int | None = seed

    def reset(self) -> Tensor:
        """Begin N new episodes, with the seed the first time; their first frames [N, *F*]."""
        seed, self._seed = self._seed, None
        with self._labelled("reset"):
            observation = self._env.reset(seed=seed)[0]
        return self._frames("reset: observation", observation)

    def step(self, actions: Tensor) -> DeviceStep:
        """Act in every environment; ``actions`` int64 [N] on the device, which the simulator only reads."""
        taken = actions if self._map is None else self._map[actions]
        with self._labelled("step"):
            observation, reward, terminated, truncated, info = self._env.step(taken)
        if "final_obs" not in info:
            raise self._problem("step: info has no 'final_obs', the observations [N, ...] before any reset")
        return DeviceStep(
            self._frames("step: observation", observation),
            self._row("step: reward", reward),
            self._row("step: terminated", terminated),
            self._row("step: truncated", truncated),
            self._frames("step: info['final_obs']", info["final_obs"]),
        )

    def close(self) -> None:
        close(self._env, self.spec.id)

    @contextlib.contextmanager
    def _labelled(self, where: str) -> Iterator[None]:
        """Turns whatever the simulator raises into an EnvironmentProblem that names it, and computes without gradients."""
        try:
            with torch.no_grad():
                yield
        except EnvironmentProblem:
            raise
        except PLUGIN_FAILURES as error:
            raise self._problem(f"failed in {where}(): {told(error)}") from error

    def _frames(self, what: str, array: Any) -> Tensor:
        frames = self._checked(what, array, self._shape)
        if (frames.dtype == torch.uint8) != (self._column.dtype == "uint8"):
            raise self._problem(
                f"{what}: expected {self._column.dtype}, as the plain environment has, got {shown(array)}"
            )
        return frames.reshape(self.num_envs, *self._column.shape)

    def _row(self, what: str, array: Any) -> Tensor:
        return self._checked(what, array, self._shape[:1])

    def _checked(self, what: str, array: Any, shape: tuple[int, ...]) -> Tensor:
        try:
            tensor = _tensor(array)
        except _NO_DLPACK as error:
            raise self._problem(
                f"{what}: expected an array that speaks DLPack, got {shown(array)} ({told(error)})"
            ) from error
        if tuple(tensor.shape) != shape or tensor.device != self.device:
            where = f"{shown(tensor)} on {tensor.device}"
            raise self._problem(f"{what}: expected {list(shape)} on {self.device}, got {where}")
        return tensor

    def _problem(self, text: str) -> EnvironmentProblem:
        return EnvironmentProblem(f"environment {short(self.spec.id)!r}: {text}")


def _tensor(array: Any) -> Tensor:
    """The same memory as a tensor; of another framework by DLPack, which has that framework's work on the device done first."""
    return array.detach() if isinstance(array, Tensor) else from_dlpack(array)
