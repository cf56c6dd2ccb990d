"""From a network's outputs to actions where both stay on the device: the rules of ``Algorithm.decide`` in torch.

``decide`` is written for the host, with numpy. What is built in has a counterpart here with the same distribution and draws of
its own; an algorithm that decides in a way of its own is asked on the host, which waits for the device at every step.
"""

import logging
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from rljob.algorithms.acting_rules import ActionValueAlgorithm
from rljob.algorithms.actor_critic import ActorCritic
from rljob.algorithms.base import AnyAlgorithm
from rljob.choices import Choices
from rljob.experience import Decision

log = logging.getLogger(__name__)


class DeviceDecision(NamedTuple):
    """``Decision`` on a device: ``action`` int64 [N], ``taken`` and ``value`` float32 [N]."""

    action: Tensor
    taken: Tensor
    value: Tensor

    @classmethod
    def of(cls, decision: Decision, device: torch.device) -> Self:
        """What was decided on the host, copied to ``device``."""
        return cls(*(torch.as_tensor(each).to(device) for each in (decision.action, decision.taken, decision.value)))


class DeviceRule(Protocol):
    """``outputs`` float32 [N, K] and ``epsilon`` float32 [N] are on the device, and so is what is given back."""

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision: ...
    def state_values(self, outputs: Tensor) -> Tensor:
        """float32 [N]: the values of states."""
        ...


class EpsilonGreedy:
    """As ``ActionValueAlgorithm`` decides: the best action, and with the chance ``epsilon`` any."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        count, actions = outputs.shape
        value, greedy = outputs.max(dim=1)
        explores = torch.rand(count, generator=self._generator, device=outputs.device) < epsilon
        anything = torch.randint(actions, (count,), generator=self._generator, device=outputs.device)
        action = torch.where(explores, anything, greedy)
        return DeviceDecision(action, outputs.gather(1, action.unsqueeze(1)).squeeze(1), value)

    def state_values(self, outputs: Tensor) -> Tensor:
        return outputs.max(dim=1).values


class SampledPolicy:
    """As ``ActorCritic`` decides: a sample of the policy, by the largest log-probability with Gumbel noise."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        log_policy = outputs[:, :-1].log_softmax(dim=1)
        uniform = torch.rand(log_policy.shape, generator=self._generator, device=outputs.device)
        noise = -torch.log(-torch.log(uniform.clamp_min(torch.finfo(torch.float32).tiny)))
        action = (log_policy + noise).argmax(dim=1)
        return DeviceDecision(action, log_policy.gather(1, action.unsqueeze(1)).squeeze(1), outputs[:, -1])

    def state_values(self, outputs: Tensor) -> Tensor:
        return outputs[:, -1]


class OnHost:
    """As ``algorithm`` decides, whatever that is: outputs go to the host and actions come back."""

    def __init__(self, algorithm: AnyAlgorithm, choices: Choices, generator: np.random.Generator) -> None:
        self._algorithm, self._choices = algorithm, choices
        self._generator = generator

    def decide(self, outputs: Tensor, epsilon: Tensor) -> DeviceDecision:
        decision = self._algorithm.decide(outputs.cpu().numpy(), epsilon.cpu().numpy(), self._generator, self._choices)
        return DeviceDecision.of(decision, outputs.device)

    def state_values(self, outputs: Tensor) -> Tensor:
        return torch.as_tensor(self._algorithm.state_values(outputs.cpu().numpy(), self._choices)).to(outputs.device)


def rule_of(algorithm: AnyAlgorithm, choices: Choices, device: torch.device, seed: int) -> DeviceRule:
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
