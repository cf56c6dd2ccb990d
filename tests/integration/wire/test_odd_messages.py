"""Whatever a peer says that the schema allows: it is counted and answered or passed over, and never raised into a loop."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from rljob.acting.identity import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ChunkRefused, ReplaySession
from rljob.algorithms.apex_dqn import ApeXDQN
from rljob.experience import Chunk, Unroll
from rljob.inference.client import InferenceClient, InferenceLost
from rljob.inference.server import InferenceServer
from rljob.ingest.roster import Roster
from rljob.ingest.shard_status import ShardStatus
from rljob.learner import shard
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.figures import Figures
from rljob.learner.status import replay_summary, return_to_go_by, steps_and_raw_frames
from rljob.learner.unroll_queue import UnrollQueue, UnrollQueueConfig
from rljob.learner.verdicts import Verdicts
from rljob.replay.service import ReplayService
from rljob.roles.learner import wanted_since
from rljob.telemetry.server import TelemetryServer
from rljob.weights.evaluations import Evaluation
from rljob.weights.exchange import WeightClient, WeightServer
from rljob.weights.flat import WeightsProblem, snapshot
from rljob.weights.versions import VersionLog
from rljob.wire import Client, Message, Publisher, Server
from rljob.wire.schema import KINDS

from tests.support import experience, replay_peers
from tests.support.experience import make_chunk, make_unroll
from tests.support.inference import answer_of, apex
from tests.support.messages import well_formed
from tests.support.odd_messages import odd
from tests.support.threads import running
from tests.support.waiting import eventually
from tests.support.weights import Given

pytestmark = pytest.mark.timeout(300)

SECONDS = 60.0
CHUNKS = replace(experience.CHUNKS, num_actions=6)
UNROLLS = replace(experience.UNROLLS, num_actions=6)
WHO = {"actor": "odd", "inc": "life"}
chunk = partial(make_chunk, "odd")
unroll = partial(make_unroll, "odd")


def every_kind(*named: Message) -> Iterator[Message]:
    """Odd messages of every kind there is; ``named`` are what a kind's are made of, where that matters."""
    bases = {message.kind: message for message in named}
    for kind in sorted(KINDS):
        base = bases.get(kind) or well_formed(kind, 4)
        yield from odd(Message(kind, {**base.fields, **(WHO if "actor" in base.fields else {})}, base.columns))


def tell(server: Server, messages: Iterator[Message], before: Message | None = None) -> set[bytes]:
    """Send all of them to ``server``, ``before`` in front of each, until it has read all. Everything that came back."""
    heard: set[bytes] = set()
    already, count = server.received_total, 0
    with Client(server.endpoint, high_water_mark=10_000) as peer:
        for message in messages:
            pair = [each for each in (before, message) if each is not None]
            if (
                before is HELLO
            ):  # a life of its own for each, so that what one has sent does not make the next a duplicate
                life = {"inc": uuid.uuid4().hex}
                pair = [
                    replace(m, fields={**m.fields, **(life if m.fields.get("inc") == "life" else {})}) for m in pair
                ]
            for each in pair:
                eventually(lambda m=each: peer.send(m), "it takes no more")
                count += 1
            while (parts := peer._read(16)) is not None:
                heard.update(bytes(part) for part in parts)
        eventually(lambda: server.received_total - already >= count, "not everything was read")
        while peer.wait(0.1) and (parts := peer._read(16)) is not None:
            heard.update(bytes(part) for part in parts)
    return heard


# --------------------------------------------------------------------------------------- peers of the servers


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[ReplayService]:
    config = replay_peers.config(layout=CHUNKS, ingest=f"ipc://{tmp_path}/ingest", sample=f"ipc://{tmp_path}/sample")
    with replay_peers.serving(config) as service:
        yield service


def deliver(endpoint: str, make: Callable[[int], Chunk | Unroll]) -> None:
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


