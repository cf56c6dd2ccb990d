"""One inference server and its clients over real sockets: batches, repeats, refusals, weights, and what is counted.

A served network gives the same on every device and after every change of weights, also inside the learner.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting import ActorIdentity
from rljob.algorithms.compute import Arithmetic, Compute, DeviceCompute, Measured
from rljob.algorithms.registry import algorithm
from rljob.inference.client import InferenceClient, InferenceLost
from rljob.inference.model import Request, ServedModel, served_model
from rljob.inference.server import InferenceServer, InferenceThread, LatestWeights
from rljob.observation import frames
from rljob.threads import ThreadEnded, check_threads
from rljob.weights.flat import snapshot
from rljob.weights.server import WeightServer
from rljob.wire import Client, Message

from tests.support.devices import DEVICES, needs_cuda
from tests.support.inference import Given, Setup, answer_of, apex, impala, serving
from tests.support.jobs import job_of
from tests.support.specs import spec_of
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
def connect(closes: Any) -> Connect:
    """Makes clients, of a server and by the name of their actor."""

    def a_client(server: InferenceServer, name: str = "actor-0", columns: Any = SPEC.columns) -> InferenceClient:
        own = ActorIdentity(name, "1", 8)
        return closes(InferenceClient(Client(server.endpoint), own, columns, 2, compress=False))

    return a_client


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


def test_a_repeated_request_gets_the_answer_it_had(server: InferenceServer, weights: Given, closes: Any) -> None:
    """Newer weights and other observations under the same number change nothing: no actor acts twice."""
    peer = closes(Client(server.endpoint))

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


def test_a_request_repeated_while_it_waits_is_computed_once_and_answered_to_the_new_peer(closes: Any) -> None:
    server = a_server(Given(), 30.0)
    # Another actor that asked lately keeps the batch waiting.
    other, first, second = (closes(Client(server.endpoint)) for _ in range(3))

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


def test_a_lane_holds_one_request(server: InferenceServer, connect: Connect) -> None:
    client = connect(server)
    assert client.take(0) is None
    ask(client, observations(1))
    with pytest.raises(RuntimeError, match="in flight"):
        ask(client, observations(1))


def requests(setup: Setup, count: int, memory: int) -> list[Request]:
    random, shape = np.random.default_rng(count), (3, *setup.spec.observation_shape)
    zeros = np.zeros((3, 2, memory), np.float32)
    return [
        Request(f"actor-{k}", "life", 0, k, random.normal(size=shape).astype(np.float32), zeros, 0.0)
        for k in range(count)
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("setup", [apex(), impala()], ids=["apex", "impala"])
def test_answers_are_a_processors(device: torch.device, setup: Setup) -> None:
    here, there = setup.model(), setup.model(device=device)
    memory = setup.method.memory_units(setup.parameters)
    kept = []
    for version in (1, 2, 3):
        for model in (here, there):
            model.load(setup.weights(version))
        for count in (1, 4, 2):
            asked = requests(setup, count, memory)
            kept.append((*there.evaluate(asked), *here.evaluate(asked)))
    for outputs, after, expected, state in kept:  # and what was answered is not written over by later batches
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(after, state, rtol=1e-4, atol=1e-5)


def test_a_server_measures_where_it_is_given_two_devices_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """There is one device here, for which torch has two names."""
    actors = {"replicas": 3, "envsPerActor": 8, "inference": "Central"}
    job = job_of(
        {"preset": "CartPoleApeX", "actors": actors, "inference": {"replicas": 2, "maxBatchSize": 64}}, "cartpole"
    )
    spec = apex().spec
    with caplog.at_level(logging.INFO):
        model = served_model(job, spec, [torch.device("cpu:0"), torch.device("cpu")])
    assert {"cpu:0 fp32", "cpu fp32"} <= set(model.acting.measured.seconds)
    assert model.acting.document()["compute"] in model.acting.measured.seconds
    assert "for a batch of 16)" in caplog.text, "two of three actors may ask one of the servers at once"


@pytest.mark.skipif(not hasattr(torch.ops.onednn, "qconv2d_pointwise"), reason="torch has no int8 convolutions here")
@pytest.mark.parametrize("precision", ["FP32", "INT8"])
def test_a_server_acts_in_int8_where_the_job_says_so(precision: str) -> None:
    actors = {"replicas": 1, "envsPerActor": 8, "inference": "Central", "precision": precision}
    job = job_of({"preset": "PongApeX", "inference": {"replicas": 1, "maxBatchSize": 16}, "actors": actors}, "pong")
    spec = spec_of("Pong", (42, 42), "uint8", 4, 3)
    model = served_model(job, spec, [torch.device("cpu")])
    params, env = job.spec.algorithm.parameters, job.spec.environment.parameters
    model.load(snapshot(algorithm("ApeXDQN").build(spec, params, env), 1, 1, {}))
    shown = np.random.default_rng(0).integers(0, 256, (8, *spec.observation_shape), np.uint8)
    given, _ = model.evaluate([Request("actor-0", "life", 0, 0, shown, np.zeros((8, 2, 0), np.float32), 0.0)])
    assert np.isfinite(given).all()
    assert model.acting.document()["compute"].split()[1] == precision.lower()


@needs_cuda
@pytest.mark.parametrize("arithmetic", ["tf32", "fp32"])
def test_on_cuda_products_are_rounded_as_the_plan_says(arithmetic: Arithmetic) -> None:
    setup = apex()
    place = DeviceCompute(torch.device("cuda"), Compute(arithmetic))
    ServedModel(setup.network(), setup.spec, setup.method, 0, Measured(place, {}), 8)
    assert torch.backends.cuda.matmul.allow_tf32 is (arithmetic == "tf32")
    assert torch.backends.cudnn.allow_tf32 is (arithmetic == "tf32")


def test_published_weights_are_taken_by_reference_and_once() -> None:
    setup, base = apex(), f"inproc://{uuid.uuid4().hex}"
    published = WeightServer(base + "w", base + "n")
    source = LatestWeights(published)
    with closing(published):
        assert source.poll() is None
        published.publish(setup.network(), 1, 1, {})
        assert source.poll() is published.latest
        assert source.poll() is None
        published.publish(setup.network(), 2, 1, {})
        published.publish(setup.network(), 3, 1, {})
        assert source.poll().version == 3


def test_what_ends_the_server_ends_the_learner() -> None:
    base = f"inproc://{uuid.uuid4().hex}"
    published = WeightServer(base + "w", base + "n")
    server = InferenceServer(base + "i", apex().model(), LatestWeights(published), 0.0)
    with closing(published), InferenceThread(server) as serving:
        check_threads()
        published.publish(impala().network(), 1, 1, {})  # another network
        eventually(lambda: serving.status()["state"] == "Stopped", "it went on with weights of another network")
        time.sleep(0.1)
        with pytest.raises(ThreadEnded, match=r"thread inference has ended: OtherNetwork: .* another network"):
            check_threads()
