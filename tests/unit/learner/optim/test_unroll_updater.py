"""Learning from unrolls: the updates against a plain loop, exact resume, and a loss that is not finite."""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.impala import IMPALA
from rljob.algorithms.optimizer import RMSProp
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import PolicyIdentity, load_policy
from rljob.experience import unroll_layout
from rljob.learner import state
from rljob.learner.loop import Learner
from rljob.learner.loop_config import LoopConfig, NonFiniteLoss
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.readback import LateNumber
from rljob.learner.optim.updater import AnyUpdater, make_updater
from rljob.learner.saver import Saver
from rljob.learner.staging import unroll_buffers
from rljob.learner.unroll_queue import ReadyUnrolls, UnrollQueue, UnrollQueueConfig
from rljob.observation import frames
from rljob.weights.exchange import WeightServer
from rljob.weights.versions import VersionLog

from tests.support.devices import LateEvents
from tests.unit.learner.learner_builders import ENV_PARAMS, SPEC, UnrollParameters, unroll_algorithm, unroll_batches

CPU = torch.device("cpu")
_names = itertools.count()


def parameters(kind: str = "IMPALA", **changes: Any) -> UnrollParameters:
    values = {
        "network": "MLP", "hidden_units": 8, "unroll_length": 5, "batch_size": 4, "precision": "FP32",
        "optimizer_epsilon": 1e-5, "learning_rate": 1e-3,
    }  # fmt: skip
    return algorithm(kind).parameters.model_validate({**values, **changes})


def updater(params: UnrollParameters, seed: int = 0, threads: DataParallelThreads | None = None) -> AnyUpdater:
    torch.manual_seed(seed)
    method = algorithm(unroll_algorithm(params))
    return make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU, threads)


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_updates_equal_a_plain_loop(optimizer: str) -> None:
    params = parameters(optimizer=optimizer, gradient_clip_norm=0.5, evaluation_weights_decay=0.9, rmsprop_momentum=0.3)
    fast = updater(params)
    plain, average = copy.deepcopy(fast.online), copy.deepcopy(fast.online)
    parameters_of = list(plain.parameters())
    if optimizer == "Adam":
        reference: torch.optim.Optimizer | RMSProp = torch.optim.Adam(parameters_of, lr=1e-3, eps=1e-5, foreach=False)
    else:
        centred = optimizer == "CentredRMSProp"
        reference = RMSProp(parameters_of, learning_rate=1e-3, decay=0.99, epsilon=1e-5, momentum=0.3, centred=centred)
    for batch in unroll_batches(params, 10):
        expected = IMPALA().loss(params, plain, batch)
        plain.zero_grad()
        expected.value.backward()
        norm = torch.stack([p.grad.square().sum() for p in parameters_of if p.grad is not None]).sum().sqrt()
        for parameter in parameters_of:
            assert parameter.grad is not None
            parameter.grad *= min(1.0, 0.5 / (norm.item() + 1e-6))
        reference.step()
        with torch.no_grad():
            for mine, its in zip(average.parameters(), parameters_of, strict=True):
                mine.copy_(0.9 * mine + 0.1 * its)
        ((priorities, figures),) = fast.updates_from(batch, 0)
        assert len(priorities) == 0
        assert figures[:2].tolist() == pytest.approx([expected.value.item(), norm.item()], rel=1e-3)
        assert len(figures) == len(fast.figures)
    assert fast.evaluation is not None
    for mine, its in ((fast.online, plain), (fast.evaluation, average)):
        for name, tensor in its.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"loss_reduction": reduction, **each}
            for reduction in ("Sum", "Mean")
            for each in (
                {},
                {"recurrent": "LSTM", "lstm_units": 3},
                {"epochs": 2, "minibatches": 4},  # an update of one unroll, which can't be taken apart
            )
        ),
        {"kind": "PPO", "epochs": 2, "minibatches": 2},
        {"kind": "PPO", "recurrent": "LSTM", "lstm_units": 3, "minibatches": 2},
    ],
)
def test_micro_batches_of_an_update_teach_what_the_whole_does(changes: dict[str, Any], count: int) -> None:
    params = parameters(optimizer="RMSProp", optimizer_epsilon=0.1, **changes)
    threads = torch.get_num_threads()
    whole, shared = updater(params), updater(params, threads=DataParallelThreads(count))
    # A variance within the parts says little of that of the whole; PPO's advantages are measured before they are parted.
    apart = {"explained_variance"} | ({"advantage_std"} if unroll_algorithm(params) == "IMPALA" else set())
    compared = [index for index, name in enumerate(whole.figures) if name not in apart]
    for batch in unroll_batches(params, 3):
        figures = []
        for each in (whole, shared):
            torch.manual_seed(2)  # both shuffle alike
            figures.append(torch.stack([found[compared] for _, found in each.updates_from(batch, 0)]))
        torch.testing.assert_close(figures[1], figures[0], rtol=1e-4, atol=1e-5)
    for mine, its in zip(shared.online.parameters(), whole.online.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    torch.set_num_threads(threads)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "changes",
    [{"recurrent": "LSTM", "lstm_units": 3}, {"kind": "PPO", "epochs": 2, "minibatches": 2}],
)
def test_compiled_updates_equal_eager_ones_and_compile_once(changes: dict[str, Any]) -> None:
    params = parameters(unroll_length=3, **changes)
    eager, compiled = updater(params), updater(params)
    compiled.compile()
    for batch in unroll_batches(params, 4):
        figures = []
        for each in (eager, compiled):
            torch.manual_seed(2)  # both shuffle alike
            figures.append(torch.stack([found for _, found in each.updates_from(batch, 0)]))
        torch.testing.assert_close(figures[1], figures[0], rtol=1e-4, atol=1e-5)
    for mine, its in zip(compiled.online.parameters(), eager.online.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    assert compiled.recompiles == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "PPO", "epochs": 2, "minibatches": 4},
        {"recurrent": "LSTM", "lstm_units": 6, "minibatches": 2},
        {"epochs": 2, "target_policy_kl": 1e-4},
    ],
)
def test_resume_is_exact(tmp_path: Path, changes: dict[str, Any]) -> None:
    params = parameters(**changes, optimizer="Adam", learning_rate_final=1e-4, learning_rate_decay_steps=100)
    data = unroll_batches(params, 6)
    straight = updater(params)
    for index, batch in enumerate(data):
        if index == 3:
            path, _ = checkpoint.write(tmp_path, "step-3", state.capture(straight), {})
            saved_at = straight.updates
        list(straight.updates_from(batch, 10 * index))
    resumed = updater(params, seed=99)
    state.restore(resumed, checkpoint.read(path), saved_at)
    for index in range(3, 6):
        list(resumed.updates_from(data[index], 10 * index))
    assert resumed.updates == straight.updates == 6 * params.updates_per_batch
    first, second = state.capture(straight), state.capture(resumed)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)  # bit for bit, the random state included


