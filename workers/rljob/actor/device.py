"""What an actor acts with, and the simulator that it steps, where observations and actions stay on a device.

Arrays of any framework come in as torch's, without a copy. ``Algorithm.decide`` is written for the host, with numpy. Built-in
algorithms have a counterpart here with the same distribution and draws of its own; an algorithm that decides in a way of its own
is asked on the host, which waits for the device at every step.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rljob.actor.policy import LocalPolicy
from rljob.algorithms.acting_rules import ActionValueAlgorithm
from rljob.algorithms.actor_critic import ActorCritic
from rljob.algorithms.base import AnyAlgorithm, Inference
from rljob.api import EnvironmentParameters
from rljob.choices import Choices
from rljob.envs import EnvironmentProblem, EnvironmentSpec
from rljob.envs.gymnasium_vector import DeviceVector
from rljob.envs.received import close
from rljob.experience import Decision
from rljob.loading import PLUGIN_FAILURES, short, shown, told


class DeviceDecision(NamedTuple):
    """``Decision`` on a device: ``action`` int64 [N], ``taken`` and ``value`` float32 [N]."""

    action: Tensor
    taken: Tensor
    value: Tensor

    @classmethod
    def of(cls, decision: Decision, device: torch.device) -> Self:
        """What was decided on the host, copied to ``device``."""
        return cls(*(torch.as_tensor(each).to(device) for each in (decision.action, decision.taken, decision.value)))


# How to act: ``outputs`` float32 [N, K] and ``epsilon`` float32 [N] are on the device, and so is what is given: a decision for
# each environment, or the values of states float32 [N].


class EpsilonGreedy(NamedTuple):
    """As ``ActionValueAlgorithm`` decides: the best action, and with the chance ``epsilon`` any."""

    generator: torch.Generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        count, actions = outputs.shape
        value, greedy = outputs.max(dim=1)
        explores = torch.rand(count, generator=self.generator, device=outputs.device) < epsilon
        anything = torch.randint(actions, (count,), generator=self.generator, device=outputs.device)
        action = torch.where(explores, anything, greedy)
        return DeviceDecision(action, outputs.gather(1, action.unsqueeze(1)).squeeze(1), value)

    def state_values(self, outputs: Tensor) -> Tensor:
        return outputs.max(dim=1).values


class SampledPolicy(NamedTuple):
    """As ``ActorCritic`` decides: a sample of the policy, by the largest log-probability with Gumbel noise."""

    generator: torch.Generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        log_policy = outputs[:, :-1].log_softmax(dim=1)
        uniform = torch.rand(log_policy.shape, generator=self.generator, device=outputs.device)
        noise = -torch.log(-torch.log(uniform.clamp_min(torch.finfo(torch.float32).tiny)))
        action = (log_policy + noise).argmax(dim=1)
        return DeviceDecision(action, log_policy.gather(1, action.unsqueeze(1)).squeeze(1), outputs[:, -1])

    def state_values(self, outputs: Tensor) -> Tensor:
        return outputs[:, -1]


class OnHost(NamedTuple):
    """As ``algorithm`` decides, whatever that is: outputs go to the host and actions come back."""

    algorithm: AnyAlgorithm
    choices: Choices
    generator: np.random.Generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        decision = self.algorithm.decide(outputs.cpu().numpy(), epsilon.cpu().numpy(), self.generator, self.choices)
        return DeviceDecision.of(decision, outputs.device)

    def state_values(self, outputs: Tensor) -> Tensor:
        return torch.as_tensor(self.algorithm.state_values(outputs.cpu().numpy(), self.choices)).to(outputs.device)


def rule_of(
    algorithm: AnyAlgorithm, choices: Choices, device: torch.device, seed: int
) -> EpsilonGreedy | SampledPolicy | OnHost:
    """How ``algorithm`` acts on ``device``, with draws that follow from ``seed``."""
    own = type(algorithm)
    generator = torch.Generator(device).manual_seed(seed)
    # Only where no subclass overrides these methods: it may decide otherwise on the same outputs.
    if (own.decide, own.state_values) == (ActionValueAlgorithm.decide, ActionValueAlgorithm.state_values):
        return EpsilonGreedy(generator)
    if (own.decide, own.state_values) == (ActorCritic.decide, ActorCritic.state_values):
        return SampledPolicy(generator)
    log.warning("%s decides on the host: the device is waited for at every step", own.__name__)
    return OnHost(algorithm, choices, np.random.default_rng(seed))


log = logging.getLogger(__name__)


class DevicePolicy(LocalPolicy):
    """``ActingPolicy`` on a device: the same rule on the same weights, from tensors to tensors.

    ``memory`` float32 [N, 2, H] is what a recurrent network remembers, before the next ``act``; ``ended`` clears rows of it.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        spec: EnvironmentSpec,
        parameters: Any,
        environment_parameters: EnvironmentParameters,
        num_envs: int,
        device: torch.device,
        seed: int,
        precision: str | None = None,
    ) -> None:
        super().__init__(algorithm, spec, parameters, environment_parameters, num_envs, device, precision)
        self._choices = spec.all_choices
        self._generator = np.random.default_rng(seed)
        self._rule = rule_of(algorithm, self._choices, device, seed)
        self._epsilon = torch.from_numpy(self.epsilon).to(device)
        self.remembers = self.units > 0
        self.memory = torch.zeros(num_envs, 2, self.units, device=device)

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as ``LocalPolicy`` does."""
        super().take_slot(slot, slots)
        self._epsilon = torch.from_numpy(self.epsilon).to(self._device)

    def act(self, observation: Tensor) -> DeviceDecision:
        """Actions for ``observation`` [N, S, *F*] on the device, which is only read; nothing is waited for."""
        if self.version == 0:
            decision = self._algorithm.random_decision(self._num_envs, self._choices, self._generator)
            return DeviceDecision.of(decision, self._device)
        with torch.inference_mode():
            outputs, after = self._infer(observation, self.memory)
            if self.remembers:
                self.memory = after
            return self._rule.decide(outputs, self._epsilon)

    def ended(self, rows: Tensor) -> None:
        """Forget what was seen in the environments (bool [N]) whose episode has ended."""
        if self.remembers:
            self.memory = torch.where(rows[:, None, None], 0.0, self.memory)

    def values(self, observation: Tensor, memory: Tensor) -> Tensor:
        """The values float32 [M] of ``observation`` [M, S, *F*], seen with ``memory`` [M, 2, H]; NaN without weights."""
        if self.version == 0:
            return torch.full((len(observation),), torch.nan, device=self._device)
        with torch.inference_mode():
            return self._rule.state_values(self._infer(observation, memory).outputs)

    def _infer(self, observation: Tensor, memory: Tensor) -> Inference:
        """Computed where that was measured to be faster, and given on the simulator's device."""
        there = self.acting.measured.place.device
        inference = self.acting.infer(observation.to(there), memory.to(there))
        return Inference(*(part.to(self._device) for part in inference))


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
            self._checked("step: reward", reward, self._shape[:1]),
            self._checked("step: terminated", terminated, self._shape[:1]),
            self._checked("step: truncated", truncated, self._shape[:1]),
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
