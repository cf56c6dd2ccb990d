"""What the loop does about a loss that is not finite: each of the manifest's three policies; and about a later learner."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.compute import Compute
from rljob.algorithms.registry import algorithm
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.experience import transition_layout
from rljob.learner.assembly import ReadyBatch
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.loop import Learner
from rljob.learner.optim.on_device import LossScale, Readback
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.saver import Saver
from rljob.learner.sources import LoopConfig, NonFiniteLoss, Superseded
from rljob.learner.staging import transition_buffers
from rljob.observation import frames
from rljob.weights.flat import VersionLog
from rljob.weights.server import WeightServer
from rljob.wire.schema import DRAWN

from tests.support.devices import LateEvents
from tests.unit.learner.learner_builders import CPU, batches, course, identity, parameters, updater

_names = itertools.count()
LAYOUT = transition_layout(10, frames((4,), np.float32), 3)


@contextmanager
def learner(
    directory: Path,
    policy: str,
    who: PolicyIdentity | None = None,
    own: AnyUpdater | None = None,
    source: Any = None,
    versions: VersionLog | None = None,
    forks_from: Path | None = None,
) -> Iterator[Learner]:
    """One of Ape-X, or of another algorithm; ``source`` is closed at the end."""
    who = who or identity(parameters())
    params: Any = who.params
    name = f"inproc://non-finite-{next(_names)}"
    server, saver = WeightServer(f"{name}-weights", f"{name}-notice"), Saver(directory, keep=3)
    if source is None:
        sampled = ReplayClientConfig((f"{name}-sample",), LAYOUT, params.batch_size)
        source = ReplayClient(sampled, algorithm("ApeXDQN").importance_weights, CPU)
    steps = params.batch_size * getattr(params, "unroll_length", 1)
    config = LoopConfig(steps, params.publish_interval, 60.0, directory, on_non_finite=policy)
    of, with_ = course(params, forks_from), own or updater(params)
    with closing(source), closing(server), closing(saver):
        yield Learner(config, who, of, with_, source, server, saver, lambda status: None, {}, versions)


NAN = float("nan")


def ready(value: float) -> ReadyBatch:
    """A batch whose returns are all ``value``."""
    staging: Any = transition_buffers(LAYOUT, 16, 1, CPU).take()
    (batch,) = batches(1)
    poisoned = batch._replace(n_step_return=torch.full((16,), value))
    return ReadyBatch(
        batch=poisoned, parts=(), drawn=np.zeros(16, DRAWN), policy_version=np.zeros(16, np.int64), staging=staging
    )


def learn(one: Learner, *values: float) -> None:
    for value in values:
        one._learn(ready(value))


def saved_updates(directory: Path) -> int:
    found: Any = checkpoint.latest_valid(directory)
    return found.manifest["counters"]["updates"]


def test_fail(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one, pytest.raises(NonFiniteLoss, match="update 2: the loss is nan"):
        learn(one, 1.0, NAN)


def test_a_learner_that_gets_no_more_data_hears_of_it_by_the_update_s_own_number(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        events = LateEvents()
        one._readback = Readback(CPU, events)
        learn(one, NAN, 1.0, 1.0)
        assert one._next() is None, "its numbers are still on their way"
        events.made[0].happen()
        with pytest.raises(NonFiniteLoss, match="update 1: the loss is nan"):
            one._next()


@pytest.mark.parametrize(("value", "learned", "skipped"), [(1.0, 3, 0), (NAN, 0, 3)])
def test_at_its_end_a_learner_waits_for_what_is_under_way(
    tmp_path: Path, value: float, learned: int, skipped: int
) -> None:
    stop = threading.Event()
    stop.set()
    with learner(tmp_path, "Ignore") as one:
        one._readback = Readback(CPU, LateEvents())
        learn(one, *[value] * 3)
        assert one.figures._count == 0
        one.run(stop)
        assert (one.figures._count, one.status().skipped_updates, saved_updates(tmp_path)) == (learned, skipped, 3)


def test_ignore_skips_the_update_and_goes_on(tmp_path: Path) -> None:
    with learner(tmp_path, "Ignore") as one:
        learn(one, float("inf"), 1.0)
        assert (one.status().skipped_updates, one.status().updates) == (1, 2)


def test_restore_goes_back_to_the_newest_checkpoint_or_fails_without_one(tmp_path: Path) -> None:
    with learner(tmp_path, "RestoreAndContinue") as one:
        with pytest.raises(NonFiniteLoss, match="no checkpoint"):
            learn(one, NAN)
        learn(one, 1.0)
        one._save(wait=True)
        version = one.counters.version
        learn(one, 1.0, 1.0, 1.0, NAN)
        assert (one.status().updates, saved_updates(tmp_path), one.counters.epoch) == (2, 2, 2)
        assert one.counters.version >= version
        learn(one, 1.0)
        assert one.status().updates == 3


def test_experience_of_weights_given_up_has_the_lag_of_both_ways(tmp_path: Path) -> None:
    with learner(tmp_path, "RestoreAndContinue") as one:
        learn(one, 1.0)
        one._save(wait=True)
        learn(one, *[1.0] * 19)
        given_up = one.counters.version  # published after update 20, nineteen beyond the checkpoint
        learn(one, NAN, 1.0)
        one._learn(replace(ready(1.0), policy_version=np.full(16, given_up)))
        one._next_record = 0.0
        one._housekeeping()
        assert (one.status().updates, one.status().policy_lag_updates) == (3, 20.0)


def test_an_overflow_of_fp16_is_a_skipped_update_and_no_failure(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail", own=updater(parameters(), plan=Compute("fp16"))) as one:
        one._updater.loss_scale = LossScale(CPU, 2.0**40)
        learn(one, 1.0)
        assert one.status().skipped_updates == 1
        with pytest.raises(NonFiniteLoss, match="the loss is nan"):
            learn(one, NAN)


@pytest.mark.parametrize("hears", ["_saver", "_server", "_source"])
def test_whoever_tells_it_of_a_later_learner_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hears: str
) -> None:
    with learner(tmp_path, "Fail") as one:
        part = getattr(one, hears)
        monkeypatch.setattr(type(part) if hears == "_source" else part, "heard_epoch", 2)
        with pytest.raises(Superseded, match="a learner of epoch 2 has begun after this one, of epoch 1"):
            one._turn()
