"""An algorithm, a network and parameters that this package has never heard of, through every loop that uses them.

The example's quantile regression on transitions, and a loss of unrolls that follows a schedule; neither is registered.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.batches import LossResult, UnrollBatch, minibatches_of_steps
from rljob.algorithms.compute import Compute, DeviceCompute, Measured
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.registry import algorithm
from rljob.api import ImpalaParameters
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.evaluation.player import judged_policy
from rljob.inference.model import Request, ServedModel
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import make_updater, trial_update
from rljob.weights.flat import snapshot

from tests.support.paths import PLUGINS
from tests.unit.learner.learner_builders import CPU, ENV_PARAMS, SPEC, batches, unroll_batches, unroll_parameters
from tests.unit.learner.test_non_finite import learner, ready


def quantiles() -> tuple[Any, Any]:
    """The example's algorithm, and small parameters of it."""
    method = algorithm(f"{PLUGINS / 'qr_dqn.py'}:QRDQN")
    values = {"quantiles": 5, "hidden_units": 16, "batch_size": 16, "learning_rate": 1e-2, "optimizer_epsilon": 1e-8}
    return method, method.parameters(**values, publish_interval=5, target_update_interval=3, precision="FP32")


class FallingEntropy(IMPALA):
    """Its loss follows a schedule over the steps of the run."""

    metrics = ("entropy_cost",)

    def minibatches(self, params: ImpalaParameters, online: Any, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        flat = torch.zeros_like(batch.reward)
        yield from minibatches_of_steps(batch._replace(advantage=flat, value_target=flat), 1, 2)

    def loss(self, params: ImpalaParameters, online: Any, batch: UnrollBatch) -> LossResult:
        logits, values, _ = online(batch.observation)
        log_policy = logits.log_softmax(1)
        cost = 0.1 * (1.0 - batch.steps / 1000).clamp(min=0.0)
        entropy = -(log_policy.exp() * log_policy).sum(1).mean()
        return LossResult(-cost * entropy + 0.0 * values.sum(), {"entropy_cost": cost})


def updater(method: Any, params: Any, threads: DataParallelThreads | None = None) -> Any:
    torch.manual_seed(0)
    return make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU, threads)


def test_it_learns_on_one_core_and_on_two() -> None:
    given = quantiles()
    alone, divided = updater(*given), updater(*given, DataParallelThreads(2))
    assert alone.figures == ("loss", "gradient_norm", "q_taken", "quantile_spread")
    (batch,) = batches(1)
    batch = batch._replace(discount=torch.zeros(16))
    losses = []
    for update in range(200):
        priorities, figures = alone.update(batch, 0)
        also_priorities, also_figures = divided.update(batch, 0)
        losses.append(float(figures[0]))
        if update < 5:
            torch.testing.assert_close(also_priorities, priorities, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(also_figures[:2], figures[:2], rtol=1e-4, atol=1e-5)
    assert losses[-1] < 0.2 * losses[0]
    assert float(priorities.mean()) < 0.3, "priorities are made of its errors, which have become small"


@pytest.mark.parametrize("threads", [None, 2])
def test_a_loss_knows_how_far_the_run_is(threads: int | None) -> None:
    method, params = FallingEntropy(), unroll_parameters()
    one = updater(method, params, threads and DataParallelThreads(threads))
    (batch,) = unroll_batches(params, 1)
    costs = [[round(float(figures[2]), 4) for _, figures in one.updates_from(batch, at)] for at in (0, 500, 2000)]
    assert costs == [[0.1, 0.1], [0.05, 0.05], [0.0, 0.0]]
    trial_update(method, params, one.online, method.example(SPEC, params, one.online, CPU))


def test_it_acts_is_served_and_is_evaluated() -> None:
    method, params = quantiles()
    params = params.model_copy(update={"epsilon_base": 0.0, "evaluation_epsilon": 0.0})
    network = updater(method, params).online
    weights = snapshot(network, 3, 1, {})

    policy = ActingPolicy(method, SPEC, params, ENV_PARAMS, 6, np.random.default_rng(0))
    policy.take_slot(0, 1)
    observation = np.random.default_rng(0).normal(size=(6, 1, 4)).astype(np.float32)
    assert np.isnan(policy.act(observation).value).all()
    policy.load(weights)
    values = network(torch.from_numpy(observation)).mean(2)
    assert policy.act(observation).action.tolist() == values.argmax(1).tolist()

    served = ServedModel(
        network, SPEC, method, method.memory_units(params), Measured(DeviceCompute(CPU, Compute()), {}), 8
    )
    served.load(weights)
    outputs, _ = served.evaluate([Request("actor", "life", 0, 1, observation, np.zeros((6, 2, 0), np.float32), 0.0)])
    torch.testing.assert_close(torch.from_numpy(outputs), values.detach())

    seats: Any = [SimpleNamespace(random=np.random.default_rng(0), memory=None) for _ in range(6)]
    assert judged_policy(method, network, params)(observation, seats).tolist() == values.argmax(1).tolist()


def test_the_learner_trains_publishes_and_saves_it(tmp_path: Path) -> None:
    method, params = quantiles()
    made, identity = updater(method, params), PolicyIdentity("QR-DQN", SPEC, params, ENV_PARAMS)
    stop, given = threading.Event(), iter([ready(1.0) for _ in range(30)])
    with learner(tmp_path, "Fail", identity, made) as one:
        source: Any = one._source
        source.next = lambda seconds: next(given, None) or stop.set()
        source.learned = lambda batch, priority: sizes.append(len(priority))
        sizes: list[int] = []
        one.run(stop)
        one._next_record = 0.0
        one._housekeeping()
        assert (one.counters.samples, one.counters.version) == (30 * 16, 1 + 30 // 5)
        assert (made.updates, sizes) == (30, [16] * 30)
        assert np.isfinite(one.status().update_figures["quantile_spread"]), "its own measure is reported"
    saved: Any = checkpoint.latest_valid(tmp_path)
    assert saved.manifest["algorithm"] == "QR-DQN"
    assert torch.equal(saved.section("online")["head.bias"], made.online.state_dict()["head.bias"])
