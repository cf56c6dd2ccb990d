"""One inference server and its clients over real sockets: batches, repeats, refusals, weights, and what is counted."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from rljob.acting.identity import ActorIdentity
from rljob.inference.client import InferenceClient, InferenceLost
from rljob.inference.server import InferenceServer
from rljob.observation import frames
from rljob.wire import Client, Message

from tests.support.inference import Given, Setup, answer_of, apex, impala, serving
from tests.support.waiting import eventually

SETUP = apex()
SPEC = SETUP.spec
NO_MEMORY = np.zeros((4, 2, 0), np.float32)


@pytest.fixture
def weights() -> Given:
    return Given(SETUP.weights(1))


def a_server(weights: Given, latency: float = 0.0, largest: int = 32, setup: Setup = SETUP) -> InferenceServer:
    return InferenceServer(f"inproc://{uuid.uuid4().hex}", setup.model(largest), weights, latency)


@pytest.fixture
def server(weights: Given) -> Iterator[InferenceServer]:
    with serving(a_server(weights, 0.02, 16)) as made:
        yield made


Connect = Callable[..., InferenceClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, of a server and by the name of their actor, and closes them."""
    made: list[InferenceClient] = []

    def a_client(server: InferenceServer, name: str = "actor-0", columns: Any = SPEC.columns) -> InferenceClient:
        made.append(InferenceClient(Client(server.endpoint), ActorIdentity(name, "1", 8), columns, 2, compress=False))
        return made[-1]

    yield a_client
    for each in made:
        each.close()


def observations(seed: int, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *SPEC.observation_shape)).astype(np.float32)


def ask(client: InferenceClient, rows: np.ndarray) -> None:
    client.submit(0, rows, np.zeros((len(rows), 2, 0), np.float32))


