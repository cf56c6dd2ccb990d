"""Whatever a client says that the schema allows: a server counts it and answers or passes over it, and never raises it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rljob.acting.identity import ActorIdentity
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
from rljob.weights.versions import VersionLog
from rljob.wire import Client, Message
from rljob.wire.schema import KINDS

from tests.support import replay_peers
from tests.support.experience import changed
from tests.support.inference import answer_of, apex
from tests.support.odd_peers import CHUNKS, HELLO, HONEST, UNROLLS, WHO, chunk, every_kind, tell, unroll
from tests.support.threads import running
from tests.support.waiting import eventually
from tests.support.weights import Given

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[ReplayService]:
    config = replay_peers.config(layout=CHUNKS, ingest=f"ipc://{tmp_path}/ingest", sample=f"ipc://{tmp_path}/sample")
    with replay_peers.serving(config) as service:
        yield service


def deliver(endpoint: str, make: Callable[[int], Segment]) -> None:
    """An honest actor is taken on and three of what it makes are accepted."""
    session = ReplaySession(
        Client(endpoint), ActorIdentity("honest", uuid.uuid4().hex, 1), ActorFigures(HONEST).heartbeat
    )
    for number in range(3):
        session.encode(replace(make(number), actor="honest", incarnation=session._identity.incarnation))

    def acknowledged() -> bool:
        session.poll(0.01)
        return session.unacknowledged == 0

    eventually(acknowledged, "the honest actor's chunks are acknowledged")
    session.close()


def test_replay_takes_whatever_an_actor_says(replay: ReplayService) -> None:
    first = replace(chunk(0), sequence=0).to_message()
    tell(replay.ingest_server, every_kind(first), HELLO)
    deliver(replay.ingest_endpoint, chunk)
    assert replay.ingest.rejected["invalid"] > 10
    assert replay.ingest.rejected["kind"] > 10
    assert replay.ingest_server.malformed["contents"] > 10, "heartbeats and games that can't have been"
    status = replay.status
    assert ShardStatus.from_json(json.dumps(status.to_document(), allow_nan=False).encode()) == status


def test_an_action_that_the_environment_does_not_have_is_refused(replay: ReplayService) -> None:
    """A learner would look its value up beyond the network's outputs, and end."""
    for action in (-1, 6, 1 << 30):
        message = changed(chunk(0), action=np.full(10, action, np.int32)).to_message()
        tell(replay.ingest_server, iter([message]), HELLO)
    assert replay.ingest.rejected["invalid"] == 3
    assert replay.table.items == 0


def test_replay_takes_whatever_a_learner_says(replay: ReplayService) -> None:
    deliver(replay.ingest_endpoint, chunk)
    subscribe = Message("subscribe", {"inc": "odd"}, {})
    tell(replay.sample_server, every_kind(), subscribe)
    assert replay.sampling.rejected["kind"] > 10
    assert replay.table.invalid_priorities + replay.table.stale_priorities > 10
    deliver(replay.ingest_endpoint, chunk)


def test_thousands_of_made_up_actors_do_not_make_the_status_too_large() -> None:
    roster, long = Roster(0.1), "\u00e9" * 31
    for number in range(3000):
        name = f"{number:02x}"[:2] + long + str(number)
        roster.joined(name, long, 0, float(number), known=False)
        roster.actors[name].state = long
    assert len(roster.actors) == 2048
    document = [record.as_status(3000.0).to_document() for record in roster.actors.values()]
    assert len(json.dumps(document)) < KINDS["stats"].columns["json"].max_bytes
    assert all(str(number) in " ".join(roster.actors) for number in range(2000, 3000)), "those heard of last are known"


def test_the_learners_queue_takes_whatever_an_actor_says(tmp_path: Path) -> None:
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
    queue = UnrollQueue(config, versions, torch.device("cpu"))
    try:
        tell(queue._server, every_kind(unroll(0).to_message()), HELLO)
        deliver(queue.endpoint, unroll)
        assert queue._ingest.rejected["invalid"] > 10
        assert eventually(lambda: queue.next(0.1), "a batch of what was accepted") is not None
        status = queue.statuses()[0]
        assert ShardStatus.from_json(json.dumps(status.to_document(), allow_nan=False).encode()) == status
        json.dumps(LearnerStatus(**queue.section()).to_document(), allow_nan=False)
    finally:
        queue.close()


def test_the_inference_server_takes_whatever_an_actor_says(tmp_path: Path) -> None:
    setup = apex()
    server = InferenceServer(f"ipc://{tmp_path}/inference", setup.model(16), Given(setup.weights(1)), 0.001)
    rows = np.zeros((4, *setup.spec.observation_shape), np.float32)
    ask = Message("infer", {**WHO, "group": 0, "req": 0}, {"vector": rows, "state": np.zeros((4, 2, 0), np.float32)})
    with running(server.run):
        tell(server._server, every_kind(ask))
        assert server._server.malformed["kind"] > 10
        assert server._server.malformed["shape"] > 5
        client = InferenceClient(Client(server.endpoint), HONEST, setup.spec.columns, 1, compress=False)
        client.submit(0, rows, np.zeros((4, 2, 0), np.float32))
        answer_of(client)
        client.close()
