"""Checkpoints: exact resume, damage, full disks, retention, and the policy they hold."""

import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, UnrollQueue
from rljob.api.environment import EnvironmentSource
from rljob.api.parameters import ParameterSet
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity, come_to, keep_judged, load_policy
from rljob.checkpoints.store import CheckpointProblem
from rljob.learner import state
from rljob.learner.saver import Saver

from tests.support.waiting import raising
from tests.unit.learner.learner_builders import IMAGES, SPEC, batches, identity, parameters, updater


def test_a_checkpoint_is_a_snapshot(tmp_path: Path) -> None:
    learner = updater(parameters())
    captured = state.capture(learner)
    before = captured["online.dense.0.weight"].clone()
    learner.update(batches(1)[0], 0)
    assert torch.equal(captured["online.dense.0.weight"], before)


def test_another_network_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    path, _ = checkpoint.write(tmp_path, "step-1", state.capture(updater(parameters(hidden_units=8))), {})
    other = updater(parameters(hidden_units=16))
    before = {name: tensor.clone() for name, tensor in other.online.state_dict().items()}
    with pytest.raises(CheckpointProblem, match="another network"):
        state.restore(other, checkpoint.read(path), 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.online.state_dict().items())


@pytest.mark.parametrize("file", [checkpoint.TENSORS, checkpoint.MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, file: str, damage: str) -> None:
    tensors = {"policy.x": torch.arange(100.0)}
    for updates in (10, 20):
        checkpoint.write(tmp_path, checkpoint.checkpoint_name(1, updates), tensors, {"counters": {"updates": updates}})
    target = tmp_path / checkpoint.checkpoint_name(1, 20) / file
    content = bytearray(target.read_bytes())
    target.unlink()
    content[len(content) // 2 if file == checkpoint.TENSORS else 0] ^= 0x41 if damage == "flip" else 0
    if damage != "remove":
        target.write_bytes(content[: len(content) // 2 if damage == "cut" else None])
    assert checkpoint.latest_valid(tmp_path).manifest["counters"]["updates"] == 10


def test_a_full_disk_keeps_the_previous_checkpoint_and_says_so(tmp_path: Path, closes: Any) -> None:
    tensors = {"online.x": torch.zeros(50_000)}
    saver = closes(Saver(tmp_path, keep=3))
    saver.save(10, tensors, {"counters": {"updates": 10}, "requested_unix": 7.5}, wait=True)
    assert (saver.status.state, saver.status.requested_unix) == ("Valid", 7.5)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        saver.save(20, tensors, {"counters": {"updates": 20}}, wait=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    status = saver.status
    assert (status.state, status.step, "could not be written" in status.message) == ("Failed", 10, True)
    assert (checkpoint.read(Path(status.path)).manifest["counters"]["updates"], list(tmp_path.glob(".*"))) == (10, [])
    saver.save(30, tensors, {"counters": {"updates": 30}}, wait=True)
    assert (saver.status.state, saver.status.message) == ("Valid", "")


def test_policy_prefers_the_best_then_the_average_then_the_online_network(tmp_path: Path) -> None:
    run = tmp_path / "run"
    params = parameters(evaluation_weights_decay=0.5)
    learner = updater(params, IMAGES)
    observation = batches(1, IMAGES)[0].observation
    manifest = identity(params, IMAGES).document()
    learner.update(batches(1, IMAGES)[0], 0)
    step, _ = checkpoint.write(run / "checkpoints", checkpoint.checkpoint_name(1, 1), state.capture(learner), manifest)
    policy = load_policy(run)
    assert (policy.spec, policy.params, policy.module.training) == (IMAGES, params, False)
    average, online = learner.evaluation(observation), learner.online(observation)
    assert torch.equal(policy.module(observation), average)
    judged = {f"policy.{name}": tensor for name, tensor in learner.online.state_dict().items()}
    checkpoint.write(run / "checkpoints", checkpoint.BEST, judged, manifest)
    for place, expected in ((run, online), (step, average)):
        assert torch.equal(load_policy(place).module(observation), expected)
    keep_judged(run, {"mean": 7.0})
    later = {f"policy.{name}": tensor for name, tensor in learner.evaluation.state_dict().items()}
    checkpoint.write(run / "checkpoints", checkpoint.BEST, later, manifest)
    kept = load_policy(run)
    assert torch.equal(kept.module(observation), online), "what an experiment has judged best is kept"
    assert (kept.manifest["verdict"], kept.manifest["algorithm"]) == ({"mean": 7.0}, manifest["algorithm"])
    assert torch.equal(load_policy(run, come_to).module(observation), average), "what its evaluator has judged since"


def test_no_policy_is_one_clear_line(tmp_path: Path) -> None:
    step, _ = checkpoint.write(tmp_path / "run", "step-1", {"online.x": torch.zeros(1)}, {})
    old, _ = checkpoint.write(tmp_path / "old", "step-1", {"online.x": torch.zeros(1)}, {})
    (old / checkpoint.MANIFEST).write_text(json.dumps({"format": 99}))
    for place, said in ((tmp_path, "no valid checkpoint"), (step, "does not say what it is"), (old, "format 1")):
        with pytest.raises(CheckpointProblem, match=said):
            load_policy(place)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("ApeXDQN", ApeXDQNParameters(n_step=7, learning_rate=3e-4)),
        ("IMPALA", ImpalaParameters(unroll_queue=UnrollQueue(capacity=96, max_policy_lag_updates=333))),
    ],
)
def test_what_a_policy_is_of_comes_back_through_json(name: str, params: ParameterSet) -> None:
    """Nested ones too: the queue of unrolls, and keyword arguments of any depth."""
    environment = EnvironmentParameters(
        actions=(0, 2),
        input_scale=0.5,
        kwargs={"levels": [{"height": 3, "name": "\u00e4"}], "speed": 0.1, "seed": None},
    )
    for judged_in in (None, EnvironmentSource(id="other:make", **dict(environment.updated(max_episode_steps=9)))):
        whole = PolicyIdentity(name, SPEC, params, environment, judged_in)
        assert PolicyIdentity.of(json.loads(json.dumps(whole.document()))) == whole
    assert (whole.judged.spec.id, whole.judged.env_params.max_episode_steps) == ("other:make", 9)
    assert replace(whole.judged, spec=SPEC, env_params=environment) == whole, "all else is the same"
    older = {key: value for key, value in whole.document().items() if key != "judgedIn"}
    assert PolicyIdentity.of(older).judged == PolicyIdentity(name, SPEC, params, environment)


@pytest.mark.parametrize("before", ["Adam", "RMSProp", "CentredRMSProp"])
@pytest.mark.parametrize("after", ["Adam", "RMSProp", "CentredRMSProp"])
def test_a_run_goes_on_with_another_optimiser(
    tmp_path: Path, before: str, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The parameters of a suspended job may change. What one optimiser remembers is of no use to another."""
    first = updater(parameters(optimizer=before))
    for batch in batches(3):
        first.update(batch, 0)
    path, _ = checkpoint.write(tmp_path, "step-3", state.capture(first), {})
    other = updater(parameters(optimizer=after), seed=9)
    with caplog.at_level("WARNING"):
        state.restore(other, checkpoint.read(path), 3)
    assert ("start from zero" in caplog.text) is (before != after)
    assert all(torch.equal(a, b) for a, b in zip(first.online.parameters(), other.online.parameters(), strict=True))
    other.update(batches(1)[0], 0)
    assert other.optimizer.state(0).keys() == other.optimizer.state_names(0)
    assert int(other.optimizer.state(0)["step"]) == (4 if before == after else 1)


def test_a_folder_of_somebody_else_is_told_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a claim whose volume takes no fsGroup: a learner would train for days and leave nothing behind."""
    saver, refuse = Saver(tmp_path / "checkpoints", keep=2), raising(PermissionError(13, "Permission denied"))
    monkeypatch.setattr(Path, "touch", refuse)
    user = os.geteuid()
    said = rf"(?s)^{tmp_path}/checkpoints can't be written by user {user} of group .*chown -R {user}"
    with pytest.raises(CheckpointProblem, match=said) as told:
        saver.claim(0)
    assert len(str(told.value)) <= 512, "a condition has all of it"
    monkeypatch.undo()
    saver.claim(0)
    monkeypatch.setattr(Path, "touch", refuse)
    assert (saver.claim_next(), saver.status.state) == (2, "Failed"), "what is being learned goes on"