def poll_for(client: InferenceClient, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.poll(0.1)


def expected(rows: np.ndarray, version: int = 1) -> np.ndarray:
    network = SETUP.network()
    SETUP.weights(version).load_into(network)
    with torch.no_grad():
        return network(torch.as_tensor(rows)).numpy()


def test_many_clients_each_get_their_own_rows(server: InferenceServer, connect: Connect) -> None:
    clients = [connect(server, f"actor-{k}") for k in range(6)]
    for turn in range(5):
        asked = [observations(100 * turn + k, 1 + k) for k in range(6)]
        for client, rows in zip(clients, asked, strict=True):
            ask(client, rows)
        for client, rows in zip(clients, asked, strict=True):
            np.testing.assert_allclose(answer_of(client).outputs, expected(rows), rtol=1e-5, atol=1e-6)
    status = server.status()
    assert (status["requests_total"], status["observations_total"]) == (30, 5 * sum(range(1, 7)))
    assert status["batches_total"] == sum(status["buckets"].values()) < 30, "nothing was ever computed together"
    assert set(map(int, status["buckets"])) <= {4, 8, 16}
    assert 0 < status["bucket_fill"] <= 1
    assert 0 < status["latency_p50_seconds"] <= status["latency_p99_seconds"] < 10


def test_nothing_is_answered_before_the_learner_was_heard(connect: Connect) -> None:
    """A server started again in the middle of a run must not have the actors play at random until it has the weights."""
    silent = Given()
    silent.answered = False
    with serving(a_server(silent, 0.02, 16)) as server:
        client = connect(server)
        ask(client, observations(3))
        poll_for(client, 0.3)
        assert client.take(0) is None
        silent.next, silent.answered = SETUP.weights(1), True
        assert answer_of(client).version == 1


def infer(actor: str, number: int, seed: int = 1, life: str = "1") -> Message:
    fields = {"actor": actor, "inc": life, "group": 0, "req": number}
    return Message("infer", fields, {"vector": observations(seed), "state": NO_MEMORY})


def test_a_repeated_request_gets_the_answer_it_had(server: InferenceServer, weights: Given) -> None:
    """Newer weights and other observations under the same number change nothing: no actor acts twice."""
    peer = Client(server.endpoint)

    def answer_to(message: Message) -> Any:
        eventually(lambda: peer.send(message))
        return peer.receive(60)

    once = answer_to(infer("a", 5))
    weights.next = SETUP.weights(2)
    eventually(lambda: server.status()["policy_version"] == 2)
    again = answer_to(infer("a", 5, seed=2))
    assert (again.fields["req"], again.fields["pv"]) == (5, 1)
    np.testing.assert_array_equal(once.columns["out"], again.columns["out"])
    assert answer_to(infer("a", 6, seed=2)).fields["pv"] == 2
    peer.send(infer("a", 5))  # overtaken on its way: it is no longer of interest
    assert peer.receive(0.2) is None
    other_life = answer_to(infer("a", 5, seed=3, life="2"))
    np.testing.assert_allclose(other_life.columns["out"], expected(observations(3), 2), rtol=1e-5, atol=1e-6)
    status = server.status()
    assert (status["requests_total"], status["repeated_requests_total"], status["stale_requests_total"]) == (3, 1, 1)
    peer.close()


def test_a_request_repeated_while_it_waits_is_computed_once_and_answered_to_the_new_peer() -> None:
    server = a_server(Given(), 30.0)
    # Another actor that asked lately keeps the batch waiting.
    other, first, second = (Client(server.endpoint) for _ in range(3))

    def arrives(message: Message, peer: Client, count: int, repeats: int = 0) -> None:
        peer.send(message)
        eventually(lambda: (server.turn(), (server.figures.requests, server.figures.repeats) == (count, repeats))[1])

    arrives(infer("other", 0), other, 1)
    assert other.receive(60) is not None
    arrives(infer("a", 0), first, 2)
    arrives(infer("a", 0), second, 2, repeats=1)
    arrives(infer("other", 1), other, 3, repeats=1)
    assert second.receive(60) is not None
    assert first.receive(0.1) is None
    assert server.figures.empty_answers == 3, "it has no weights yet, and says so"
    for socket in (other, first, second):
        socket.close()
    stop = threading.Event()
    stop.set()
    server.run(stop)


def test_without_weights_the_answer_says_so(connect: Connect) -> None:
    lonely = a_server(Given())
    with serving(lonely):
        client = connect(lonely)
        client.submit(1, observations(1), NO_MEMORY)
        arrived = answer_of(client, 1)
        assert (arrived.outputs, arrived.version) == (None, 0)
    assert lonely.status()["state"] == "Stopped"


def test_what_this_network_cannot_see_is_refused_with_the_reason(server: InferenceServer, connect: Connect) -> None:
    said = r"vector is float32\[4, 1, 9\], expected float32\[4, 1, 4\], as this network sees it"
    for client, rows, reason in (
        (connect(server), np.zeros((4, 1, 9), np.float32), said),
        (connect(server, "actor-2", frames((4,), np.float32)), observations(1), "frames; this network sees vector"),
    ):
        ask(client, rows)
        with pytest.raises(InferenceLost, match=reason):
            poll_for(client, 15)
    big = connect(server, "actor-1")
    ask(big, observations(1, 17))
    eventually(lambda: (big.poll(0.05), big.refused)[1])
    assert server.status()["refused_requests_total"] >= 6


def test_a_memory_of_another_network_is_refused(connect: Connect) -> None:
    """That a memory goes with the request and comes back is shown where central inference equals local inference."""
    setup = impala(recurrent="LSTM")
    with serving(a_server(Given(setup.weights(4)), setup=setup)) as remembering:
        client = connect(remembering)
        client.submit(0, observations(0), np.zeros((4, 2, 8), np.float32))
        with pytest.raises(InferenceLost, match=r"state is \[4, 2, 8\]; this network remembers \['n', 2, 16\]"):
            poll_for(client, 15)


def test_random_bytes_are_counted_and_disturb_nobody(
    weights: Given, tmp_path: Path, any_seed: Callable[[int], int], connect: Connect
) -> None:
    noise = np.random.default_rng(any_seed(1))
    server = InferenceServer(f"ipc://{tmp_path}/inference", SETUP.model(), weights, 0.002)
    with serving(server), zmq.Context.instance().socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(server.endpoint)
        for size in (0, 1, 17, 600, 5000) * 4:
            stranger.send_multipart([noise.bytes(size) for _ in range(1 + size % 4)])
        client = connect(server)
        for turn in range(5):
            ask(client, observations(turn))
            np.testing.assert_allclose(answer_of(client).outputs, expected(observations(turn)), rtol=1e-5, atol=1e-6)
        eventually(lambda: sum(server.status()["malformed"].values()) == 20)
        assert stranger.poll(1000), "the stranger is told"
        assert server.status()["requests_total"] == 5


def test_a_lane_holds_one_request(server: InferenceServer, connect: Connect) -> None:
    client = connect(server)
    with pytest.raises(RuntimeError, match="asked for nothing"):
        client.take(0)
    ask(client, observations(1))
    with pytest.raises(RuntimeError, match="in flight"):
        ask(client, observations(1))
