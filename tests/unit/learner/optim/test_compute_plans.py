"""However frames and weights lie in memory: the same is learned, and a resumed run goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.compute import Compute
from rljob.checkpoints import store as checkpoint
from rljob.learner import state
from rljob.learner.optim import sharded_optimizer
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.updater import AnyUpdater, make_updater

from tests.unit.learner.learner_builders import (
    ENV_PARAMS,
    IMAGES,
    UnrollBatch,
    UnrollParameters,
    unroll_algorithm,
    unroll_batches,
)

ORDERED = Compute(channels_last=True)
BLOCKS = Compute(channels_last=True, space_to_depth=True)
LOSSES = [
    {"loss_reduction": "Mean", "minibatches": 2},
    {"loss_reduction": "Mean", "epochs": 2, "recurrent": "LSTM", "lstm_units": 6},
    {"kind": "PPO", "epochs": 2, "minibatches": 4},
]


def parameters(kind: str = "IMPALA", **changes: Any) -> UnrollParameters:
    values = {
        "network": "Compact", "hidden_units": 8, "unroll_length": 4, "batch_size": 4, "precision": "FP32",
        "optimizer_epsilon": 1e-3, "learning_rate": 1e-3, "optimizer": "Adam",
    }  # fmt: skip
    return algorithm(kind).parameters.model_validate({**values, **changes})


def updater(
    params: UnrollParameters, plan: Compute, threads: DataParallelThreads | None = None, seed: int = 0
) -> AnyUpdater:
    torch.manual_seed(seed)
    method = algorithm(unroll_algorithm(params))
    network = method.build(IMAGES, params, ENV_PARAMS).compute(plan)
    return make_updater(method, params, network, torch.device("cpu"), threads)


def learn(each: AnyUpdater, data: list[UnrollBatch]) -> None:
    for index, batch in enumerate(data):
        torch.manual_seed(index)  # all shuffle alike
        list(each.updates_from(batch, 0))


def change(each: AnyUpdater, start: dict[str, torch.Tensor]) -> torch.Tensor:
    """What was learned, as one vector in the order of the weights' meaning."""
    return torch.cat([(tensor - start[name]).ravel() for name, tensor in each.online.state_dict().items()])


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
@pytest.mark.parametrize("changes", LOSSES)
def test_every_way_learns_the_same(optimizer: str, changes: dict[str, Any]) -> None:
    params = parameters(**changes, optimizer=optimizer)
    data = unroll_batches(params, 3, IMAGES)
    start = {name: tensor.clone() for name, tensor in updater(params, Compute()).online.state_dict().items()}

    def learned(plan: Compute, threads: DataParallelThreads | None = None) -> torch.Tensor:
        each = updater(params, plan, threads)
        learn(each, data)
        return change(each, start)

    plain = learned(Compute())
    for plan in (ORDERED, BLOCKS):
        torch.testing.assert_close(learned(plan), plain, rtol=1e-2, atol=2e-5)
        torch.testing.assert_close(learned(plan, DataParallelThreads(2)), plain, rtol=1e-2, atol=2e-5)
        rounded = learned(Compute("bf16", channels_last=True, space_to_depth=plan.space_to_depth))
        assert torch.nn.functional.cosine_similarity(rounded, plain, dim=0) > 0.5


@pytest.mark.parametrize("plan", [ORDERED, BLOCKS])
@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
@pytest.mark.parametrize("count", [1, 2])
def test_resume_is_exact(
    tmp_path: Path, optimizer: str, plan: Compute, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_optimizer, "FEW_NUMBERS", 0)
    threads = DataParallelThreads(count)
    params = parameters(optimizer=optimizer, rmsprop_momentum=0.5, evaluation_weights_decay=0.9, loss_reduction="Mean")
    data = unroll_batches(params, 6, IMAGES)
    straight = updater(params, plan, threads)
    learn(straight, data[:3])
    path, _ = checkpoint.write(tmp_path, "step-3", state.capture(straight), {})
    resumed = updater(params, plan, threads, seed=99)
    state.restore(resumed, checkpoint.read(path), straight.updates)
    for each in (straight, resumed):
        learn(each, data[3:])
    first, second = state.capture(straight), state.capture(resumed)
    assert all(torch.equal(first[name], second[name]) for name in first)  # bit for bit
