"""However frames and weights lie in memory: the same is learned, and a resumed run goes on exactly."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.compute import Compute
from rljob.checkpoints import store as checkpoint
from rljob.learner import state
from rljob.learner.optim import sharded_optimizer
from rljob.learner.optim.on_device import LossScale
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import AnyUpdater

from tests.unit.learner.learner_builders import (
    CPU,
    IMAGES,
    OPTIMIZERS,
    assert_equal,
    batches_of,
    image_parameters,
    parameters as transition_parameters,
    unroll_batches,
    updater,
)

ORDERED = Compute(channels_last=True)
BLOCKS = Compute(channels_last=True, space_to_depth=True)
LOSSES = [
    {"loss_reduction": "Mean", "minibatches": 2},
    {"loss_reduction": "Mean", "epochs": 2, "recurrent": "LSTM", "lstm_units": 6},
    {"kind": "PPO", "epochs": 2, "minibatches": 4},
]


def parameters(kind: str = "IMPALA", **changes: Any) -> Any:
    return image_parameters(kind, **{"optimizer_epsilon": 1e-3, "optimizer": "Adam", **changes})


def learn(each: AnyUpdater, data: list[Any], first_step: int = 0) -> None:
    for index, batch in enumerate(data):
        list(each.updates_from(batch, first_step + 10 * index))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("changes", LOSSES)
def test_every_way_learns_the_same(optimizer: str, changes: dict[str, Any]) -> None:
    params = parameters(**changes, optimizer=optimizer)
    start = updater(params, IMAGES).online.state_dict()

    def learned(plan: Compute, threads: DataParallelThreads | None = None) -> torch.Tensor:
        """What was learned, as one vector in the order of the weights' meaning."""
        each = updater(params, IMAGES, plan=plan, threads=threads)
        torch.manual_seed(2)  # all shuffle alike
        learn(each, unroll_batches(params, 3, IMAGES))
        return torch.cat([(tensor - start[name]).ravel() for name, tensor in each.online.state_dict().items()])

    plain = learned(Compute())
    for plan in (ORDERED, BLOCKS):
        for threads in (None, DataParallelThreads(2)):
            torch.testing.assert_close(learned(plan, threads), plain, rtol=1e-2, atol=2e-5)
        rounded = learned(Compute("bf16", channels_last=True, space_to_depth=plan.space_to_depth))
        assert torch.nn.functional.cosine_similarity(rounded, plain, dim=0) > 0.5


FALLING = {"optimizer": "Adam", "learning_rate_final": 1e-4, "learning_rate_decay_steps": 100}
EVERYTHING = {"rmsprop_momentum": 0.5, "evaluation_weights_decay": 0.9, "loss_reduction": "Mean"}
RESUMED = [
    *(
        (parameters(optimizer=optimizer, **EVERYTHING), plan, count)
        for plan in (ORDERED, BLOCKS)
        for optimizer in OPTIMIZERS
        for count in (1, 2)
    ),
    (parameters("PPO", epochs=2, minibatches=4, **FALLING), ORDERED, 1),
    (parameters(recurrent="LSTM", lstm_units=6, minibatches=2, **FALLING), ORDERED, 1),
    (parameters(epochs=2, target_policy_kl=1e-4, **FALLING), ORDERED, 1),
    (transition_parameters(layer_norm=True), Compute("fp16", channels_last=True), 1),
    (transition_parameters(evaluation_weights_decay=0.95, **FALLING), Compute(), 1),
]


@pytest.mark.parametrize(("params", "plan", "count"), RESUMED)
def test_resume_is_exact(
    tmp_path: Path, params: Any, plan: Compute, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_optimizer, "FEW_NUMBERS", 0)
    data = batches_of(params, 6, IMAGES)
    straight, resumed = (updater(params, IMAGES, seed, plan, DataParallelThreads(count)) for seed in (0, 99))
    for each in (straight, resumed) if plan.arithmetic == "fp16" else ():
        each.loss_scale = LossScale(CPU, 2.0**30, growth_updates=2)
    learn(straight, data[:3])
    path, _ = checkpoint.write(tmp_path, "step-3", state.capture(straight), {})
    saved_at = straight.updates
    learn(straight, data[3:], 30)
    state.restore(resumed, checkpoint.read(path), saved_at)
    learn(resumed, data[3:], 30)
    assert resumed.updates == straight.updates > saved_at
    kept = state.capture(straight)
    assert ({"loss_scale.factor", "loss_scale.good_updates"} <= kept.keys()) == (plan.arithmetic == "fp16")
    assert_equal(state.capture(resumed), kept)  # bit for bit, the random state included
