"""What an actor acts with when the network is elsewhere: it asks, and chooses from what comes back."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.actor.draws import GroupedDraws
from rljob.actor.policy import Decision, ladder
from rljob.algorithms import Algorithm
from rljob.api import ApeXDQNParameters
from rljob.envs.spec import EnvironmentSpec
from rljob.inference.client import Answer, InferenceClient

log = logging.getLogger(__name__)

Array = NDArray[Any]


class RemotePolicy:
    """Chooses actions from the outputs of an inference server, for N environments in ``groups`` groups. Single-threaded.

    ``submit`` and ``collect`` are for one group and do not wait; ``submit_final`` and ``collect_final`` ask for the values of
    final observations. Exploration stays here: epsilons, and the same draws as an actor with a network of its own makes.
    ``version`` and ``epoch`` are those of the latest answer; version 0 is the uniformly random policy.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        spec: EnvironmentSpec,
        parameters: ApeXDQNParameters,
        num_envs: int,
        groups: int,
        generator: np.random.Generator,
        client: InferenceClient,
    ) -> None:
        self._algorithm = algorithm
        self._parameters = parameters
        self._num_actions = spec.num_actions
        self._num_envs = num_envs
        self._size = num_envs // groups
        self._draws = GroupedDraws(generator, groups)
        self._final_lane = groups
        self._unknown = np.full(num_envs, np.nan, np.float32)
        self.client = client
        self.epsilon = np.ones(num_envs, np.float32)
        self.version = 0
        self.epoch = 0

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as the ``slot``-th of ``slots`` actors (see ``ladder``)."""
        self.epsilon = ladder(self._algorithm, self._parameters, slot, slots, self._num_envs)
        log.info("slot %d of %d, epsilon %.3g to %.3g", slot, slots, self.epsilon.max(), self.epsilon.min())

    def submit(self, group: int, observation: Array) -> None:
        """Ask what to do in the environments of ``group``, which show ``observation`` ``[N / groups, S, *F*]``."""
        self.client.submit(group, observation)

    def collect(self, group: int) -> Decision | None:
        """Actions for the observations submitted for ``group``; None while there is no answer."""
        answer = self.client.take(group)
        if answer is None:
            return None
        self._note(answer)
        self._draws.turn_of(group)
        if answer.outputs is None:
            action = self._draws.integers(0, self._num_actions, self._size)
            unknown = self._unknown[: self._size]
            return Decision(action, unknown, unknown, np.zeros(self._size, np.int64))
        rows = slice(group * self._size, (group + 1) * self._size)
        version = np.full(self._size, answer.version, np.int64)
        action, q_taken, value = self._algorithm.choose(answer.outputs, self.epsilon[rows], self._draws)
        return Decision(action, q_taken, value, version)

    def submit_final(self, observation: Array) -> None:
        """Ask for the values of final observations ``[N, S, *F*]``."""
        self.client.submit(self._final_lane, observation)

    def collect_final(self, truncated: Array) -> Array | None:
        """max_a Q f4[N] of the final observations submitted, NaN except where ``truncated``; None while there is no
        answer."""
        answer = self.client.take(self._final_lane)
        if answer is None:
            return None
        self._note(answer)
        values = self._unknown.copy()
        if answer.outputs is not None:
            values[truncated] = answer.outputs[truncated].max(axis=1)
        return values

    def _note(self, answer: Answer) -> None:
        if answer.version and not self.version:
            log.info("acting with weights, version %d", answer.version)
        self.version, self.epoch = answer.version, answer.epoch
