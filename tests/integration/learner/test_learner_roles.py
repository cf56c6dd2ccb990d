"""The learner with real neighbours in one process: a replay service, a producer of real chunks, or the actor role itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.api import RLJob
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import load_policy
from rljob.envs import make_single_environment
from rljob.learner.device_mirror import DeviceMirror
from rljob.learner.mirror_place import MirrorPlace, MirrorSize
from rljob.roles import learner as learner_role
from rljob.roles.actor import run_actor
from rljob.roles.learner import run_learner
from rljob.roles.replay import run_replay
from rljob.weights.exchange import WeightClient

from tests.support import role_threads
from tests.support.role_threads import over_ipc

REPLAY = {"prioritization": {"exponent": 0.5, "importance": 0.4}}


def cartpole() -> RLJob:
    return role_threads.cartpole(replay=REPLAY, checkpoint={"intervalSeconds": 1, "retain": 2})


def mirror_on_this_cpu(
    size: MirrorSize, batch_size: int, prefetch: int, device: torch.device
) -> tuple[DeviceMirror, MirrorPlace]:
    """What a GPU with room would have chosen."""
    return DeviceMirror(size.layout, size.slots, size.shards, device), MirrorPlace(True, "on this CPU")


def updates(figures: dict[str, Any]) -> int:
    return int(figures.get("updates", 0))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("on_device", [False, True])
def test_learner_trains_saves_and_resumes(tmp_path: Path, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_device:
        monkeypatch.setattr(learner_role, "mirror_for", mirror_on_this_cpu)
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner", last_words=tmp_path / "last-words")
        run.start(run_actor, "actor-0")
        figures = run.until(lambda f: updates(f) > 100 and f.get("policy_lag_updates") is not None, "updates")
        assert np.isfinite(figures["loss"])
        assert figures["replay/items"] >= 500
        told = ["on this CPU"] if on_device else ["in RAM, as the learner computes on the CPU"]
        assert [facts.get("mirror") for facts in run.records("learner")] == told
        run.stop("learner")
        saved = checkpoint.latest_valid(tmp_path / "checkpoints")
        assert saved is not None
        counters = saved.manifest["counters"]
        assert counters["updates"] > 100
        assert counters["samples"] == counters["updates"] * 128
        told = json.loads((tmp_path / "last-words").read_text())["checkpoint"]
        assert (told["state"], told["step"]) == ("Valid", counters["updates"])
        assert told["digest"].endswith(saved.manifest["sha256"])
        run.start(run_learner, "learner", resume="latest")
        figures = run.until(lambda f: updates(f) > counters["updates"] + 50, "updates after the checkpoint")
        run.stop("learner")
        again = checkpoint.latest_valid(tmp_path / "checkpoints")
        assert again is not None
        assert again.manifest["counters"]["epoch"] == counters["epoch"] + 1
        assert again.manifest["counters"]["version"] > counters["version"]
        assert len(checkpoint.stored(tmp_path / "checkpoints")) <= 2
        assert load_policy(tmp_path).spec.id == "CartPole-v1"


@pytest.mark.timeout(300)
def test_a_learner_with_two_devices_measures_both_and_trains_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one device here, for which torch has two names; a GPU is told from the CPU by the same code."""
    monkeypatch.setattr(learner_role, "devices", lambda *_, **__: (torch.device("cpu:0"), torch.device("cpu")))
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        run.until(lambda f: updates(f) > 20, "updates")
        (facts,) = run.records("learner")
        run.stop("learner")
    seconds = facts["compute_seconds"]
    assert list(seconds) == ["cpu:0 fp32", "cpu fp32"]
    assert facts["device"] in ("cpu:0", "cpu")
    assert all(0.0 < taken < 1.0 for taken in seconds.values())


@pytest.mark.timeout(300)
def test_learner_goes_on_after_the_replay_service_was_restarted_empty(tmp_path: Path) -> None:
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        before = run.until(lambda f: updates(f) > 50, "updates")
        run.stop("replay-0")
        time.sleep(0.5)
        run.start(run_replay, "replay-0")
        more = updates(before) + 100
        after = run.until(lambda f: updates(f) > more and f["resubscriptions"] >= 1, "updates after a new subscription")
        assert np.isfinite(after["loss"])


@pytest.mark.timeout(300)
def test_cartpole_is_learned(tmp_path: Path) -> None:
    """The whole path learns: games of the greedier half of the ladder grow from about 20 steps to more than 150."""
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        run.until(lambda f: (f.get("mean_return") or 0) > 150, "a mean return of 150", 240)
        # The return said with the weights is that of their moment, which may have been the first or a bad one: newer follow.
        client = WeightClient(run.endpoints["weights"], run.endpoints["notice"], evaluation=True)
        deadline, offered, versions = time.monotonic() + 120.0, None, []
        while offered is None or (offered.meta["mean_return"] or 0.0) <= 20:
            assert time.monotonic() < deadline, f"of the versions {versions} none said a return above 20"
            if (fresh := client.wait(10.0)) is not None:
                offered = fresh
                versions.append(fresh.version)
        client.close()
        assert versions == sorted(set(versions)), "newer weights follow older ones"
        assert offered.epoch == 1
        assert offered.meta["updates"] > 0
        run.until(lambda f: updates(f) >= offered.meta["updates"], "figures of the update that the weights are of")
    policy = load_policy(tmp_path)
    environment = make_single_environment("CartPole-v1", policy.env_params, for_scoring=True)
    assert environment.action_space.n == policy.spec.num_actions  # type: ignore[attr-defined]
    environment.close()
