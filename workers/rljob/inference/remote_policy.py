"""What an actor acts with when the network is elsewhere: it asks, and decides on what comes back."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from rljob.algorithms.base import AnyAlgorithm
from rljob.choices import GroupedDraws
from rljob.envs.base import Observation
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import Decision
from rljob.inference.client import Answer, InferenceClient
from rljob.observation import Array

log = logging.getLogger(__name__)


class RemotePolicy:
    """Decides on the outputs of an inference server, for N environments in ``groups`` groups. Single-threaded.

    ``submit`` and ``collect`` are for one group and do not wait; ``submit_final`` and ``collect_final`` ask for the values of
    final observations. Exploration stays here: the same rule with the same draws as an actor with a network of its own.
    So does a recurrent network's memory, which travels with every request: no server has to be asked twice, and none that
    is killed takes a memory with it. ``version`` and ``epoch`` are those of the latest answer; 0 is the random policy.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        spec: EnvironmentSpec,
        parameters: Any,
        num_envs: int,
        groups: int,
        generator: np.random.Generator,
        client: InferenceClient,
    ) -> None:
        self._algorithm = algorithm
        self._parameters = parameters
        self._spec = spec
        self._choices = [spec.all_choices] * groups
        self._num_envs = num_envs
        self._size = num_envs // groups
        self._draws = GroupedDraws(generator, groups)
        self._final_lane = groups
        # What the network remembers of the running episodes, and of those too that the last step ended.
        self._memory = np.zeros((num_envs, 2, algorithm.memory_units(parameters)), np.float32)
        self._memory_at_end = self._memory.copy()
        self.client = client
        self.epsilon = np.ones(num_envs, np.float32)
        self.version = 0
        self.epoch = 0
        self.least_version = 0
        """Answers of older weights are passed over, and asked for again."""
        self._shown: list[Observation] = [None] * groups

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as the ``slot``-th of ``slots`` actors, in the way of the algorithm."""
        self.epsilon = self._algorithm.exploration(self._parameters, slot, slots, self._num_envs)
        log.info("slot %d of %d, epsilon %.3g to %.3g", slot, slots, self.epsilon.max(), self.epsilon.min())

    def submit(self, group: int, observation: Observation) -> None:
        """Ask what to do in the environments of ``group``, which show ``observation`` ``[N / groups, S, *F*]``."""
        self._choices[group], self._shown[group] = self._spec.choices(observation), observation
        self.client.submit(group, observation, self._memory[self._rows(group)])

    def collect(self, group: int) -> Decision | None:
        """Actions for the observations submitted for ``group``; None while there is no answer."""
        answer = self.client.take(group)
        if answer is None:
            return None
        if answer.version < self.least_version:
            self.client.submit(group, self._shown[group], self._memory[self._rows(group)])
            return None
        self._note(answer)
        self._draws.turn_of(group)
        rows = self._rows(group)
        before = self._memory[rows].copy() if self._memory.size else None
        if answer.outputs is None or answer.state is None:
            decision = self._algorithm.random_decision(self._size, self._choices[group], self._draws)
        else:
            decision = self._algorithm.decide(answer.outputs, self.epsilon[rows], self._draws, self._choices[group])
            self._memory[rows] = answer.state
        self._memory_at_end[rows] = self._memory[rows]
        return replace(decision, version=np.full(self._size, answer.version, np.int64), state=before)

    def ended(self, group: int, ends: Array) -> None:
        """Forget what was seen in the environments of ``group`` (bool[N / groups]) whose episode has ended."""
        self._memory[self._rows(group)][ends] = 0.0

    def submit_final(self, observation: Observation) -> None:
        """Ask for the values of final observations ``[N, S, *F*]`` of the step just taken."""
        self.client.submit(self._final_lane, observation, self._memory_at_end)

    def collect_final(self, truncated: Array) -> Array | None:
        """The values f4[N] of the final observations submitted, NaN except where ``truncated``; None while there is no
        answer."""
        answer = self.client.take(self._final_lane)
        if answer is None:
            return None
        self._note(answer)
        values = np.full(self._num_envs, np.nan, np.float32)
        if answer.outputs is not None:
            choices = self._spec.all_choices  # what is not allowed has no value already
            values[truncated] = self._algorithm.state_values(answer.outputs, choices)[truncated]
        return values

    def _rows(self, group: int) -> slice:
        return slice(group * self._size, (group + 1) * self._size)

    def _note(self, answer: Answer) -> None:
        if answer.version and not self.version:
            log.info("acting with weights, version %d", answer.version)
        self.version, self.epoch = answer.version, answer.epoch