HONEST = ActorIdentity("honest", "life", 1)
HELLO = Message("hello", {**WHO, "envs": 1}, {})


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
        message = replace(chunk(0), action=np.full(10, action, np.int32)).to_message()
        tell(replay.ingest_server, iter([message]), HELLO)
    assert replay.ingest.rejected["invalid"] == 3
    assert replay.table.items == 0


def test_replay_takes_whatever_a_learner_says(replay: ReplayService) -> None:
    deliver(replay.ingest_endpoint, chunk)
    subscribe = Message("subscribe", {"mode": "index", "inc": "odd"}, {})
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
        json.dumps(queue.section(), allow_nan=False)
    finally:
        queue.close()


def test_the_inference_server_takes_whatever_an_actor_says(tmp_path: Path) -> None:
    setup = apex()
    server = InferenceServer(f"ipc://{tmp_path}/inference", setup.model(16), Given(setup.weights(1)), 0.001)
    rows = np.zeros((4, *setup.spec.observation_shape), np.float32)
    ask = Message("infer", {**WHO, "group": 0, "req": 0}, {"obs": rows, "state": np.zeros((4, 2, 0), np.float32)})
    with running(server.run):
        tell(server._server, every_kind(ask))
        assert server._server.malformed["kind"] > 10
        assert server._server.malformed["shape"] > 5
        client = InferenceClient(Client(server.endpoint), HONEST, 1, compress=False)
        client.submit(0, rows, np.zeros((4, 2, 0), np.float32))
        answer_of(client)
        client.close()


