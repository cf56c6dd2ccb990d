"""The actor's loop: act, step, record, send. One thread; with a network of its own it waits for credit only.

``Loop`` is what every actor does between its steps, ``LocalLoop`` what those do that have a network of their own: ``ActorLoop``,
and ``DeviceLoop`` (``device_loop.py``), whose simulator runs on a device. ``GroupedLoop`` (``grouped.py``) asks an inference
server.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rljob.actor.figures import ActorFigures
from rljob.actor.policy import ActingPolicy, LocalPolicy
from rljob.actor.shards import MultiShard
from rljob.envs.base import EpisodeRecord, Observation, StepResult, VectorEnvironment
from rljob.envs.meter import kept
from rljob.experience import Decision, SegmentBuilder
from rljob.inference.client import RemotePolicy
from rljob.observation import Array
from rljob.weights.flat import Weights, WeightSource
from rljob.wire import Message, packed

log = logging.getLogger(__name__)


# Sockets are polled this often; a vector step of a cheap environment is much shorter.
_EXCHANGE_INTERVAL_SECONDS = 0.002
# While blocked, the longest wait before looking at the stop event and the weights again; a message from a shard wakes at once.
BLOCKED_WAIT_SECONDS = 0.25
# While only weights are missing, which do not wake it.
WEIGHTS_WAIT_SECONDS = 0.001


class Loop(ABC):
    """Steps environments with ``policy`` and hands every chunk to ``sink``, until told to stop."""

    def __init__(
        self, policy: LocalPolicy | RemotePolicy, builder: SegmentBuilder, sink: MultiShard, figures: ActorFigures
    ) -> None:
        self._policy, self._builder, self._sink, self._figures = policy, builder, sink, figures
        self._slot: tuple[int, int] | None = None
        self._next_exchange = 0.0
        self._on_turn: Callable[[], None] = lambda: None

    def run(self, stop: threading.Event, on_turn: Callable[[], None] = lambda: None) -> None:
        """Play until ``stop`` is set. Pauses the environments, and counts the time, while no shard grants credit.

        ``on_turn`` is called every few milliseconds, blocked or not: proof of life for a watchdog.
        """
        self._on_turn = on_turn
        self.start()
        with self._figures.clock.stage("blocked"):
            while not self._may_begin() and not stop.is_set():
                self._figures.state = "Blocked"
                self._next_exchange = 0.0
                self._exchange(BLOCKED_WAIT_SECONDS)
        self._figures.state = "Running"
        while not stop.is_set():
            self.turn(stop)
        self._figures.clock.stop()

    def start(self) -> None:
        """Begin new episodes everywhere."""
        self._figures.clock.enter("env")
        self._builder.begin(self._reset())
        self._figures.state = "Running"

    def _may_begin(self) -> bool:
        """Whether all that the first step needs is there."""
        return True

    @abstractmethod
    def _reset(self) -> Observation:
        """Have every environment begin anew; what they show, [N, S, *F*]."""

    @abstractmethod
    def turn(self, stop: threading.Event) -> None:
        """One step of every environment; or none, when ``stop`` was set while waiting."""

    @abstractmethod
    def _take_weights(self, now: float) -> None:
        """Note, or act with, newly arrived weights."""

    def leave(self, timeout_seconds: float) -> None:
        """Send every complete transition, wait for acknowledgements up to ``timeout_seconds``, report what became of all."""
        figures, builder, sink = self._figures, self._builder, self._sink
        figures.state = "Draining"
        with figures.clock.stage("encode"):
            for chunk in builder.flush():
                sink.encode(chunk)
        figures.produced = builder.produced
        figures.cut_steps = builder.cut_steps + builder.pending
        figures.episodes_by_end["cut"] += builder.num_envs
        with figures.clock.stage("send"):
            drained = sink.drain(timeout_seconds)
        unacknowledged = sink.held_transitions
        log.info(
            "%s: %d steps = %d produced + %d cut; %d acknowledged, %d not",
            "drained" if drained else f"not drained within {timeout_seconds:g} s",
            figures.steps,
            figures.produced,
            figures.cut_steps,
            sink.total("acknowledged_transitions"),
            unacknowledged,
        )

    def _record(self, decision: Decision, result: StepResult, final_values: Array | None) -> None:
        figures, builder = self._figures, self._builder
        chunks = builder.record(decision, result, final_values)
        figures.steps += result.steps
        figures.raw_frames += result.raw_frames
        for chunk in chunks:
            self._sink.encode(chunk)
        if chunks:
            figures.produced = builder.produced
            self._next_exchange = 0.0
        if result.cut is not None:
            figures.cut_steps = builder.cut_steps
            figures.episodes_by_end["cut"] += int(result.cut.sum())
        if result.episodes:
            self._report(result.episodes)

    def _report(self, episodes: tuple[EpisodeRecord, ...]) -> None:
        figures = self._figures
        for episode in episodes:
            figures.episodes_by_end["truncated" if episode.truncated else "terminated"] += 1
        environments = [episode.environment for episode in episodes]
        names, metrics = packed(kept([episode.metrics for episode in episodes], figures.waited_for))
        self._sink.episodes(
            Message(
                "episodes",
                {"actor": figures.identity.actor, "inc": figures.identity.incarnation, **names},
                {
                    **metrics,
                    "ret": np.array([episode.game_return for episode in episodes], np.float32),
                    "length": np.array([episode.length_steps for episode in episodes], np.int32),
                    "raw": np.array([episode.raw_frames for episode in episodes], np.int32),
                    "env": np.array(environments, np.int32),
                    "epsilon": self._policy.epsilon[environments].astype(np.float32),
                    "cut": np.array([episode.truncated for episode in episodes], np.uint8),
                    "pv": np.full(len(episodes), self._policy.version, np.int64),
                },
            )
        )
        self._next_exchange = 0.0

    def _exchange(self, timeout_seconds: float = 0.0) -> None:
        """Talk to the shards and take new weights, if it is time."""
        now = time.monotonic()
        if now < self._next_exchange:
            return
        self._next_exchange = now + _EXCHANGE_INTERVAL_SECONDS
        self._on_turn()
        self._sink.poll(timeout_seconds)
        self._take_weights(now)
        welcome = self._sink.welcome
        if welcome is not None and (welcome.slot, welcome.slots) != self._slot:
            self._slot = (welcome.slot, welcome.slots)
            self._figures.slot = welcome.slot
            self._policy.take_slot(welcome.slot, welcome.slots)

    def _may_go_on(self, stop: threading.Event) -> bool:
        """Stand still until every chunk is on its way, and, in iterations, the next unroll was asked for; heartbeats and weights
        go on. False when ``stop`` came first."""
        if not self._has_to_wait():
            return True
        with self._figures.clock.stage("blocked"):
            self._figures.state = "Blocked"
            while (wait_seconds := self._has_to_wait()) and not stop.is_set():
                self._next_exchange = 0.0
                self._exchange(wait_seconds)
            self._figures.state = "Running"
        return not stop.is_set()

    def _has_to_wait(self) -> float:
        """For how long at most before it looks again; 0 where it may go on."""
        if self._sink.waiting:
            return BLOCKED_WAIT_SECONDS
        least = self._sink.least_version
        if least is None or self._builder.steps_into_unroll:
            return 0.0
        if self._sink.credits < self._builder.num_envs:
            return BLOCKED_WAIT_SECONDS
        return 0.0 if self._is_as_new_as(least) else WEIGHTS_WAIT_SECONDS

    def _is_as_new_as(self, version: int) -> bool:
        """Whether it acts with weights of ``version``, or newer ones."""
        return self._policy.version >= version


class LocalLoop(Loop):
    """Acts with a network of its own, kept up to date from ``weights``."""

    def __init__(
        self,
        policy: LocalPolicy,
        builder: SegmentBuilder,
        sink: MultiShard,
        weights: WeightSource,
        figures: ActorFigures,
    ) -> None:
        super().__init__(policy, builder, sink, figures)
        self._loaded, self._weights = policy, weights
        self._arrived: Weights | None = None
        self._live: dict[str, Any] = {}

    def _may_begin(self) -> bool:
        """Once the learner has told which weights there are: an actor that was up before it would play at random meanwhile."""
        return self._weights.answered

    def _take_weights(self, now: float) -> None:
        self._arrived = self._weights.poll() or self._arrived
        if self._arrived is not None and self._may_refresh():
            weights, self._arrived = self._arrived, None
            self._loaded.load(weights)
            if (live := weights.meta.get("live", {})) != self._live:
                self._live, self._loaded.parameters = live, self._loaded.parameters.updated(**live)
                self._slot = None  # which is taken again, by these
            self._builder.epoch = weights.epoch
            self._figures.policy_version = weights.version
            self._figures.weights_loaded_at = now

    @abstractmethod
    def _may_refresh(self) -> bool:
        """Whether this is a moment for newer weights."""


class ActorLoop(LocalLoop):
    """Steps ``environment``, whose arrays are the host's, one step a turn."""

    def __init__(
        self,
        environment: VectorEnvironment,
        policy: ActingPolicy,
        builder: SegmentBuilder,
        sink: MultiShard,
        weights: WeightSource,
        figures: ActorFigures,
        refresh_steps: int = 1,
    ) -> None:
        """``refresh_steps``: steps between two looks for newer weights inside an unroll, 0 for only between unrolls."""
        super().__init__(policy, builder, sink, weights, figures)
        self._environment, self._acting, self._refresh_steps = environment, policy, refresh_steps
        self._observation: Observation = None

    def turn(self, stop: threading.Event) -> None:
        """One step of every environment; or none, when ``stop`` was set while waiting for credit."""
        clock = self._figures.clock
        clock.enter("send")
        self._exchange()
        if not self._may_go_on(stop):
            return
        clock.enter("infer")
        decision = self._acting.act(self._observation)
        clock.enter("env")
        result = self._environment.step(decision.action, decision.control)
        clock.enter("infer")
        final_values = self._acting.final_values(result.final_observation, result.truncated)
        clock.enter("encode")
        self._record(decision, result, final_values)
        self._acting.ended(self._builder.episode_ends(result))
        self._observation = result.observation

    def _reset(self) -> Observation:
        self._observation = self._environment.reset()
        return self._observation

    def _may_refresh(self) -> bool:
        """Whether weights may be replaced now: between unrolls, and inside one as often as the job says. Weights of another epoch
        end an unroll."""
        into = self._builder.steps_into_unroll
        if not into:
            return True
        if self._arrived is not None and self._arrived.epoch != self._builder.epoch:
            # The learner has left the weights with which this unroll began, and would refuse it.
            self._builder.cut_steps += self._builder.begin(self._observation)
            self._figures.cut_steps = self._builder.cut_steps
            return True
        return self._refresh_steps > 0 and into % self._refresh_steps == 0
