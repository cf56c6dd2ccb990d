"""Thousands of damaged messages at the sockets of running services, and whatever else a client can say that the schema allows,
while an honest peer works with each of them: a server counts it and answers or passes over it, and never raises it."""

import contextlib
import itertools
import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.api.learner_status import LearnerStatus
from rljob.experience import Segment
from rljob.inference.client import InferenceClient
from rljob.inference.server import InferenceServer
from rljob.ingest.roster import Roster
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.unroll_queue import UnrollQueue, UnrollQueueConfig
from rljob.replay.service import ReplayService
from rljob.weights.client import WeightClient
from rljob.weights.flat import VersionLog
from rljob.weights.server import WeightServer
from rljob.wire import Client, Message, Server, Subscriber, decode
from rljob.wire.schema import KINDS

from tests.support import replay_peers
from tests.support.experience import changed
from tests.support.inference import Given, answer_of, apex
from tests.support.messages import MUTATIONS, seeds
from tests.support.odd_peers import CHUNKS, HELLO, HONEST, UNROLLS, WHO, chunk, every_kind, tell, unroll
from tests.support.waiting import eventually, known, running

CASES = 4_000
"""Messages at each of five sockets."""
EACH = 500
"""After so many the honest peer is asked to work."""


class Bomb:
    """Leaves a file behind if it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._path),))


@pytest.fixture(scope="module")
def went_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bomb") / "went-off"


@pytest.fixture(scope="module")
def damaged(went_off: Path, any_seed: Callable[[int], int]) -> list[list[bytes]]:
    """Mutants of messages of every kind, random parts, and pickles that do something when they are loaded."""
    generator = np.random.default_rng(any_seed(99))
    # One that is whole after all and subscribes would be another learner, not nonsense.
    originals = [parts for parts in seeds() if decode(parts).kind != "subscribe"]
    bomb = pickle.dumps(Bomb(went_off))
    cases = []
    for case in range(CASES):
        if case % 10 == 0:
            parts = [generator.bytes(int(size)) for size in generator.integers(0, 700, generator.integers(1, 30))]
        else:
            parts = MUTATIONS[case % 3](originals[int(generator.integers(len(originals)))], generator)
        if case % 50 == 7:
            parts = [*parts[:-1], bomb]
        cases.append(parts)
    return cases


def storm(server: Server, damaged: list[list[bytes]], work: Callable[[], None]) -> None:
    """Send everything to ``server`` as fast as it is taken, ``work`` in between, and check what was counted."""
    work()
    before, malformed = server.received_total, server.malformed.total()
    with Client(server.endpoint, high_water_mark=1000) as fuzzer:
        for case, parts in enumerate(damaged):
            eventually(lambda p=parts: fuzzer.send(p), "it takes no more")
            if case % EACH == EACH - 1:
                work()
        eventually(lambda: server.received_total - before >= len(damaged), "not everything was received")
        # Many a mutant is a message, if not one that this service takes.
        eventually(lambda: server.malformed.total() - malformed > 0.6 * len(damaged), str(server.malformed))
        work()
    assert server.malformed.keys() >= {"header", "parts", "size", "checksum"}, server.malformed
    # A burst for each peer and then one a second: no server is made to answer nonsense as fast as it comes.
    assert server.refused_total < 300


def honest_actor(endpoint: str, make: Callable[[int], Segment]) -> tuple[ReplaySession, Callable[[], None]]:
    """An actor, and its work: three more of what it makes, all acknowledged."""
    session = ReplaySession(Client(endpoint), HONEST, ActorFigures(HONEST).heartbeat)
    numbers = itertools.count()

    def work() -> None:
        for _ in range(3):
            session.encode(replace(make(next(numbers)), actor=HONEST.actor, incarnation=HONEST.incarnation))

        eventually(lambda: session.unacknowledged == 0, "chunks are acknowledged", between=lambda: session.poll(0.01))

    return session, work


def assert_can_be_told(status: ShardStatus) -> None:
    assert ShardStatus.from_json(json.dumps(status.to_document(), allow_nan=False).encode()) == status


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ReplayService]:
    addresses = {"ingest": f"ipc://{tmp_path}/ingest", "sample": f"ipc://{tmp_path}/sample"}
    with replay_peers.serving(replay_peers.config(layout=CHUNKS, **addresses)) as service:
        yield service


def test_replay_goes_on_serving_actors_and_learner(service: ReplayService, damaged: list[list[bytes]]) -> None:
    actor, insert = honest_actor(service.ingest_endpoint, chunk)
    learner = replay_peers.Learner(service.sample_endpoint)
    with closing(actor), closing(learner.client):
        insert()
        learner.subscribe()

        def both() -> None:
            insert()
            assert learner.sample(8).fields["req"] == learner.request

        storm(service.ingest_server, damaged, both)
        storm(service.sample_server, damaged, both)
        status = learner.stats()
        assert status["inserted_total"] == 30 * (1 + learner.request), (
            "all that the honest actor sent, and nothing else"
        )
        rejected = status["rejected_total"]
        assert sum(count for reason, count in rejected.items() if "malformed" in reason) > 0.6 * CASES, rejected


def test_replay_takes_whatever_an_actor_or_a_learner_says(service: ReplayService) -> None:
    for action in (-1, 6, 1 << 30):  # a learner would look its value up beyond the network's outputs, and end
        beyond = changed(chunk(0), action=np.full(10, action, np.int32)).to_message()
        tell(service.ingest_server, iter([beyond]), HELLO)
    eventually(lambda: service.ingest.rejected["invalid"] == 3)
    assert service.table.items == 0
    tell(service.ingest_server, every_kind(chunk(0).to_message()), HELLO)
    actor, insert = honest_actor(service.ingest_endpoint, chunk)
    with closing(actor):
        insert()
        assert min(service.ingest.rejected[each] for each in ("invalid", "kind")) > 10
        assert service.ingest_server.malformed["contents"] > 10, "heartbeats and games that can't have been"
        assert_can_be_told(service.status)
        tell(service.sample_server, every_kind(), Message("subscribe", {"inc": "odd"}, {}))
        insert()
        assert service.sampling.rejected["kind"] > 10
        assert service.table.invalid_priorities + service.table.stale_priorities > 10


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[UnrollQueue]:
    versions = VersionLog(1)
    versions.note(1, 0)
    config = UnrollQueueConfig(
        f"ipc://{tmp_path}/queue",
        UNROLLS,
        batch_size=3,
        capacity=6,
        credits=8,
        drops_oldest=True,
        actor_timeout_seconds=2.0,
    )
    with closing(UnrollQueue(config, versions, torch.device("cpu"))) as queue:
        yield queue


def test_the_learners_queue_goes_on_taking_unrolls(queue: UnrollQueue, damaged: list[list[bytes]]) -> None:
    session, send = honest_actor(queue.endpoint, unroll)

    def learn() -> None:
        send()
        batch = known(queue.next(20.0))
        batch.wait()
        queue.give_back(batch)

    with closing(session):
        storm(queue._server, damaged, learn)
    status = queue.section()["queue"].to_document()
    assert status["received"] == status["learned"] + sum(status["dropped"].values()) + status["in_flight"]


def test_the_learners_queue_takes_whatever_an_actor_says(queue: UnrollQueue) -> None:
    tell(queue._server, every_kind(unroll(0).to_message()), HELLO)
    session, send = honest_actor(queue.endpoint, unroll)
    send()
    assert queue._ingest.rejected["invalid"] > 10
    assert eventually(lambda: queue.next(0.1), "a batch of what was accepted") is not None
    assert_can_be_told(queue.statuses()[0])
    json.dumps(LearnerStatus(**queue.section()).to_document(), allow_nan=False)
    session.close()


def test_thousands_of_made_up_actors_do_not_make_the_status_too_large() -> None:
    roster, long = Roster(), "\u00e9" * 31
    for number in range(3000):
        name = f"{number:02x}"[:2] + long + str(number)
        roster.joined(name, long, 0, float(number), known=False)
        record = roster.actors[name]
        record.status = replace(record.status, state=long)
    assert len(roster.actors) == 2048
    document = [record.as_status(3000.0).to_document() for record in roster.actors.values()]
    assert len(json.dumps(document)) < KINDS["stats"].columns["json"].max_bytes
    assert all(str(number) in " ".join(roster.actors) for number in range(2000, 3000)), "those heard of last are known"


def test_weights_go_on_being_served(tmp_path: Path, damaged: list[list[bytes]]) -> None:
    module, versions = torch.nn.Linear(3, 2), itertools.count(1)

    def publish() -> int:
        server.publish(module, version := next(versions), 1, {})
        return version

    def fetch() -> None:
        version = publish()
        eventually(lambda: known(client.wait(60.0)).version >= version)

    with (
        closing(WeightServer(f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice")) as server,
        closing(WeightClient(server.weights, server.notice)) as client,
        closing(Subscriber(server.notice)) as listener,
        zmq.Context.instance().socket(zmq.XSUB) as stranger,
    ):
        storm(server._server, damaged, fetch)
        # The socket of the notices only sends; a peer that is connected can still write to it.
        stranger.linger = 0
        stranger.connect(server.notice)
        for parts in damaged:
            with contextlib.suppress(zmq.Again):
                stranger.send_multipart(parts, zmq.NOBLOCK)
        while listener.receive(0.05) is not None:
            pass
        eventually(lambda: publish() and listener.receive(0.05) is not None, "notices still arrive")
        fetch()


def test_the_inference_server_goes_on_answering(tmp_path: Path, damaged: list[list[bytes]]) -> None:
    setup = apex()
    server = InferenceServer(f"ipc://{tmp_path}/inference", setup.model(16), Given(setup.weights(1)), 0.01)
    rows = np.zeros((4, *setup.spec.observation_shape), np.float32)
    state, answers = np.zeros((4, 2, 0), np.float32), list[Any]()
    with (
        running(server.run),
        closing(InferenceClient(Client(server.endpoint), HONEST, setup.spec.columns, 1, compress=False)) as client,
    ):

        def act() -> None:
            client.submit(0, rows, state)
            answers.append(answer_of(client).outputs)
            np.testing.assert_array_equal(answers[-1], answers[0])

        storm(server._server, damaged, act)
        assert server.status()["state"] == "Serving"
        already = dict(server._server.malformed)
        tell(
            server._server,
            every_kind(Message("infer", {**WHO, "group": 0, "req": 0}, {"vector": rows, "state": state})),
        )
        assert server._server.malformed["kind"] - already.get("kind", 0) > 10
        assert server._server.malformed["shape"] - already.get("shape", 0) > 5
        act()


def test_nothing_of_it_was_executed(went_off: Path, damaged: list[list[bytes]]) -> None:
    assert not went_off.exists()
    pickle.loads(next(parts[-1] for parts in damaged[7:] if b"mkdir" in parts[-1]))
    assert went_off.exists(), "the bomb was real"