def test_what_is_on_its_way_says_nothing_about_weights_that_were_restored(tmp_path: Path) -> None:
    params = parameters(epochs=2, target_policy_kl=1e-4)
    learner, events = updater(params), LateEvents()
    learner._divergence = LateNumber(CPU, events)
    path, _ = checkpoint.write(tmp_path, "step-0", state.capture(learner), {})
    first, second = unroll_batches(params, 2)
    list(learner.updates_from(first, 0))
    events.made[0].happen()
    state.restore(learner, checkpoint.read(path), 0)
    list(learner.updates_from(second, 0))
    assert learner.learning_rate.scale == 1.0


def test_the_step_size_follows_what_batches_do_to_the_policy() -> None:
    """Only with a target; and with the divergence that the figures of the batch's own updates report."""
    changes = {"epochs": 2, "minibatches": 2, "optimizer": "Adam"}
    (batch,) = unroll_batches(parameters(**changes), 1)
    free = updater(parameters(**changes))
    reported = [float(figures[free.figures.index("policy_kl")]) for _, figures in free.updates_from(batch, 0)]
    assert free.learning_rate.scale == 1.0
    target = float(np.mean(reported)) / 1.21
    bound = updater(parameters(**changes, target_policy_kl=target))
    list(bound.updates_from(batch, 0))
    assert bound.learning_rate.scale == pytest.approx(1 / 1.1, rel=1e-3)
    list(bound.updates_from(batch, 0))
    assert bound.optimizer.learning_rate == pytest.approx(1e-3 / 1.1, rel=1e-3)


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
def test_a_batch_that_has_moved_the_policy_too_far_is_left_early(recurrent: str) -> None:
    changes = {"kind": "PPO", "epochs": 4, "minibatches": 2, "recurrent": recurrent, "learning_rate": 0.1}
    (batch,) = unroll_batches(parameters(**changes), 1)

    def divergences(target: float) -> list[float]:
        each = updater(parameters(**changes, target_kl=target))
        torch.manual_seed(2)  # all shuffle alike
        return [float(figures[each.figures.index("policy_kl")]) for _, figures in each.updates_from(batch, 0)]

    whole = divergences(0.0)
    assert len(whole) == 8
    (target,) = (0.5 * (low + high) for low, high in [sorted({0.0, *whole})[-2:]])
    first = next(index for index, each in enumerate(whole) if each > target)
    assert divergences(target) == whole[: first + 1], "up to the update that shows it"
    assert divergences(2.0 * max(whole)) == whole


