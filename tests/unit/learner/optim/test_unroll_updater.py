"""Learning from unrolls: the updates against a plain loop, and a loss that is not finite."""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.batches import UnrollBatch
from rljob.algorithms.impala.loss import IMPALA
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
from rljob.experience import SegmentLayout, unroll_layout
from rljob.learner import state
from rljob.learner.loop import Learner
from rljob.learner.optim.on_device import LateNumber
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.sources import NonFiniteLoss
from rljob.learner.staging import unroll_buffers
from rljob.learner.unroll_queue import ReadyUnrolls, UnrollQueue, UnrollQueueConfig
from rljob.observation import frames
from rljob.weights.flat import VersionLog

from tests.support.devices import LateEvents
from tests.unit.learner.learner_builders import (
    CPU,
    ENV_PARAMS,
    OPTIMIZERS,
    SPEC,
    UnrollParameters,
    algorithm_of,
    assert_equal,
    batches_of,
    plain_optimizer,
    stepped,
    unroll_batches,
    unroll_parameters,
    updater,
)
from tests.unit.learner.test_non_finite import NAN, learner as learner_of

_names = itertools.count()


def parameters(kind: str = "IMPALA", **changes: Any) -> Any:
    return unroll_parameters(kind, **{"optimizer_epsilon": 1e-5, **changes})


def learned(each: Any, params: Any, count: int, compared: Any = slice(None)) -> list[Any]:
    """Priorities and figures of the updates from so many batches, which are shuffled alike for all."""
    torch.manual_seed(2)
    return [
        (priorities.clone(), figures[compared].clone())
        for batch in batches_of(params, count)
        for priorities, figures in each.updates_from(batch, 0)
    ]


def assert_learned_alike(one: Any, other: Any) -> None:
    torch.testing.assert_close(list(one.online.parameters()), list(other.online.parameters()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_equal_a_plain_loop(optimizer: str) -> None:
    params = parameters(optimizer=optimizer, gradient_clip_norm=0.5, evaluation_weights_decay=0.9, rmsprop_momentum=0.3)
    fast = updater(params)
    plain, average = copy.deepcopy(fast.online), copy.deepcopy(fast.online)
    reference = plain_optimizer(optimizer, plain.parameters(), epsilon=1e-5, decay=0.99, momentum=0.3)
    for batch in unroll_batches(params, 10):
        expected = IMPALA().loss(params, plain, batch)
        norm = stepped(plain, average, reference, expected.value)
        ((priorities, figures),) = fast.updates_from(batch, 0)
        assert (len(priorities), len(figures)) == (0, len(fast.figures))
        assert figures[:2].tolist() == pytest.approx([expected.value.item(), norm], rel=1e-3)
    for mine, its in ((fast.online, plain), (fast.evaluation, average)):
        torch.testing.assert_close(mine.state_dict(), its.state_dict(), rtol=1e-3, atol=1e-5)


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
    whole, shared = updater(params), updater(params, threads=DataParallelThreads(count))
    # A variance within the parts says little of that of the whole; PPO's advantages are measured before they are parted.
    apart = {"explained_variance"} | ({"advantage_std"} if algorithm_of(params).name == "IMPALA" else set())
    compared = [index for index, name in enumerate(whole.figures) if name not in apart]
    expected = learned(whole, params, 3, compared)
    torch.testing.assert_close(learned(shared, params, 3, compared), expected, rtol=1e-4, atol=1e-5)
    assert_learned_alike(shared, whole)


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
    bound = updater(parameters(**changes, target_policy_kl=float(np.mean(reported)) / 1.21))
    list(bound.updates_from(batch, 0))
    assert bound.learning_rate.scale == pytest.approx(1 / 1.1, rel=1e-3)
    list(bound.updates_from(batch, 0))
    assert bound.optimizer._optimizers[0].learning_rate == pytest.approx(1e-3 / 1.1, rel=1e-3)


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
    list(itertools.islice(updates, 2))
    events.made[-1].happen()
    assert list(updates) == [], "the first update's has arrived with the second's"


def layout(params: UnrollParameters) -> SegmentLayout:
    return unroll_layout(params.unroll_length, frames((4,), np.float32))


@contextmanager
def learner(directory: Path, policy: str, params: UnrollParameters) -> Iterator[Learner]:
    versions = VersionLog(params.publish_interval or 1)
    config = UnrollQueueConfig(f"inproc://unroll-learner-{next(_names)}", layout(params), params.batch_size, 8)
    identity = PolicyIdentity(algorithm_of(params).name, SPEC, params, ENV_PARAMS)
    queue = UnrollQueue(config, versions, CPU)
    with learner_of(directory, policy, identity, updater(params), queue, versions) as one:
        yield one


def ready(params: UnrollParameters, batch: UnrollBatch) -> ReadyUnrolls:
    staging: Any = unroll_buffers(layout(params), params.batch_size, 1, CPU).take()
    return ReadyUnrolls(batch=batch, policy_version=np.ones((5, 4), np.int64), staging=staging, epoch=1)


def learn(one: Learner, params: UnrollParameters, *rewards: float) -> None:
    """From a batch each, whose rewards are moved by so much."""
    for reward in rewards:
        (batch,) = unroll_batches(params, 1)
        one._learn(ready(params, batch._replace(reward=batch.reward + reward)))


def test_an_iteration_is_followed_by_a_version_however_long_it_was(tmp_path: Path) -> None:
    params = parameters(kind="PPO", epochs=2, minibatches=2)
    with learner(tmp_path / "whole", "Fail", params) as one:
        for version in (1, 2):
            learn(one, params, 1.0)
            assert (one.counters.version, one._updater.updates) == (version, 4 * version)
    with learner(tmp_path / "short", "Fail", params.updated(target_kl=1e-9)) as one:
        learn(one, params, 1.0)
        assert (one.counters.version, one._updater.updates < 4) == (1, True)
    with learner(tmp_path / "given up", "RestoreAndContinue", params) as one:
        learn(one, params, 1.0)
        one._save(wait=True)
        learn(one, params, NAN)
        # of the weights that were gone back to, and no other
        assert (one.counters.version, one.counters.epoch) == (2, 2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loss_that_is_not_finite(tmp_path: Path, optimizer: str) -> None:
    params = parameters(optimizer=optimizer, epochs=2, minibatches=2, publish_interval=2)
    with learner(tmp_path / "fail", "Fail", params) as one:
        learn(one, params, 1.0)
        assert one.counters.version == 2  # once a pass
        with pytest.raises(NonFiniteLoss, match="update 5: the loss is nan"):
            learn(one, params, NAN)
    with learner(tmp_path / "ignore", "Ignore", params) as one:
        before = copy.deepcopy(one._updater.online.state_dict())
        learn(one, params, NAN)
        assert_equal(one._updater.online.state_dict(), before)
        learn(one, params, 1.0)
        status = one.status()
        assert (status.skipped_updates, status.updates, status.queue.capacity) == (4, 8, 8)
    with learner(tmp_path / "restore", "RestoreAndContinue", params) as one:
        learn(one, params, 1.0)
        one._save(wait=True)
        saved = one._updater.updates
        learn(one, params, 1.0, NAN)
        assert (one._updater.updates, one.counters.epoch) == (saved, 2)  # and the rest of the batch was given up
        learn(one, params, 1.0)
        assert one._updater.updates == saved + 4
        one._save(wait=True)
    assert load_policy(tmp_path / "restore").params == params
