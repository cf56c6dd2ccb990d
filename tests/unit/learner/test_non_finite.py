"""What the loop does about a loss that is not finite: each of the manifest's three policies."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.compute import Compute
from rljob.checkpoints import store as checkpoint
from rljob.experience import transition_layout
from rljob.learner.assembly import ReadyBatch
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.figures import Figures
from rljob.learner.loop import Learner
from rljob.learner.loop_config import LoopConfig, NonFiniteLoss
from rljob.learner.optim.loss_scale import LossScale
from rljob.learner.optim.readback import Readback
from rljob.learner.saver import Saver
from rljob.learner.staging import transition_buffers
from rljob.observation import frames
from rljob.weights.exchange import WeightServer

from tests.support.devices import LateEvents
from tests.unit.learner.learner_builders import batches, identity, parameters, updater

_names = itertools.count()
LAYOUT = transition_layout(10, frames((4,), np.float32), 3)


@contextmanager
def learner(directory: Path, policy: str) -> Iterator[Learner]:
    params, name = parameters(), f"inproc://non-finite-{next(_names)}"
    server = WeightServer(f"{name}-weights", f"{name}-notice")
    client = ReplayClient(
        ReplayClientConfig((f"{name}-sample",), LAYOUT, params.batch_size),
        algorithm("ApeXDQN").importance_weights,
        torch.device("cpu"),
    )
    saver = Saver(directory, keep=3)
    config = LoopConfig(params.batch_size, 10, 60.0, directory, on_non_finite=policy)
    yield Learner(config, identity(params), updater(params), client, server, saver, lambda status: None, {})
    client.close()
    server.close()
    saver.close()


def ready(value: float) -> ReadyBatch:
    staging = transition_buffers(LAYOUT, 16, 1, torch.device("cpu")).take()
    assert staging is not None
    (batch,) = batches(1)
    poisoned = batch._replace(n_step_return=torch.full((16,), value))
    slots = np.arange(16, dtype=np.uint32)
    return ReadyBatch(poisoned, (), slots, slots, np.zeros(16, np.int64), staging)


def test_fail(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        one._learn(ready(1.0))
        with pytest.raises(NonFiniteLoss, match="update 2: the loss is nan"):
            one._learn(ready(float("nan")))


def test_a_learner_that_gets_no_more_data_hears_of_it_by_the_update_s_own_number(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        events = LateEvents()
        one._readback = Readback(torch.device("cpu"), events)
        one._learn(ready(float("nan")))
        for _ in range(2):
            one._learn(ready(1.0))
        assert one._next() is None, "its numbers are still on their way"
        events.made[0].happen()
        with pytest.raises(NonFiniteLoss, match="update 1: the loss is nan"):
            one._next()


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_at_its_end_a_learner_waits_for_what_is_under_way(tmp_path: Path, value: float) -> None:
    stop = threading.Event()
    stop.set()
    with learner(tmp_path, "Ignore") as one:
        one._readback = Readback(torch.device("cpu"), LateEvents())
        for _ in range(3):
            one._learn(ready(value))
        assert one.figures._count == 0
        one.run(stop)
        learned, skipped = (3, 0) if value == 1.0 else (0, 3)
        assert (one.figures._count, one.status().skipped_updates) == (learned, skipped)
        saved = checkpoint.latest_valid(tmp_path)
        assert saved is not None
        assert saved.manifest["counters"]["updates"] == 3


def test_ignore_skips_the_update_and_goes_on(tmp_path: Path) -> None:
    with learner(tmp_path, "Ignore") as one:
        one._learn(ready(float("inf")))
        one._learn(ready(1.0))
        status = one.status()
        assert (status.skipped_updates, status.updates) == (1, 2)


def test_restore_goes_back_to_the_newest_checkpoint_or_fails_without_one(tmp_path: Path) -> None:
    with learner(tmp_path, "RestoreAndContinue") as one:
        with pytest.raises(NonFiniteLoss, match="no checkpoint"):
            one._learn(ready(float("nan")))
        one._learn(ready(1.0))
        one._save(wait=True)
        version = one.counters.version
        for _ in range(3):
            one._learn(ready(1.0))
        one._learn(ready(float("nan")))
        saved = checkpoint.latest_valid(tmp_path)
        assert saved is not None
        assert one.status().updates == saved.manifest["counters"]["updates"] == 2
        assert one.counters.epoch == 2
        assert one.counters.version >= version
        one._learn(ready(1.0))
        assert one.status().updates == 3


def test_experience_of_weights_given_up_has_the_lag_of_both_ways(tmp_path: Path) -> None:
    with learner(tmp_path, "RestoreAndContinue") as one:
        one._learn(ready(1.0))
        one._save(wait=True)
        for _ in range(19):
            one._learn(ready(1.0))
        given_up = one.counters.version  # published after update 20, nineteen beyond the checkpoint
        one._learn(ready(float("nan")))
        one._learn(ready(1.0))
        one._learn(replace(ready(1.0), policy_version=np.full(16, given_up)))
        one._next_record = 0.0
        one._housekeeping()
        assert one.status().updates == 3
        assert one.status().policy_lag_updates == 20.0


def test_an_overflow_of_fp16_is_a_skipped_update_and_no_failure(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        one._updater = updater(parameters(), plan=Compute("fp16"))
        one.figures = Figures(one._updater.figures)
        one._updater.loss_scale = LossScale(torch.device("cpu"), 2.0**40)
        one._learn(ready(1.0))
        assert one.status().skipped_updates == 1
        with pytest.raises(NonFiniteLoss, match="the loss is nan"):
            one._learn(ready(float("nan")))