def test_a_divergence_that_arrives_late_says_nothing_about_the_next_batch() -> None:
    params = parameters(kind="PPO", epochs=2, minibatches=2, learning_rate=0.1, target_kl=1e-9)
    learner, events = updater(params), LateEvents()
    learner._early_end = LateNumber(CPU, events)
    first, second = unroll_batches(params, 2)
    assert len(list(learner.updates_from(first, 0))) == 4, "nothing has arrived meanwhile"
    for event in events.made:
        event.happen()
    updates = learner.updates_from(second, 0)
    next(updates)
    next(updates)
    events.made[-1].happen()
    assert len(list(updates)) == 0, "the first update's has arrived with the second's"


@contextmanager
def learner(directory: Path, policy: str, params: UnrollParameters) -> Iterator[Learner]:
    name = f"inproc://unroll-learner-{next(_names)}"
    server = WeightServer(f"{name}-weights", f"{name}-notice")
    versions = VersionLog(params.publish_interval or 1)
    layout = unroll_layout(params.unroll_length, frames((4,), np.float32))
    queue = UnrollQueue(UnrollQueueConfig(f"{name}-ingest", layout, params.batch_size, 8), versions, CPU)
    saver = Saver(directory, keep=3)
    config = LoopConfig(20, params.publish_interval, 60.0, directory, on_non_finite=policy)
    identity = PolicyIdentity(unroll_algorithm(params), SPEC, params, ENV_PARAMS)
    yield Learner(config, identity, updater(params), queue, server, saver, lambda status: None, {}, versions)
    queue.close()
    server.close()
    saver.close()


def ready(params: UnrollParameters, reward: float) -> ReadyUnrolls:
    layout = unroll_layout(params.unroll_length, frames((4,), np.float32))
    staging = unroll_buffers(layout, params.batch_size, 1, CPU).take()
    assert staging is not None
    (batch,) = unroll_batches(params, 1)
    return ReadyUnrolls(batch._replace(reward=batch.reward + reward), np.ones((5, 4), np.int64), 1, staging)


def test_an_iteration_is_followed_by_a_version_however_long_it_was(tmp_path: Path) -> None:
    params = parameters(kind="PPO", epochs=2, minibatches=2)
    with learner(tmp_path / "whole", "Fail", params) as one:
        for version in (1, 2):
            one._learn(ready(params, 1.0))
            assert (one.counters.version, one._updater.updates) == (version, 4 * version)
    with learner(tmp_path / "short", "Fail", parameters(kind="PPO", epochs=2, minibatches=2, target_kl=1e-9)) as one:
        one._learn(ready(params, 1.0))
        assert one.counters.version == 1
        assert one._updater.updates < 4
    with learner(tmp_path / "given up", "RestoreAndContinue", params) as one:
        one._learn(ready(params, 1.0))
        one._save(wait=True)
        one._learn(ready(params, float("nan")))
        assert (one.counters.version, one.counters.epoch) == (2, 2), (
            "of the weights that were gone back to, and no other"
        )


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_a_loss_that_is_not_finite(tmp_path: Path, optimizer: str) -> None:
    params = parameters(optimizer=optimizer, epochs=2, minibatches=2, publish_interval=2)
    poison = float("nan")
    with learner(tmp_path / "fail", "Fail", params) as one:
        one._learn(ready(params, 1.0))
        assert one.counters.version == 2  # once a pass
        with pytest.raises(NonFiniteLoss, match="update 5: the loss is nan"):
            one._learn(ready(params, poison))
    with learner(tmp_path / "ignore", "Ignore", params) as one:
        before = copy.deepcopy(one._updater.online.state_dict())
        one._learn(ready(params, poison))
        assert all(torch.equal(tensor, before[name]) for name, tensor in one._updater.online.state_dict().items())
        one._learn(ready(params, 1.0))
        status = one.status()
        assert (status.skipped_updates, status.updates) == (4, 8)
        assert status.queue.capacity == 8
    with learner(tmp_path / "restore", "RestoreAndContinue", params) as one:
        with pytest.raises(NonFiniteLoss, match="no checkpoint"):
            one._learn(ready(params, poison))
        one._learn(ready(params, 1.0))
        one._save(wait=True)
        saved = one._updater.updates
        one._learn(ready(params, 1.0))
        one._learn(ready(params, poison))
        assert (one._updater.updates, one.counters.epoch) == (saved, 2)  # and the rest of the batch was given up
        one._learn(ready(params, 1.0))
        assert one._updater.updates == saved + 4
        one._save(wait=True)
    policy = load_policy(tmp_path / "restore")
    assert policy.params == params
