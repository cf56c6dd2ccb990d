"""The actor's loop with central inference: while one group of environments waits for its actions, the others step."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rljob.actor.figures import ActorFigures
from rljob.actor.loop import Loop
from rljob.actor.shards import MultiShard
from rljob.envs.base import GroupedEnvironment, Observation, StepResult, merged
from rljob.experience import Decision, SegmentBuilder
from rljob.inference.client import InferenceLost, RemotePolicy
from rljob.observation import each

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUPS = 2
# The longest wait before heartbeats, shards and the stop event are served again; an answer wakes at once.
_ANSWER_WAIT_SECONDS = 0.05
# A wait for actions that lasts longer than this is reported as a state.
LONGEST_ANSWER_SECONDS = 30.0
"""A server that starts anew answers sooner; one that does not may have another address, which a new actor looks up."""

_NOTABLE_SECONDS = 1.0


class GroupedLoop(Loop):
    """Acts with what an inference server answers: a turn steps one group after the other, each as soon as its answer is
    there, and asks for the next actions at once. A turn's steps are recorded together, so that chunks are the same.

    Raises ``InferenceLost`` when an answer takes longer than ``LONGEST_ANSWER_SECONDS``; the first is waited for as long as it
    takes, since a job's parts come up in whatever order they find a place. Time spent waiting for answers is ``blocked`` time,
    and ``figures.inference_wait_seconds``.
    """

    def __init__(
        self,
        environment: GroupedEnvironment,
        policy: RemotePolicy,
        builder: SegmentBuilder,
        sink: MultiShard,
        figures: ActorFigures,
    ) -> None:
        super().__init__(policy, builder, sink, figures)
        self._groups, self._remote = environment, policy
        self._answered = False
        self._not_asked: list[tuple[int, Observation]] = []

    def _reset(self) -> Observation:
        """As of ``Loop``; and ask for the first actions."""
        observation = self._groups.reset()
        for group in range(len(self._groups.groups)):
            rows = self._groups.rows(group)
            self._remote.submit(group, each(lambda of, rows=rows: of[rows], observation))
        return observation

    def turn(self, stop: threading.Event) -> None:
        """One step of every environment; or none that is recorded, when ``stop`` was set while waiting."""
        clock, remote = self._figures.clock, self._remote
        clock.enter("send")
        self._exchange()
        if not self._may_go_on(stop):
            return
        if not self._builder.steps_into_unroll:  # one that has begun goes on with what it began with
            remote.least_version = self._sink.least_version or 0
        for group, observation in self._not_asked:
            remote.submit(group, observation)
        self._not_asked = []
        last = self._builder.steps_into_unroll == self._builder.layout.length - 1
        decisions: list[Decision] = []
        results: list[StepResult] = []
        for group in range(len(self._groups.groups)):
            decision = self._await(partial(remote.collect, group), stop)
            if decision is None:
                return
            clock.enter("env")
            result = self._groups.step_group(group, decision.action, decision.control)
            clock.enter("infer")
            remote.ended(group, self._builder.episode_ends(result))
            if last and self._sink.least_version is not None:  # the next unroll may have to wait for newer weights
                self._not_asked.append((group, result.observation))
            else:
                remote.submit(group, result.observation)
            decisions.append(decision)
            results.append(result)
        clock.enter("encode")
        self._take_weights(time.monotonic())  # before the steps that they chose are recorded
        decision, result = Decision.joined(decisions), merged(results)
        final_values = None
        if result.final_observation is not None and result.truncated.any():
            remote.submit_final(result.final_observation)
            final_values = self._await(partial(remote.collect_final, result.truncated), stop)
            if final_values is None:
                return
        clock.enter("encode")
        self._record(decision, result, final_values)

    def _is_as_new_as(self, version: int) -> bool:
        """The server may be: it is asked until it answers with such."""
        return True

    def _take_weights(self, now: float) -> None:
        """The server has the weights; note which version it answers with. A learner that goes back to earlier weights asks for
        older ones than those that are waited for."""
        self._remote.least_version = min(self._remote.least_version, self._sink.least_version or 0)
        # The epoch too: a learner that came back may answer with a version that its former life has used.
        if (self._remote.version, self._remote.epoch) != (self._figures.policy_version, self._builder.epoch):
            if self._remote.version:
                self._builder.epoch = self._remote.epoch
            self._figures.policy_version = self._remote.version
            self._figures.weights_loaded_at = now

    def _await(self, collect: Callable[[], T | None], stop: threading.Event) -> T | None:
        """What ``collect`` gives, as soon as it does; heartbeats go on. None when ``stop`` came first."""
        clock, client = self._figures.clock, self._remote.client
        clock.enter("infer")
        client.poll()
        started, before = time.monotonic(), self._figures.inference_wait_seconds
        while (collected := collect()) is None and not stop.is_set():
            clock.enter("blocked")
            waited = time.monotonic() - started
            self._figures.inference_wait_seconds = before + waited
            if self._answered and waited > LONGEST_ANSWER_SECONDS:
                raise InferenceLost(
                    f"no answer from the inference server {client.endpoint} for {waited:.0f} s; "
                    "this actor ends, to be restarted"
                )
            if waited > _NOTABLE_SECONDS and self._figures.state != "Blocked":
                log.warning("waiting for the inference server %s", client.endpoint)
                self._figures.state = "Blocked"
            self._exchange()
            client.poll(_ANSWER_WAIT_SECONDS)
        self._answered |= collected is not None
        if self._figures.state == "Blocked" and collected is not None:
            log.info("the inference server answers again, after %.1f s", time.monotonic() - started)
            self._figures.state = "Running"
        return collected
