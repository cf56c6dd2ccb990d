"""One inference server and its clients over real sockets: batches, repeats, refusals, weights, and what is counted."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import zmq
from rljob.acting.identity import ActorIdentity
from rljob.inference.client import InferenceClient, InferenceLost
from rljob.inference.server import InferenceServer
from rljob.observation import frames
from rljob.wire import Client, Message

from tests.support.inference import answer_of, apex, impala, serving
from tests.support.waiting import eventually
from tests.support.weights import Given

SETUP = apex()
SPEC = SETUP.spec
NO_MEMORY = np.zeros((4, 2, 0), np.float32)


@pytest.fixture
def weights() -> Given:
    return Given(SETUP.weights(1))


@pytest.fixture
def server(weights: Given) -> Iterator[InferenceServer]:
    made = InferenceServer(f"inproc://{uuid.uuid4().hex}", SETUP.model(16), weights, 0.02)
    with serving(made):
        yield made


def a_client(server: InferenceServer, name: str = "actor-0", incarnation: str = "1", lanes: int = 2) -> InferenceClient:
    return InferenceClient(
        Client(server.endpoint), ActorIdentity(name, incarnation, 8), SPEC.columns, lanes, compress=False
    )


def observations(seed: int, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *SPEC.observation_shape)).astype(np.float32)


def no_memory(rows: np.ndarray) -> np.ndarray:
    return np.zeros((len(rows), 2, 0), np.float32)


def poll_for(client: InferenceClient, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.poll(0.1)


def expected(rows: np.ndarray, version: int = 1) -> np.ndarray:
    network = SETUP.network()
    SETUP.weights(version).load_into(network)
    with torch.no_grad():
        return network(torch.as_tensor(rows)).numpy()


def test_many_clients_each_get_their_own_rows(server: InferenceServer) -> None:
    clients = [a_client(server, f"actor-{k}") for k in range(6)]
    for turn in range(5):
        asked = [observations(100 * turn + k, 1 + k) for k in range(6)]
        for client, rows in zip(clients, asked, strict=True):
            client.submit(0, rows, no_memory(rows))
        for client, rows in zip(clients, asked, strict=True):
            np.testing.assert_allclose(answer_of(client).outputs, expected(rows), rtol=1e-5, atol=1e-6)
    status = server.status()
    assert status["requests_total"] == 30
    assert status["observations_total"] == 5 * sum(range(1, 7))
    assert status["batches_total"] == sum(status["buckets"].values()) < 30, "nothing was ever computed together"
    assert set(map(int, status["buckets"])) <= {4, 8, 16}
    assert 0 < status["bucket_fill"] <= 1
    assert 0 < status["latency_p50_seconds"] <= status["latency_p99_seconds"] < 10
    for client in clients:
        client.close()


def test_nothing_is_answered_before_the_learner_was_heard() -> None:
    """A server started again in the middle of a run must not have the actors play at random until it has the weights."""
    silent = Given()
    silent.answered = False
    with serving(InferenceServer(f"inproc://{uuid.uuid4().hex}", SETUP.model(16), silent, 0.02)) as server:
        client = a_client(server)
        client.submit(0, observations(3), no_memory(observations(3)))
        poll_for(client, 0.3)
        assert client.take(0) is None
        silent.next, silent.answered = SETUP.weights(1), True
        assert answer_of(client).version == 1
        client.close()


def test_a_repeated_request_gets_the_answer_it_had(server: InferenceServer, weights: Given) -> None:
    """Newer weights and other observations under the same number change nothing: no actor acts twice."""
    peer = Client(server.endpoint)
    fields = {"actor": "a", "inc": "1", "group": 0, "req": 5}
    first = Message("infer", fields, {"vector": observations(1), "state": NO_MEMORY})

    def ask(message: Message) -> Message:
        eventually(lambda: peer.send(message))
        arrived = peer.receive(60)
        assert arrived is not None
        return arrived

    once = ask(first)
    weights.next = SETUP.weights(2)
    eventually(lambda: server.status()["policy_version"] == 2)
    again = ask(Message("infer", fields, {"vector": observations(2), "state": NO_MEMORY}))
    assert (again.fields["req"], again.fields["pv"]) == (5, 1)
    np.testing.assert_array_equal(once.columns["out"], again.columns["out"])
    new = ask(Message("infer", {**fields, "req": 6}, {"vector": observations(2), "state": NO_MEMORY}))
    assert new.fields["pv"] == 2
    peer.send(first)  # overtaken on its way: it is no longer of interest
    assert peer.receive(0.2) is None
    other_life = ask(Message("infer", {**fields, "inc": "2"}, {"vector": observations(3), "state": NO_MEMORY}))
    np.testing.assert_allclose(other_life.columns["out"], expected(observations(3), 2), rtol=1e-5, atol=1e-6)
    status = server.status()
    assert (status["requests_total"], status["repeated_requests_total"], status["stale_requests_total"]) == (3, 1, 1)
    peer.close()


def test_a_request_repeated_while_it_waits_is_computed_once_and_answered_to_the_new_peer() -> None:
    server = InferenceServer(f"inproc://{uuid.uuid4().hex}", SETUP.model(), Given(), 30.0)
    # Another actor that asked lately keeps the batch waiting.
    other, first, second = (Client(server.endpoint) for _ in range(3))

    def infer(actor: str, number: int) -> Message:
        return Message(
            "infer",
            {"actor": actor, "inc": "1", "group": 0, "req": number},
            {"vector": observations(1), "state": NO_MEMORY},
        )

    other.send(infer("other", 0))
    eventually(lambda: (server.turn(), server.figures.requests == 1)[1])
    assert other.receive(60) is not None
    first.send(infer("a", 0))
    eventually(lambda: (server.turn(), server.figures.requests == 2)[1])
    second.send(infer("a", 0))
    eventually(lambda: (server.turn(), server.figures.repeats == 1)[1])
    other.send(infer("other", 1))
    eventually(lambda: (server.turn(), server.figures.requests == 3)[1])
    assert second.receive(60) is not None
    assert first.receive(0.1) is None
    assert server.figures.empty_answers == 3, "it has no weights yet, and says so"
    for socket in (other, first, second):
        socket.close()
    stop = threading.Event()
    stop.set()
    server.run(stop)


def test_without_weights_the_answer_says_so() -> None:
    lonely = InferenceServer(f"inproc://{uuid.uuid4().hex}", SETUP.model(), Given(), 0.0)
    with serving(lonely):
        client = a_client(lonely)
        client.submit(1, observations(1), NO_MEMORY)
        arrived = answer_of(client, 1)
        assert (arrived.outputs, arrived.version) == (None, 0)
        client.close()
    assert lonely.status()["state"] == "Stopped"


def test_what_this_network_cannot_see_is_refused_with_the_reason(server: InferenceServer) -> None:
    client = a_client(server)
    client.submit(0, np.zeros((4, 1, 9), np.float32), NO_MEMORY)
    said = r"vector is float32\[4, 1, 9\], expected float32\[4, 1, 4\], as this network sees it"
    with pytest.raises(InferenceLost, match=said):
        poll_for(client, 15)
    client.close()
    picture = ActorIdentity("actor-2", "1", 8), frames((4,), np.float32)
    other = InferenceClient(Client(server.endpoint), *picture, 2, compress=False)
    other.submit(0, observations(1), NO_MEMORY)
    with pytest.raises(InferenceLost, match="frames; this network sees vector"):
        poll_for(other, 15)
    other.close()
    big = a_client(server, "actor-1")
    big.submit(0, observations(1, 17), np.zeros((17, 2, 0), np.float32))
    eventually(lambda: (big.poll(0.05), big.refused)[1])
    assert server.status()["refused_requests_total"] >= 6
    big.close()


def test_a_memory_goes_with_the_request_and_comes_back(server: InferenceServer) -> None:
    setup = impala(recurrent="LSTM")
    network = setup.network()
    setup.weights(4).load_into(network)
    remembering = InferenceServer(f"inproc://{uuid.uuid4().hex}", setup.model(), Given(setup.weights(4)), 0.0)
    with serving(remembering):
        client = a_client(remembering)
        state = np.zeros((4, 2, 16), np.float32)
        for turn in range(3):
            rows = observations(turn)
            outputs, after = setup.method.infer(network, rows, state)
            client.submit(0, rows, state)
            arrived = answer_of(client)
            np.testing.assert_allclose(arrived.outputs, outputs.numpy(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(arrived.state, after.numpy(), rtol=1e-5, atol=1e-6)
            assert not np.array_equal(arrived.state, state)
            state = arrived.state.copy()
        client.submit(0, rows, state[:, :, :8])
        with pytest.raises(InferenceLost, match=r"state is \[4, 2, 8\]; this network remembers \['n', 2, 16\]"):
            poll_for(client, 15)
        client.close()


def test_random_bytes_are_counted_and_disturb_nobody(
    weights: Given, tmp_path: Path, any_seed: Callable[[int], int]
) -> None:
    noise = np.random.default_rng(any_seed(1))
    server = InferenceServer(f"ipc://{tmp_path}/inference", SETUP.model(), weights, 0.002)
    with serving(server):
        stranger = zmq.Context.instance().socket(zmq.DEALER)
        stranger.linger = 0
        stranger.connect(server.endpoint)
        for size in (0, 1, 17, 600, 5000) * 4:
            stranger.send_multipart([noise.bytes(size) for _ in range(1 + size % 4)])
        client = a_client(server)
        for turn in range(5):
            client.submit(0, observations(turn), NO_MEMORY)
            np.testing.assert_allclose(answer_of(client).outputs, expected(observations(turn)), rtol=1e-5, atol=1e-6)
        eventually(lambda: sum(server.status()["malformed"].values()) == 20)
        assert stranger.poll(1000), "the stranger is told"
        assert server.status()["requests_total"] == 5
        stranger.close()
        client.close()


def test_a_lane_holds_one_request(server: InferenceServer) -> None:
    client = a_client(server)
    with pytest.raises(RuntimeError, match="asked for nothing"):
        client.take(0)
    client.submit(0, observations(1), NO_MEMORY)
    with pytest.raises(RuntimeError, match="in flight"):
        client.submit(0, observations(1), NO_MEMORY)
    client.close()
