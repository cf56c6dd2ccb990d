"""Whatever a server says that the schema allows: its client counts it and goes on, or ends with a reason."""

import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ChunkRefused, ReplaySession
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.api.learner_status import LearnerStatus
from rljob.inference.client import InferenceClient, InferenceLost
from rljob.ingest.shard_status import ShardStatus
from rljob.learner import shard
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.figures import Figures
from rljob.learner.shard_totals import replay_summary, return_to_go_by, steps_and_raw_frames
from rljob.observation import frames
from rljob.wire import Client, Message, Server

from tests.support.inference import answer_of, apex
from tests.support.odd_peers import CHUNKS, HONEST, chunk, every_kind, saying
from tests.support.waiting import eventually

SEEN = frames((3,), np.float32)


SECONDS = 60.0


def test_a_learner_takes_whatever_a_shard_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "SUBSCRIBE_AGAIN_SECONDS", 0.01)  # it begins anew after each that it can't bear
    subscribed = Message(
        "subscribed",
        {"service": "s", "epoch": 1, "chunks": 4, "length": 10, "frames": CHUNKS.max_frames, "state": "serving"},
        {},
    )
    mirror = Message("mirror", {**chunk(0).to_message().fields, "slot": 0, "gen": 1}, chunk(0).to_message().columns)
    four = np.zeros(4, np.uint32)
    columns: dict[str, Any] = {"slot": four, "gen": four + 1, "prob": np.full(4, 0.1)}
    batch = Message("batch", {"req": 1, "mass": 1.0, "error": 0.0, "shard": 0}, columns)
    serving = {"service": "s", "state": "serving", "priority_total": 1.0, "limiter": {"error": 0.0}}
    stats = Message("stats", {}, {"json": np.frombuffer(json.dumps(serving).encode(), np.uint8)})
    # A message of another job ends the learner, which says so. It is tested where the session is.
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
        config = ReplayClientConfig((server.endpoint,), CHUNKS, 4)
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


def test_a_status_is_read_whole_or_not_at_all() -> None:
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
        json.dumps(LearnerStatus(**figures.section(shards, {})).to_document())
    assert 20 < read < len(texts) - 50, "some are harmless, many are not"


def test_an_actor_takes_whatever_an_inference_server_says(tmp_path: Path) -> None:
    answer = Message(
        "inferred",
        {"group": 0, "req": 0, "pv": 1, "epoch": (1 << 63) - 1},  # later than any that it says by mistake
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
        client = InferenceClient(Client(server.endpoint), HONEST, SEEN, 1, compress=False, outputs=6)
        while not over.is_set():
            client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
            found = answer_of(client)
            if found.outputs is not None:
                assert found.outputs.shape == (4, 6), "what decides on it would fail"
                assert found.state.shape == (4, 2, 0)
        assert client.unusable >= 5
        assert client._client.malformed["kind"] > 10
        client.close()


def test_an_actor_never_acts_with_weights_of_an_earlier_epoch(tmp_path: Path) -> None:
    """As of a server in a learner that was superseded, at an address that led to its successor a moment ago."""
    columns = {"out": np.zeros((4, 6), np.float32), "state": np.zeros((4, 2, 0), np.float32)}
    epochs = itertools.chain([2, 1, 1, 2], itertools.repeat(3))

    def answers(message: Message) -> list[Message]:
        fields = {"group": message.fields["group"], "req": message.fields["req"], "pv": 7, "epoch": next(epochs)}
        return [Message("inferred", fields, columns)]

    server = Server(f"ipc://{tmp_path}/inference")
    with saying(server, answers):
        client = InferenceClient(Client(server.endpoint), HONEST, SEEN, 1, compress=False, outputs=6)
        taken = []
        for _ in range(3):
            client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
            taken.append(answer_of(client).epoch)
        assert (taken, client.unusable) == ([2, 2, 3], 2)
        client.close()


def test_an_inference_server_that_only_refuses_ends_the_actor(tmp_path: Path) -> None:
    server = Server(f"ipc://{tmp_path}/inference")
    with saying(server, lambda message: [Message("refused", {"reason": "no"}, {})] * 5):
        client = InferenceClient(Client(server.endpoint), HONEST, SEEN, 1, compress=False)
        client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
        with pytest.raises(InferenceLost, match="refuses what this actor asks: no"):
            eventually(lambda: client.poll(0.1), "it goes on")
        client.close()


def test_an_actor_takes_whatever_a_shard_says(tmp_path: Path) -> None:
    told = iter([message for message in every_kind() if message.kind != "refused"])
    over = threading.Event()

    def welcome(message: Message) -> Message:
        fields = {"service": "s", "slot": 0, "slots": 1, "life": 1, "epoch": 1, "seq": -1, "credits": 4}
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
        session = ReplaySession(Client(server.endpoint), HONEST, ActorFigures(HONEST).heartbeat, receiver="learner")
        with pytest.raises(ChunkRefused, match="the learner no longer accepts data from this actor: no"):
            eventually(lambda: session.poll(0.1), "it goes on")
        session._client.close()
