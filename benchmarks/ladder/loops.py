"""The rungs in one process: act in every environment, store, learn, and again."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import torch
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.apex_dqn.network import QNetwork
from rljob.algorithms.base import Inference
from rljob.algorithms.batches import LossResult, Observation, TransitionBatch
from rljob.api import ApeXDQNParameters
from rljob.envs import make_vector_environment
from rljob.experience import Decision, Segment, SegmentLayout
from rljob.experience.ring import SegmentRing
from rljob.experience.transitions_and_unrolls import TransitionBuilder
from rljob.learner.optim.updater import TransitionUpdater
from rljob.learner.staging import transition_buffers
from rljob.observation import each
from rljob.replay.selectors import Prioritized

from benchmarks.ladder import rungs
from benchmarks.ladder.readings import Reading
from benchmarks.ladder.rungs import Rung

CPU = torch.device("cpu")


class UniformReplay:
    """The newest transitions in this process: the learner's mirror, and the replay's selector, for which all are equal."""

    def __init__(self, layout: SegmentLayout, capacity: int, batch_size: int, generator: np.random.Generator) -> None:
        self._ring = SegmentRing(layout, -(-capacity // layout.length))
        self._selector = Prioritized(self._ring.capacity_steps, 0.0)
        self._buffers = transition_buffers(layout, batch_size, 1, CPU)
        self._batch_size, self._generator = batch_size, generator
        self._segments = 0

    def insert(self, segment: Segment) -> None:
        """Store it in the place of the oldest."""
        generation, slot = divmod(self._segments, self._ring.capacity)
        self._ring.insert(slot, generation + 1, segment)
        stored = np.zeros(segment.layout.length)
        stored[: segment.steps] = 1.0
        self._selector.assign(slot * segment.layout.length, stored)
        self._segments += 1

    def sample(self) -> TransitionBatch:
        """A batch, good until the next one is drawn."""
        staging = self._buffers.take_waiting()
        slots, _ = self._selector.sample(self._batch_size, self._generator)
        staging.fill(slice(None), slots, self._ring)
        batch, _ = self._buffers.upload(staging)
        self._buffers.give_back(staging)
        found: TransitionBatch = batch
        return found


class KeepsGraphs(ApeXDQN):
    """The control: acting and targets record what a gradient would need, and drop it."""

    def infer(self, net: QNetwork, observation: Observation, state: Any) -> Inference:
        return Inference(self.action_values(net, each(torch.as_tensor, observation)).detach(), torch.as_tensor(state))

    def loss(self, params: ApeXDQNParameters, online: QNetwork, target: QNetwork, batch: TransitionBatch) -> LossResult:
        bootstrap = target(batch.next_observation)
        best = online.choices.taken(bootstrap, online.choices.best(bootstrap))
        wanted = (batch.n_step_return + batch.discount * best).detach()
        taken = online.choices.taken(online(batch.observation), batch.action)
        detached = taken.detach()
        each_half_square = 0.5 * (taken - wanted).square()
        metrics = {"q_taken": detached.mean()}
        return LossResult((batch.weight * each_half_square).mean(), metrics, td_abs=(wanted - detached).abs())


class SynchronousLoop:
    """One rung, trained turn by turn. ``fill``: frames before the first update."""

    def __init__(self, rung: Rung, seed: int, fill: int = rungs.FILL) -> None:
        self._began = time.perf_counter()
        self._fill = fill
        torch.manual_seed(seed)
        self._generator = np.random.default_rng(seed)
        params, seen = rungs.learning_parameters(rung), rungs.environment_parameters(rung)
        self.algorithm = KeepsGraphs() if rung.keeps_graphs else ApeXDQN()
        self.environment = make_vector_environment(rungs.GAME, seen, rung.environments, seed)
        spec = self.environment.spec
        self._network = self.algorithm.build(spec, params, seen)
        self.updater = TransitionUpdater(self.algorithm, params, self._network, CPU)
        self.updater.target.requires_grad_(rung.keeps_graphs)
        layout = self.algorithm.layout(spec, params)
        self.replay = UniformReplay(layout, rungs.CAPACITY, rung.batch_size, self._generator)
        self._builder = TransitionBuilder(layout, rung.environments, params.gamma, False, "ladder", "1", 0)
        self._batch_size = rung.batch_size
        self._memory = torch.zeros((rung.environments, 2, 0))
        self._returns: deque[float] = deque(maxlen=rungs.GAMES)
        self.frames = 0
        self.figures = torch.zeros(len(self.updater.figures))
        """What the last update reports, by ``updater.figures``."""
        self.observation = self.environment.reset()
        self._frame_sum = np.zeros(self.observation.shape[2:])
        self._builder.begin(self.observation)

    def decide(self) -> Decision:
        """Epsilon-greedy actions in all environments."""
        outputs, _ = self.algorithm.infer(self._network, self.observation, self._memory)
        epsilon = rungs.epsilon(max(0, self.frames - self._fill))
        choices = self.environment.spec.choices(self.observation)
        return self.algorithm.decide(outputs.numpy(), epsilon, self._generator, choices)

    def turn(self) -> None:
        """A step of every environment, and an update once there are enough."""
        decision = self.decide()
        result = self.environment.step(decision.action)
        for segment in self._builder.record(decision, result):
            self.replay.insert(segment)
        self.observation = result.observation
        self.frames += result.steps
        self._returns.extend(episode.game_return for episode in result.episodes)
        if self.frames < self._fill:
            self._frame_sum += self.observation[:, -1].mean(axis=0)
            return
        if self.updater.updates == 0:
            self._centre()
        _, self.figures = self.updater.update(self.replay.sample(), self.frames)

    def reading(self) -> Reading:
        """How far it is."""
        full = len(self._returns) == rungs.GAMES
        return Reading(
            seconds=time.perf_counter() - self._began,
            frames=self.frames,
            samples=self.updater.updates * self._batch_size,
            cpu_seconds=time.process_time(),
            mean_return=sum(self._returns) / rungs.GAMES if full else None,
        )

    def _centre(self) -> None:
        """As the learner does before its first update: subtract the mean of what was seen."""
        turns = max(1, self.frames // self.environment.num_envs - 1)
        self.updater.online.centre(torch.from_numpy(self._frame_sum / turns).float())
        self.updater.copy_online()