@pytest.fixture
def weight_server(tmp_path: Path) -> Iterator[WeightServer]:
    server = WeightServer(f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice")
    yield server
    server.close()


NETWORK = torch.nn.Linear(3, 2)


def verdict(**changes: Any) -> Evaluation:
    two = np.array([1.0, 2.0], np.float32)
    judged = snapshot(NETWORK, 3, 1, {"updates": 30, "raw_frames": 100, "steps": 25, "mean_return": 1.0})
    return replace(Evaluation(3, 1.5, 0.5, 2.0, True, two, two.astype(np.int32), judged), **changes)


def test_the_weight_server_takes_whatever_anybody_says(weight_server: WeightServer) -> None:
    weight_server.publish(NETWORK, 1, 1, {})
    tell(weight_server._server, every_kind(verdict().to_message()))
    assert weight_server._server.malformed["kind"] > 10
    assert weight_server._server.malformed["contents"] > 10
    verdicts = Verdicts()
    for evaluation in weight_server.evaluations():  # what the learner's loop does with those that got through
        if verdicts.add(evaluation, 1, 1) and evaluation.weights is not None:
            evaluation.weights.load_into(NETWORK)
    client = WeightClient(weight_server.weights, weight_server.notice)
    assert eventually(lambda: client.wait(1.0), "weights are still served").version == 1
    client.close()


def test_a_fetch_that_does_not_say_for_what_is_refused_and_counted(weight_server: WeightServer) -> None:
    weight_server.publish(NETWORK, 1, 1, {})
    with Client(weight_server.weights) as peer:
        eventually(lambda: peer.send([msgpack.packb((1, "fetch", {"have": 0}, []))]), "it is taken")
        answer = peer.receive(SECONDS)
        assert answer is not None
        assert answer.kind == "refused"
        assert "evaluation is missing" in str(answer.fields["reason"])
    assert weight_server.status()["refused_total"] == {"field": 1}


def lying(text: bytes) -> Evaluation:
    judged = verdict().weights
    assert judged is not None
    return verdict(weights=replace(judged, manifest=np.frombuffer(text, np.uint8)))


def described(**changes: Any) -> bytes:
    tensors = [{"name": "weight", "shape": [2, 3], "dtype": "float32", "offset": 0, **changes}]
    return json.dumps({"tensors": tensors, "meta": {}}).encode()


UNUSABLE = {
    "no JSON": lying(b"{"),
    "nested": lying(b"[" * 100_000),
    "no tensors": lying(b"{}"),
    "a count in words": lying(b'{"tensors": [], "meta": {"updates": "many"}}'),
    "a count that is none": lying(b'{"tensors": [], "meta": {"raw_frames": null}}'),
    "a count of a thousand digits": lying(b'{"tensors": [], "meta": {"steps": 1' + b"0" * 1000 + b"}}"),
    "an infinite offset": lying(described(offset=float("inf"))),
    "an impossible shape": lying(described(shape=[0, 1 << 63])),
    "many dimensions": lying(described(shape=[1] * 1000)),
    "another network": verdict(weights=snapshot(torch.nn.Linear(4, 2), 3, 1, {})),
    "a mean that is not finite": verdict(mean=float("nan")),
    "an infinite standard error": verdict(standard_error=float("inf")),
    "negative seconds": verdict(seconds=-1.0),
    "no games": verdict(returns=np.zeros(0, np.float32), lengths=np.zeros(0, np.int32)),
    "a return that is not finite": verdict(returns=np.array([1.0, np.inf], np.float32)),
}


@pytest.mark.parametrize("evaluation", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_verdict_that_is_none_is_refused_and_its_evaluator_goes_on(
    weight_server: WeightServer, evaluation: Evaluation
) -> None:
    weight_server.publish(NETWORK, 1, 1, {})
    client = WeightClient(weight_server.weights, weight_server.notice, evaluation=True)

    def noted() -> int:
        client.poll()
        return client.noted

    eventually(lambda: client.report(evaluation), "it is sent")
    eventually(lambda: noted() == evaluation.version, "it is not sent for ever")
    assert weight_server.evaluations() == []
    assert weight_server.status()["refused_total"] == {"contents": 1}
    eventually(lambda: client.report(verdict(version=4, standard_error=float("nan"))), "the next one is sent")
    eventually(lambda: noted() == 4, "the next one is noted")
    assert [each.version for each in weight_server.evaluations()] == [4]
    client.close()


# --------------------------------------------------------------------------------------- servers of the clients


@contextmanager
def saying(server: Server, answers: Callable[[Message], list[Message]]) -> Iterator[None]:
    """A peer that answers each message with what ``answers`` says."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            server.wait(0.02)
            while (received := server.receive()) is not None:
                for answer in answers(received[1]):
                    server.send(received[0], answer)

    with running(run):
        yield
    server.close()


@pytest.mark.parametrize("mode", ["index", "frames"])
def test_a_learner_takes_whatever_a_shard_says(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "SUBSCRIBE_AGAIN_SECONDS", 0.01)  # it begins anew after each that it can't bear
    subscribed = Message(
        "subscribed",
        {"service": "s", "epoch": 1, "chunks": 4, "length": 10, "frames": CHUNKS.max_frames, "state": "serving"},
        {},
    )
    mirror = Message("mirror", {**chunk(0).to_message().fields, "slot": 0, "gen": 1}, chunk(0).to_message().columns)
    four = np.zeros(4, np.uint32)
    frames = np.zeros((4, 4, 6, 6), np.uint8)
    moves = {"ret": np.ones(4, np.float32), "disc": np.ones(4, np.float32), "pv": np.ones(4, np.int64)}
    columns: dict[str, Any] = {"slot": four, "gen": four + 1, "prob": np.full(4, 0.1)}
    if mode == "frames":
        columns |= {"obs": frames, "next_obs": frames, "action": np.zeros(4, np.int32), **moves}
    batch = Message("batch", {"req": 1, "mass": 1.0, "error": 0.0, "shard": 0}, columns)
    serving = {"service": "s", "state": "serving", "priority_total": 1.0, "limiter": {"error": 0.0}}
    stats = Message("stats", {}, {"json": np.frombuffer(json.dumps(serving).encode(), np.uint8)})
    # Of another job: ends the learner, which says so. It is tested where the session is.
    told = [m for m in every_kind(subscribed, mirror, batch) if m.kind != "refused" and _same_layout(m)]
    remaining = iter(told)
    spoken = 0

    def answers(message: Message) -> list[Message]:
        nonlocal spoken
        if message.kind == "subscribe":
            return [subscribed, mirror]
        some = list(itertools.islice(remaining, 3))
        spoken += len(some)
        if message.kind == "sample":
            number = message.fields["req"]
            said = [
                replace(each, fields={**each.fields, "req": number}) if each.kind == "batch" else each for each in some
            ]
            return [*said, Message("batch", {**batch.fields, "req": number}, columns)]
        return [*some, stats] if message.kind == "stats" else some

    server = Server(f"ipc://{tmp_path}/sample")
    with saying(server, answers):
        config = ReplayClientConfig((server.endpoint,), CHUNKS, 4, mode=mode)
        client = ReplayClient(config, ApeXDQN().importance_weights, torch.device("cpu"))
        batches = 0
        while spoken < len(told):
            ready = client.next(0.05)  # raises what ended the thread
            if ready is not None:
                ready.wait()
                client.give_back(ready)
                batches += 1
        assert batches > 0
        client.close()


def _same_layout(message: Message) -> bool:
    return message.kind != "subscribed" or (message.fields["length"], message.fields["frames"]) == (
        10,
        CHUNKS.max_frames,
    )


STATUS: dict[str, Any] = {
    "items": 100, "capacity": 1000, "bytes": 10, "inserted_total": 100, "sampled_total": 0, "episodes_total": 1,
    "steps_total": 5, "raw_frames_total": 20, "queue_depth_batches": 1.5, "queue_bound_batches": None,
    "state": "serving", "durable": True, "durability": "On", "service": "s", "stages": {"poll": 1.0},
    "actors": [{"name": "a", "age_seconds": 0.1, "stages": {"env": 1.0}}],
    "episodes": [{"return": 1.0, "greedy_half": True}] * 20,
}  # fmt: skip
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    1.5,
    10**400,
    -(10**30),
    float("nan"),
    float("inf"),
    "many",
    [],
    [1],
    [[]],
    {},
    {"a": "b"},
]


def assert_says(document: Any, said: Any) -> None:
    """Everything that was said is in the document, wherever that has more."""
    if isinstance(said, dict):
        for name, value in said.items():
            assert_says(document[name], value)
    elif isinstance(said, list):
        for one, value in zip(document, said, strict=True):
            assert_says(one, value)
    else:
        assert document == said


def test_a_status_is_read_whole_or_not_at_all() -> None:
    assert_says(ShardStatus.from_json(json.dumps(STATUS).encode()).to_document(), STATUS)
    newer = STATUS | {"something": {"that": ["is not known here"]}}
    assert ShardStatus.from_document(newer) == ShardStatus.from_document(STATUS)
    texts = [b"", b"{", b"7", b"null", b"[]", b'"x"', b"[" * 100_000, b"\xff\xfe", b"1" * 5000]
    places = [(STATUS, name) for name in STATUS] + [(STATUS["actors"][0], name) for name in STATUS["actors"][0]]
    places += [(STATUS["episodes"][0], "return"), (STATUS["stages"], "poll")]
    for holder, name in places:
        before = holder[name]
        for value in ODD_VALUES:
            holder[name] = value
            texts.append(json.dumps(STATUS).encode())
        holder[name] = before
    read = 0
    for text in texts:
        try:
            status = ShardStatus.from_json(text)
        except ValueError:
            continue
        read += 1
        shards = [status]  # and now what the learner's loop makes of it
        replay_summary(shards)
        steps_and_raw_frames(shards)
        return_to_go_by(shards)
        figures = Figures(("loss", "norm"))
        figures.window(0.0, {}, 0, 0, 0, shards)
        figures.window(1.0, {}, 0, 0, 0, shards)
        json.dumps(figures.document(shards, {}))
    assert 20 < read < len(texts) - 50, "some are harmless, many are not"


def test_whoever_wants_weights_takes_whatever_the_learner_says(tmp_path: Path) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in NETWORK.state_dict().items()}
    numbers = itertools.count(2)

    def good() -> Message:
        made = snapshot(NETWORK, next(numbers), 1, {})
        fields = {"version": made.version, "epoch": 1, "digest": made.digest}
        return Message("weights", fields, {"buffer": made.buffer, "manifest": made.manifest})

    told = iter([*every_kind(good()), *(good_digest(evaluation) for evaluation in UNUSABLE.values())])
    over = threading.Event()

    def answers(message: Message) -> list[Message]:
        some = list(itertools.islice(told, 1))
        if not some:
            over.set()
        return [*some, good()]

    server, publisher = Server(f"ipc://{tmp_path}/weights"), Publisher(f"ipc://{tmp_path}/notice")
    with saying(server, answers):
        client = WeightClient(server.endpoint, publisher.endpoint, poll_seconds=0.0)
        client.shapes = shapes
        arrived = 0
        while not over.is_set():
            weights = client.poll()
            if weights is not None:
                weights.load_into(NETWORK)
                arrived += 1
        assert arrived > 100
        assert client.unusable > 5
        assert client.digest_mismatches > 5
        assert client._client.malformed["kind"] > 10
        client.close()
    publisher.close()


def good_digest(evaluation: Evaluation) -> Message:
    """The weights of a verdict as a learner would send them, with the digest that they have."""
    judged = evaluation.weights
    assert judged is not None
    fields = {"version": 1, "epoch": 1, "digest": judged.digest}
    return Message("weights", fields, {"buffer": judged.buffer, "manifest": judged.manifest})


def test_weights_of_another_network_again_and_again_end_the_role(tmp_path: Path) -> None:
    other, versions = torch.nn.Linear(4, 2), itertools.count(1)
    server = WeightServer(f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice")
    client = WeightClient(server.weights, server.notice, poll_seconds=0.01)
    client.shapes = {name: tuple(tensor.shape) for name, tensor in NETWORK.state_dict().items()}
    for last in (False, False, False, False, True):
        server.publish(other, next(versions), 1, {})
        before = client.unusable
        if last:
            with pytest.raises(WeightsProblem, match="of another network: they differ in weight"):
                eventually(client.poll, "it never gives up")
        else:
            eventually(lambda n=before: client.poll() is None and client.unusable > n, "they are not noticed")
    client.close()
    server.close()


def test_an_actor_takes_whatever_an_inference_server_says(tmp_path: Path) -> None:
    answer = Message(
        "inferred",
        {"group": 0, "req": 0, "pv": 1, "epoch": 1},
        {"out": np.zeros((4, 6), np.float32), "state": np.zeros((4, 2, 0), np.float32)},
    )
    told = iter([message for message in every_kind(answer) if message.kind != "refused"])
    over = threading.Event()

    def answers(message: Message) -> list[Message]:
        some = list(itertools.islice(told, 1))
        if not some:
            over.set()
        fields = {"group": message.fields["group"], "req": message.fields["req"]}
        mine = [replace(m, fields={**m.fields, **fields}) if m.kind == "inferred" else m for m in some]
        return [*some, *mine, replace(answer, fields={**answer.fields, **fields})]

    server = Server(f"ipc://{tmp_path}/inference")
    with saying(server, answers):
        client = InferenceClient(Client(server.endpoint), HONEST, 1, compress=False, outputs=6)
        while not over.is_set():
            client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
            found = answer_of(client)
            if found.outputs is not None:
                assert found.outputs.shape == (4, 6), "what decides on it would fail"
                assert found.state.shape == (4, 2, 0)
        assert client.unusable >= 5
        assert client._client.malformed["kind"] > 10
        client.close()


def test_an_inference_server_that_only_refuses_ends_the_actor(tmp_path: Path) -> None:
    server = Server(f"ipc://{tmp_path}/inference")
    with saying(server, lambda message: [Message("refused", {"reason": "no"}, {})] * 5):
        client = InferenceClient(Client(server.endpoint), HONEST, 1, compress=False)
        client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
        with pytest.raises(InferenceLost, match="refuses what this actor asks: no"):
            eventually(lambda: client.poll(0.1), "it goes on")
        client.close()


def test_an_actor_takes_whatever_a_shard_says(tmp_path: Path) -> None:
    told = iter([message for message in every_kind() if message.kind != "refused"])
    over = threading.Event()

    def welcome(message: Message) -> Message:
        fields = {"service": "s", "slot": 0, "slots": 1, "epoch": 1, "seq": -1, "credits": 4}
        return Message("welcome", {**fields, "session": message.fields["session"]}, {})

    def answers(message: Message) -> list[Message]:
        some = list(itertools.islice(told, 10))
        if not some:
            over.set()
        if message.kind == "hello":
            return [*some, welcome(message)]
        seq = message.fields["seq"] if message.kind == "chunk" else -1
        return [*some, Message("ack", {"seq": seq, "credits": 1, "durable": True}, {})]

    server = Server(f"ipc://{tmp_path}/ingest")
    with saying(server, answers):
        session = ReplaySession(Client(server.endpoint), HONEST, ActorFigures(HONEST).heartbeat)
        number = 0
        while not over.is_set():
            if session.unacknowledged < 8:
                session.encode(chunk(number))
                number += 1
            session._next_heartbeat = 0.0
            session.poll(0.01)
            if session.welcome is not None:
                ApeXDQN().exploration(apex().parameters, session.welcome.slot, session.welcome.slots, 4)
        assert session._client.malformed["kind"] > 10
        session.close()


def test_a_shard_that_only_refuses_ends_the_actor(tmp_path: Path) -> None:
    server = Server(f"ipc://{tmp_path}/ingest")
    with saying(server, lambda message: [Message("refused", {"reason": "no"}, {})] * 5):
        session = ReplaySession(Client(server.endpoint), HONEST, ActorFigures(HONEST).heartbeat)
        with pytest.raises(ChunkRefused, match="accepts nothing from this actor any more: no"):
            eventually(lambda: session.poll(0.1), "it goes on")
        session._client.close()


# --------------------------------------------------------------------------------------- the status pages


REQUESTS = [
    ("GET", "//[", b"", 404),
    ("GET", "http://[::1", b"", 404),
    ("GET", "/status?" + "x" * 3000, b"", 200),
    ("GET", "/" + "x" * 70_000, b"", 414),
    ("BREW", "/status", b"", 501),
    ("POST", "/checkpoint", b"{", 400),
    ("POST", "/checkpoint", b"[]", 400),
    ("POST", "/checkpoint", b"[" * 4000, 400),
    ("POST", "/checkpoint", b"\xff" * 9, 400),
    ("POST", "/checkpoint", b"{}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1' + b"0" * 400 + b"}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1e999}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": NaN}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": -1}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 12.5}', 202),
    ("POST", "/checkpoint", b"x" * 5000, 413),
    ("POST", "//[", b"{}", 404),
    ("POST", "/defect", b"{}", 500),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), REQUESTS, ids=range(len(REQUESTS)))
def test_every_request_is_answered(method: str, path: str, body: bytes, code: int) -> None:
    def defect(note: Any) -> None:
        raise KeyError("a defect of the role")

    requests = {"/checkpoint": lambda note: wanted_since(note) and None, "/defect": defect}
    with TelemetryServer("learner", 0, lambda: {"updates": 7}, lambda: True, requests=requests) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        # Past the checks of the client library, which would not send it.
        connection.putrequest(method, "/", skip_accept_encoding=True)
        connection._buffer[0] = f"{method} {path} HTTP/1.1".encode()  # type: ignore[attr-defined]
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        assert answer.status == code, answer.read()
        connection.close()
        with urllib.request.urlopen(f"{server.url}/status", timeout=SECONDS) as page:
            assert json.load(page) == {"updates": 7}
