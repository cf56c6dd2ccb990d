"""An actor's conversation with an inference server: one request in flight for each group of environments, sent again with
the same number until it is answered; and the policy that acts by it: it asks, and decides on what comes back."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.acting import ActorIdentity
from rljob.algorithms.base import AnyAlgorithm
from rljob.choices import GroupedDraws
from rljob.envs import EnvironmentSpec, Observation
from rljob.experience import Decision
from rljob.observation import Array, Columns, by_column, rows_of
from rljob.wire import Client, MalformedMessage, Message, encode

log = logging.getLogger(__name__)

RESEND_SECONDS = 1.0
"""A request unanswered for so long is sent again: it, or its answer, was lost with a connection."""
_CONNECT_RETRY_SECONDS = 0.02
# A server that refuses this often without answering anything in between will never answer.
_HOPELESS_REFUSALS = 5


class InferenceLost(RuntimeError):
    """The inference server does not answer, or answers nothing but refusals. A new start of the actor may help."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """``outputs`` float32 ``[n, K]`` for the n observations of a request, and the memory ``state`` float32 ``[n, 2, H]``
    afterwards, computed with weights ``version`` of ``epoch``. Both None while the server has no weights (version 0)."""

    outputs: NDArray[np.float32] | None
    state: NDArray[np.float32] | None
    version: int
    epoch: int


@dataclass(slots=True)
class _Asked:
    number: int
    rows: int
    memory: tuple[int, ...]
    parts: Sequence[bytes | memoryview]
    at: float
    next_send: float
    sent: bool = False
    answer: Answer | None = None


class InferenceClient:
    """One actor, one server. Single-threaded; nothing blocks but ``poll``, for as long as it is told.

    ``columns``: those of observations. ``lanes`` requests may be in flight, one each. ``outputs`` (K) is how
    many the network has for an observation, None where no decision is made on them; an answer of another shape, or with
    weights of an earlier epoch than the one before, is none, is counted in ``unusable``, and its request is sent again.
    Counts beside it: ``requests``, ``resent``, ``refused``.
    """

    def __init__(
        self,
        client: Client,
        identity: ActorIdentity,
        columns: Columns,
        lanes: int,
        *,
        compress: bool,
        outputs: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._identity, self._columns = client, identity, columns
        self.endpoint = client.endpoint
        self._compress = tuple(column.name for column in columns) if compress else ()
        self._asked: list[_Asked | None] = [None] * lanes
        self._outputs, self._clock = outputs, clock
        self._numbers = self._refusals_in_a_row = self._epoch = 0
        self.requests = self.resent = self.refused = self.unusable = 0

    def submit(self, lane: int, observation: Any, state: NDArray[np.float32]) -> None:
        """Ask for the outputs for ``observation`` ``[n, S, *F*]``, or a dict of such, with the memory ``state``
        ``[n, 2, H]`` before it. The lane must be free: its last answer taken. ``observation`` must not be written again;
        ``state`` is copied."""
        if self._asked[lane] is not None:
            raise RuntimeError(f"lane {lane} has a request in flight; its answer must be taken first")
        who = {"actor": self._identity.actor, "inc": self._identity.incarnation}
        columns = by_column(self._columns, observation) | {"state": state.copy()}
        parts = encode(Message("infer", {**who, "group": lane, "req": self._numbers}, columns), compress=self._compress)
        now = self._clock()
        self._asked[lane] = asked = _Asked(self._numbers, rows_of(observation), state.shape[1:], parts, now, now)
        self._numbers += 1
        self.requests += 1
        self._send(asked, now)

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Read answers, waiting up to ``timeout_seconds`` for the first message, and send again what is overdue.

        Raises ``InferenceLost`` when the server refuses again and again.
        """
        now = self._clock()
        for asked in self._asked:
            if asked is not None and asked.answer is None and now >= asked.next_send:
                self._send(asked, now)
                if not asked.sent:
                    timeout_seconds = min(timeout_seconds, _CONNECT_RETRY_SECONDS)
        while (message := self._client.receive(timeout_seconds)) is not None:
            timeout_seconds = 0.0
            self._handle(message)

    def take(self, lane: int) -> Answer | None:
        """The answer to the lane's request, which frees the lane; None while there is none."""
        asked = self._asked[lane]
        if asked is None or asked.answer is None:
            return None
        self._asked[lane] = None
        return asked.answer

    def close(self) -> None:
        """Let the socket go. May be called twice."""
        self._client.close()

    def _send(self, asked: _Asked, now: float) -> None:
        if not self._client.send(asked.parts):
            asked.next_send = now + _CONNECT_RETRY_SECONDS
            return
        self.resent += asked.sent
        asked.sent = True
        asked.next_send = now + RESEND_SECONDS

    def _handle(self, message: Message) -> None:
        fields = message.fields
        if message.kind == "refused":
            reason = str(fields["reason"])
            if not self.refused:
                log.warning("the inference server refused a message: %s", reason)
            self.refused += 1
            self._refusals_in_a_row += 1
            if self._refusals_in_a_row >= _HOPELESS_REFUSALS:
                raise InferenceLost(f"the inference server {self.endpoint} refuses what this actor asks: {reason}")
            return
        if message.kind != "inferred" or not 0 <= int(fields["group"]) < len(self._asked):
            self._client.count(MalformedMessage("kind", f"{message.kind} answers nothing that was asked"))
            return
        asked = self._asked[int(fields["group"])]
        if asked is None or asked.number != fields["req"] or asked.answer is not None:
            return  # the second answer to a request that was sent twice
        out, memory = message.columns.get("out"), message.columns.get("state")
        if out is not None and memory is not None:
            if int(fields["epoch"]) < self._epoch:
                if not self.unusable:
                    log.warning(
                        "the inference server %s answers with weights of epoch %d after some of epoch %d: it is asked again",
                        self.endpoint,
                        fields["epoch"],
                        self._epoch,
                    )
                self.unusable += 1
                return
            self._epoch = int(fields["epoch"])
            outputs = out.shape[1] if self._outputs is None else self._outputs
            wanted = (asked.rows, outputs), (asked.rows, *asked.memory)
            if (out.shape, memory.shape) != wanted:
                self.unusable += 1
                log.warning(
                    "the inference server %s answers with outputs %s and memory %s, not %s and %s: it is of another job",
                    self.endpoint,
                    *map(list, (out.shape, memory.shape, *wanted)),
                )
                return
        self._refusals_in_a_row = 0
        found = {name: column.astype(np.float32, copy=False) for name, column in message.columns.items()}
        asked.answer = Answer(found.get("out"), found.get("state"), int(fields["pv"]), int(fields["epoch"]))


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
        self._algorithm, self._parameters, self._spec, self._num_envs = algorithm, parameters, spec, num_envs
        self._final_lane, self.client = groups, client
        self._choices = [spec.all_choices] * groups
        self._size = num_envs // groups
        self._draws = GroupedDraws(generator, groups)
        # What the network remembers of the running episodes, and of those too that the last step ended.
        self._memory = np.zeros((num_envs, 2, algorithm.memory_units(parameters)), np.float32)
        self._memory_at_end = self._memory.copy()
        self.epsilon = np.ones(num_envs, np.float32)
        self.version = self.epoch = 0
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
