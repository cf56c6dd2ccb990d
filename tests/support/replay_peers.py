"""A replay service on a thread, and an actor and a learner that speak with it through the real wire."""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rljob.experience import Segment
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.wire import Client, CreditWindow, Message, encode

from tests.support.experience import CHUNKS, make_chunk
from tests.support.waiting import eventually, running


def random_chunk(number: int, actor: str = "actor-0", inc: str = "a") -> Segment:
    """A chunk whose contents depend on (actor, number) alone."""
    rng = np.random.default_rng([number, *actor.encode()])
    steps = CHUNKS.length
    return make_chunk(
        actor,
        number,
        incarnation=inc,
        policy_version=number,
        frames=rng.integers(
            0, 255, (steps + CHUNKS.stack - 1 + CHUNKS.n_step, *CHUNKS.observation[0].shape), dtype=np.uint8
        ),
        action=rng.integers(0, 6, steps).astype(np.int32),
        n_step_return=rng.normal(size=steps).astype(np.float32),
        discount=np.full(steps, 0.97, np.float32),
        priority=rng.uniform(0.1, 2.0, steps).astype(np.float32),
    )


@dataclass
class Actor:
    """The smallest honest actor: numbers its chunks, keeps what is not acknowledged, says hello when told to."""

    endpoint: str
    name: str = "actor-0"
    inc: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __post_init__(self) -> None:
        self.window: CreditWindow[list[Any]] = CreditWindow()
        self.durable: bool | None = None
        self.acked = -1
        self.sequence = self.least_version = 0
        self.welcome: dict[str, Any] = {}
        self.refused: list[str] = []
        self.next_hello = 0.0
        self.heard = time.monotonic()
        self.next_heartbeat = 0.0
        self.client = Client(self.endpoint)

    def reconnect(self) -> None:
        """A broken connection, as far as the service can tell."""
        self.client.close()
        self.client = Client(self.endpoint)
        self.window.disconnected()
        self.next_hello = 0.0

    def produce(self, count: int) -> None:
        for _ in range(count):
            made = random_chunk(self.sequence, self.name, self.inc)
            self.window.add(self.sequence, encode(made.to_message(), compress=["frames"]))
            self.sequence += 1

    def step(self, wait: float = 0.01) -> None:
        now = time.monotonic()
        if not self.window.connected and now >= self.next_hello:
            sent = self.client.send(Message("hello", {"actor": self.name, "inc": self.inc, "envs": 1}, {}))
            self.next_hello = now + (0.5 if sent else 0.05)
        while (due := self.window.next()) is not None and self.client.send(due[1]):
            self.window.sent(due[0])
        if self.window.connected and now > self.next_heartbeat:
            self.next_heartbeat = now + 0.3
            self.client.send(self.heartbeat())
        if now - self.heard > 1.5:
            self.heard = now
            self.reconnect()
        while (message := self.client.receive(wait)) is not None:
            wait = 0.0
            self.heard = time.monotonic()
            fields: Any = message.fields
            self.least_version = fields.get("pv", self.least_version)
            if message.kind == "welcome":
                self.welcome = dict(fields)
                self.window.welcome(fields["seq"], fields["credits"])
                self.acked = max(self.acked, fields["seq"])
            elif message.kind == "ack":
                self.window.acknowledge(fields["seq"], fields["credits"])
                self.acked, self.durable = max(self.acked, fields["seq"]), fields["durable"]
            elif message.kind == "credit":
                self.window.grant(fields["credits"])
            elif message.kind == "pulse" and not fields["known"]:
                self.window.disconnected()
                self.next_hello = 0.0
            elif message.kind == "refused":
                self.refused.append(fields["reason"])

    def heartbeat(self) -> Message:
        fields = {
            "actor": self.name, "inc": self.inc, "pv": 1, "state": "Acting", "steps": self.sequence * 10,
            "raw": self.sequence * 40, "produced": self.sequence * 10, "blocked": 0.0, "sps": 10.0,
        }  # fmt: skip
        return Message("heartbeat", fields, {"stages": np.arange(5.0)})

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        eventually(condition, lambda: f"acked {self.acked}, refused {self.refused}", seconds, self.step)

    def welcomed(self) -> dict[str, Any]:
        """What the service has answered to its hello."""
        self.until(lambda: bool(self.welcome))
        return self.welcome

    def send_all(self, count: int, seconds: float = 60.0) -> None:
        self.produce(count)
        self.until(lambda: self.window.unacknowledged == 0, seconds)


def sample(request: int, *draws: tuple[int, int]) -> Message:
    """Requests from that number on, of so many transitions for so many."""
    return Message("sample", {"req": request}, {"draws": np.array(draws, np.uint32).reshape(-1, 2)})


@dataclass
class Learner:
    endpoint: str
    epoch: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.endpoint)
        self.request = 0

    def ask(self, message: Message, answer: str, seconds: float = 60.0) -> Message:
        deadline = time.monotonic() + seconds
        eventually(lambda: self.client.send(message), f"{message.kind} is not sent", seconds)
        while time.monotonic() < deadline:
            message = self.client.receive(0.1)
            if message is not None and message.kind in (answer, "refused"):
                return message
        raise AssertionError(f"no {answer} in time")

    def subscribe(self, inc: str = "learner") -> Message:
        return self.ask(Message("subscribe", {"inc": inc, "epoch": self.epoch}, {}), "subscribed")

    def sample(self, count: int = 16) -> Message:
        self.request += 1
        return self.ask(sample(self.request, (count, count)), "batch")

    def stats(self) -> dict[str, Any]:
        time.sleep(0.11)  # the service answers from a document up to 0.1 s old
        document: dict[str, Any] = json.loads(self.ask(Message("stats", {}, {}), "stats").columns["json"].tobytes())
        return document

    def warm_stats(self) -> dict[str, Any]:
        """The first that are not those of a service which still reads its log."""
        return eventually(lambda: stats if (stats := self.stats())["state"] != "warming" else None) or {}


def config(**changes: Any) -> ReplayConfig:
    base = ReplayConfig(
        run="test",
        layout=CHUNKS,
        capacity=Capacity(1000),
        limiter=LimiterConfig(0.0, 20, 0.0, insert_step=10, sample_step=16),
        ingest=f"inproc://{uuid.uuid4().hex}",
        sample=f"inproc://{uuid.uuid4().hex}",
    )
    return replace(base, **changes)


@contextlib.contextmanager
def serving(settings: ReplayConfig) -> Iterator[ReplayService]:
    """A service on a thread of this process; an error in it fails the test."""
    service = ReplayService(settings)
    with running(service.run):
        yield service


def sent(service: ReplayService, chunks: int, name: str = "actor-0") -> Actor:
    """An actor of which the service has taken so many chunks."""
    actor = Actor(service.ingest_endpoint, name)
    actor.send_all(chunks)
    return actor


class Shard:
    """A service on a thread of its own, at addresses that outlive it; ``start`` again is a cold start."""

    def __init__(self, config: ReplayConfig) -> None:
        self.config = config
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        self.service = ReplayService(self.config)
        self._running.enter_context(running(self.service.run))

    def end(self) -> None:
        self._running.close()

    @property
    def inserted(self) -> int:
        """Transitions stored by the present service; its status document may be a moment older."""
        return self.service.table.limiter.inserted
