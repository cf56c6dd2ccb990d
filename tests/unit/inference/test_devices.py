"""A served network gives the same on every device and after every change of weights, also inside the learner."""

import logging
import time
import uuid
from contextlib import closing

import numpy as np
import pytest
import torch
from rljob.algorithms.compute import Arithmetic, Compute, DeviceCompute, Measured
from rljob.algorithms.registry import algorithm
from rljob.inference.batching import Request
from rljob.inference.model import ServedModel, served_model
from rljob.inference.server import InferenceServer, InferenceThread, LatestWeights
from rljob.threads import ThreadEnded, check_threads
from rljob.weights.exchange import WeightServer
from rljob.weights.flat import snapshot

from tests.support.devices import DEVICES, needs_cuda
from tests.support.inference import Setup, apex, impala
from tests.support.jobs import job_of
from tests.support.specs import spec_of
from tests.support.waiting import eventually


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
