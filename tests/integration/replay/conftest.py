"""A real service, a real Redis, and actors and learners that speak through the real wire."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.experience import Chunk, ChunkLayout
from rljob.replay.config import ReplayConfig
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.wire import Client, CreditWindow, Message, encode

LAYOUT = ChunkLayout(length=10, frame_shape=(6, 6), frame_dtype=np.dtype(np.uint8), stack=4, n_step=3)


def make_chunk(
    sequence: int, actor: str = "actor-0", inc: str = "a", steps: int = 10, layout: ChunkLayout = LAYOUT
) -> Chunk:
    """A valid chunk whose contents depend on (actor, sequence) alone."""
    rng = np.random.default_rng([sequence, *actor.encode()])
    at = np.arange(steps, dtype=np.uint16) + layout.stack - 1
    return Chunk(
        actor=actor,
        incarnation=inc,
        sequence=sequence,
        environment=0,
        policy_version=sequence,
        epoch=0,
        frames=rng.integers(0, 255, (steps + layout.stack - 1 + layout.n_step, *layout.frame_shape), dtype=np.uint8),
        observation_at=at,
        bootstrap_at=(at + layout.n_step).astype(np.uint16),
        action=rng.integers(0, 6, steps).astype(np.int32),
        n_step_return=rng.normal(size=steps).astype(np.float32),
        discount=np.full(steps, 0.97, np.float32),
        priority=rng.uniform(0.1, 2.0, steps).astype(np.float32),
        flags=np.zeros(steps, np.uint8),
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
        self.sequence = 0
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
            chunk = make_chunk(self.sequence, self.name, self.inc)
            self.window.add(self.sequence, encode(chunk.to_message(), compress=["frames"]))
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
            "raw": self.sequence * 40, "produced": self.sequence * 10, "blocked": 0.0, "rss": 1, "sps": 10.0,
        }  # fmt: skip
        return Message("heartbeat", fields, {"stages": np.arange(5.0)})

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not reached in time; acked {self.acked}, refused {self.refused}"
            self.step()

    def send_all(self, count: int, seconds: float = 60.0) -> None:
        self.produce(count)
        self.until(lambda: self.window.unacknowledged == 0, seconds)


@dataclass
class Learner:
    endpoint: str
    mode: str = "index"

    def __post_init__(self) -> None:
        self.client = Client(self.endpoint)
        self.request = 0

    def ask(self, kind: str, answer: str, fields: dict[str, Any] | None = None, seconds: float = 60.0) -> Message:
        deadline = time.monotonic() + seconds
        while not self.client.send(Message(kind, fields or {}, {})):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        while time.monotonic() < deadline:
            message = self.client.receive(0.1)
            if message is not None and message.kind in (answer, "refused"):
                return message
        raise AssertionError(f"no {answer} in time")

    def subscribe(self, inc: str = "learner") -> Message:
        return self.ask("subscribe", "subscribed", {"mode": self.mode, "inc": inc})

    def sample(self, count: int = 16) -> Message:
        self.request += 1
        return self.ask("sample", "batch", {"req": self.request, "n": count})

    def stats(self) -> dict[str, Any]:
        time.sleep(0.11)  # the service answers from a document up to 0.1 s old
        document: dict[str, Any] = json.loads(self.ask("stats", "stats").columns["json"].tobytes())
        return document


def config(**changes: Any) -> ReplayConfig:
    base = ReplayConfig(
        run="test",
        layout=LAYOUT,
        capacity=Capacity(1000),
        limiter=LimiterConfig(0.0, 20, 0.0, insert_step=10, sample_step=16),
        ingest=f"inproc://{uuid.uuid4().hex}",
        sample=f"inproc://{uuid.uuid4().hex}",
    )
    return replace(base, **changes)


@contextlib.contextmanager
def running(settings: ReplayConfig) -> Iterator[ReplayService]:
    """A service on a thread of this process; an error in it fails the test."""
    service, stop, failure = ReplayService(settings), threading.Event(), []

    def run() -> None:
        try:
            service.run(stop)
        except BaseException as error:
            failure.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield service
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not failure


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as started:
        yield started


class Kit:
    """What the tests here share, as one fixture: modules beside a test cannot be imported in this layout."""

    layout = LAYOUT
    make_chunk = staticmethod(make_chunk)
    Actor = Actor
    Learner = Learner
    config = staticmethod(config)
    running = staticmethod(running)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
