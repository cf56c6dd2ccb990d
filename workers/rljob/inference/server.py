"""The inference server: one socket, one thread, batches by size and by deadline, every request answered once; in a process of its
own, or on a thread of the learner's, which has the latest weights by reference.

Stateless but for the last answer of each group of environments: a request that comes again (its answer was lost, the
connection broke) is answered with that, so what an actor sees never depends on how often it had to ask.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from rljob.inference.model import Batcher, Request, ServedModel
from rljob.observation import of_columns
from rljob.telemetry.clock import StageClock
from rljob.threads import SupervisedThread
from rljob.weights.flat import Weights, WeightSource
from rljob.weights.server import WeightServer
from rljob.wire import MalformedMessage, Message, Server, ServerSecurity, encode

log = logging.getLogger(__name__)

_REMEMBERED = 4096


class InferenceFigures:
    """Written by the server's thread; ``document`` may be called from any.

    A latency is the time from a request's arrival to its answer, in seconds; percentiles are over the last 4,096.
    """

    def __init__(self) -> None:
        self.requests = self.repeats = self.stale = self.observations = self.batches = self.refused = 0
        self.empty_answers = 0
        self.buckets: Counter[int] = Counter()
        """Batches by the size that they were padded to."""
        self.latencies: deque[float] = deque(maxlen=_REMEMBERED)

    def document(self) -> dict[str, Any]:
        """The counts, the mean batch, and the latency."""
        known = self.latencies.copy()
        p50, p99 = (float(value) for value in np.percentile(known, (50, 99))) if known else (None, None)
        computed = sum(size * count for size, count in self.buckets.copy().items())
        return {
            "requests_total": self.requests,
            "repeated_requests_total": self.repeats,
            "stale_requests_total": self.stale,
            "empty_answers_total": self.empty_answers,
            "refused_requests_total": self.refused,
            "observations_total": self.observations,
            "batches_total": self.batches,
            "batch_mean": self.observations / self.batches if self.batches else None,
            "bucket_fill": self.observations / computed if computed else None,
            "latency_p50_seconds": p50,
            "latency_p99_seconds": p99,
            "buckets": {str(size): count for size, count in sorted(self.buckets.copy().items())},
        }


STAGES = ("wait", "receive", "weights", "evaluate", "answer")
_MOST_LANES = 16_384
_IDLE_SECONDS = 0.1
_ASKING_SECONDS = 0.02


@dataclass(slots=True)
class _Lane:
    """One group of one actor: its latest request, who asked it, and the answer once there is one."""

    incarnation: str
    number: int
    peer: bytes
    answer: Sequence[bytes | memoryview] | None = None


class InferenceServer:
    """Answers ``infer`` messages on ``endpoint`` (bound at once; the attribute says what it resolved to).

    ``run`` belongs to one thread; ``status`` may be called from any.
    """

    def __init__(
        self,
        endpoint: str,
        model: ServedModel,
        weights: WeightSource,
        max_wait_seconds: float,
        security: ServerSecurity | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = Server(endpoint, security)
        self.endpoint = self._server.endpoint
        self._model, self._weights, self._now = model, weights, clock
        self._batcher = Batcher(model.max_batch, max_wait_seconds)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self.figures = InferenceFigures()
        self.clock = StageClock(STAGES)
        self.state = "WaitingForWeights"

    def run(self, stop: threading.Event, on_turn: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop`` is set, then close the socket. ``on_turn`` is called at least every 100 ms or so."""
        try:
            while not stop.is_set():
                on_turn()
                self.turn()
        finally:
            self.clock.stop()
            self.state = "Stopped"
            self._server.close()

    def turn(self) -> None:
        """Take new weights if there are any, wait for requests as long as the deadline allows, answer a batch if it is due."""
        self.clock.enter("weights")
        fresh = self._weights.poll()
        if fresh is not None:
            if self._model.version == 0:
                log.info("answering with weights, version %d", fresh.version)
            self._model.load(fresh)
            self.state = "Serving"
        if self._model.version == 0 and not self._weights.answered:
            # Started again in the middle of a run: "no weights yet" would have the actors play at random.
            self.clock.enter("wait")
            time.sleep(_ASKING_SECONDS)
            return
        due = self._batcher.due_in(self._now())
        if due is None or due > 0:
            self.clock.enter("wait")
            self._server.wait(_IDLE_SECONDS if due is None else min(due, _IDLE_SECONDS))
        self.clock.enter("receive")
        while self._batcher.rows < self._model.max_batch and (arrived := self._server.receive()) is not None:
            self._accept(*arrived)
        if self._batcher.due_in(self._now()) == 0:
            self._answer(self._batcher.take())

    def status(self) -> dict[str, Any]:
        """The server's part of a status document."""
        server = self._server
        return {
            "state": self.state,
            "policy_version": self._model.version,
            **self._model.acting.document(),
            "max_batch": self._model.max_batch,
            "waiting_requests": len(self._batcher),
            "lanes": len(self._lanes),
            **self.figures.document(),
            "malformed": dict(server.malformed),
            "unreachable_total": server.unreachable_total,
            "eagain_total": server.eagain_total,
            "stages": self.clock.seconds(),
        }

    def _accept(self, peer: bytes, message: Message) -> None:
        """Queue a new request, or answer a repeated one from memory."""
        try:
            request = self._checked(message)
        except MalformedMessage as error:
            self.figures.refused += 1
            self._server.refuse(peer, error)
            return
        key = request.actor, request.group
        lane = self._lanes.pop(key, None)
        if lane is not None and lane.incarnation == request.incarnation:
            self._lanes[key] = lane
            if request.number < lane.number:
                self.figures.stale += 1
                return
            if request.number == lane.number:
                self.figures.repeats += 1
                lane.peer = peer  # an actor that reconnected is another peer
                if lane.answer is not None:
                    self._server.send(peer, lane.answer)
                return
        self.figures.requests += 1
        self._lanes[key] = _Lane(request.incarnation, request.number, peer)
        if len(self._lanes) > _MOST_LANES:  # the lane that asked longest ago will be taken for new
            del self._lanes[next(iter(self._lanes))]
        self._batcher.add(request)

    def _checked(self, message: Message) -> Request:
        """The request in a message; raises `MalformedMessage` for one that this network cannot answer."""
        if message.kind != "infer":
            raise MalformedMessage("kind", f"an inference server does not answer {message.kind}")
        model = self._model
        state, names = message.columns["state"], [column.name for column in model.columns]
        if message.columns.keys() != {*names, "state"}:
            sent = ", ".join(name for name in message.columns if name != "state")
            raise MalformedMessage("shape", f"{sent or 'no observation'}; this network sees {', '.join(names)}")
        arrays = [message.columns[name] for name in names]
        for column, array in zip(model.columns, arrays, strict=True):
            if (wrong := column.problem(array, (len(state), *column.observed))) is not None:
                raise MalformedMessage("shape", f"{wrong}, as this network sees it")
        if state.shape[1:] != model.state_shape:
            raise MalformedMessage(
                "shape", f"state is {list(state.shape)}; this network remembers {['n', *model.state_shape]}"
            )
        if not 1 <= len(state) <= model.max_batch:
            raise MalformedMessage(
                "size", f"{len(state)} observations in a request; 1..{model.max_batch} are allowed (maxBatchSize)"
            )
        fields = message.fields
        return Request(
            actor=str(fields["actor"]),
            incarnation=str(fields["inc"]),
            group=int(fields["group"]),
            number=int(fields["req"]),
            observation=of_columns(model.columns, arrays),
            state=state.astype(np.float32, copy=False),
            arrived=self._now(),
        )

    def _answer(self, requests: list[Request]) -> None:
        """Evaluate the requests together and send every lane its part. Without weights the answer says so."""
        model, figures = self._model, self.figures
        evaluated = None
        if model.version > 0:
            self.clock.enter("evaluate")
            evaluated = outputs, states = model.evaluate(requests)
            figures.buckets[model.bucket(len(outputs))] += 1
            figures.batches += 1
            figures.observations += len(outputs)
        self.clock.enter("answer")
        end = 0
        for request in requests:
            begin, end = end, end + request.rows
            columns = {} if evaluated is None else {"out": outputs[begin:end], "state": states[begin:end]}
            fields = {"group": request.group, "req": request.number, "pv": model.version, "epoch": model.epoch}
            parts = encode(Message("inferred", fields, columns))
            figures.empty_answers += evaluated is None
            figures.latencies.append(self._now() - request.arrived)
            lane = self._lanes.get((request.actor, request.group))
            if lane is None or (lane.incarnation, lane.number) != (request.incarnation, request.number):
                continue  # a new life of this actor asked in the meantime
            lane.answer = parts
            self._server.send(lane.peer, parts)


class LatestWeights:
    """What the learner published last, as a source: no socket and no copy, since published weights never change."""

    answered = True

    def __init__(self, published: WeightServer) -> None:
        self._published = published
        self._seen: Weights | None = None

    def poll(self) -> Weights | None:
        """The latest weights if they are others than the last time, else None."""
        latest = self._published.latest
        if latest is self._seen:
            return None
        self._seen = latest
        return latest


class InferenceThread:
    """Runs ``server`` beside the training loop, as a context manager; where it ends, so does the loop (`rljob.threads`).

    torch computes outside the interpreter's lock, so the two meet only between their operations; they do share the cores. The
    server computes in its own thread alone, as an actor would.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = SupervisedThread("inference", self._run, until=self._stop)

    def status(self) -> dict[str, Any]:
        """The server's part of the status document."""
        return self._server.status()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.close(timeout_seconds=5.0)

    def _run(self) -> None:
        # For this thread only. With a second one a few rows of a small network take as long as the scheduler lets that one
        # wait: 56 ms instead of 0.3 on a busy machine.
        torch.set_num_threads(1)
        self._server.run(self._stop)
