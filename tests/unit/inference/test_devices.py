"""A served network gives on every device what a processor gives, whatever weights it was given in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.inference.batching import Request
from rljob.inference.model import ServedModel

from tests.support.devices import DEVICES, needs_cuda
from tests.support.inference import Setup, apex, impala


def requests(setup: Setup, count: int, memory: int) -> list[Request]:
    random = np.random.default_rng(count)
    shape = (3, *setup.spec.observation_shape)
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
            (expected, state), (outputs, after) = here.evaluate(asked), there.evaluate(asked)
            np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(after, state, rtol=1e-4, atol=1e-5)
            kept.append((outputs, expected))
    for outputs, expected in kept:  # what was answered is not written over by later batches
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@needs_cuda
@pytest.mark.parametrize("arithmetic", ["tf32", "fp32"])
def test_on_cuda_products_are_rounded_as_the_plan_says(arithmetic: Arithmetic) -> None:
    setup = apex()
    plan = Compute(arithmetic)
    ServedModel(setup.network(), setup.spec, setup.method.infer, 0, plan, 8, torch.device("cuda"))
    assert torch.backends.cuda.matmul.allow_tf32 is (arithmetic == "tf32")
    assert torch.backends.cudnn.allow_tf32 is (arithmetic == "tf32")
