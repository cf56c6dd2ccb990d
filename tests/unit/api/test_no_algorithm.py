"""A manifest that names no algorithm: PPO learns, and that is said."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api import PPOParameters, RLJob, parse_job
from rljob.api.presets.merging import NO_ALGORITHM, note_on
from rljob.api.problems import ManifestError

from tests.unit.api.written import in_force


def job(**spec: Any) -> RLJob:
    head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "by-its-id"}}
    return parse_job({**head, "spec": {"environment": {"id": "Pendulum-v1"}, **spec}})


@pytest.mark.parametrize("algorithm", [{}, {"algorithm": {}}])
def test_ppo_learns_and_it_is_said(algorithm: dict[str, Any]) -> None:
    found = job(**algorithm)
    assert found.spec.algorithm.type == "PPO"
    assert note_on(found.spec) == NO_ALGORITHM


@pytest.mark.parametrize(
    "spec",
    [
        {"algorithm": {"type": "PPO"}},
        {"algorithm": {"type": "IMPALA"}},
        {"algorithm": {"impala": {}}},
        {"preset": "PPOVector"},
    ],
)
def test_where_one_is_named_nothing_is_said(spec: dict[str, Any]) -> None:
    assert note_on(job(**spec).spec) == ""


def test_what_belongs_to_another_is_refused() -> None:
    with pytest.raises(ManifestError, match="not allowed with algorithm PPO"):
        job(replay={})


@pytest.mark.parametrize(
    ("block", "type_"), [("apeXDQN", "ApeXDQN"), ("impala", "IMPALA"), ("ppo", "PPO"), ("custom", "Custom")]
)
def test_a_block_says_of_which_algorithm_it_is(block: str, type_: str) -> None:
    found = job(algorithm={block: {"factory": "mine:make"} if block == "custom" else {}})
    assert found.spec.algorithm.type == type_


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("id_", ["CartPole-v1", "Taxi-v4", "Pendulum-v1", "LunarLander-v3", "ALE/Breakout-v5"])
def test_the_defaults_fit_each_other_whatever_is_played(id_: str, replicas: int) -> None:
    found = job(environment={"id": id_}, actors={"replicas": replicas}).spec
    assert found.algorithm.parameters_as(PPOParameters).batch_size >= replicas * found.actors.envs_per_actor
    assert found.replay is None
    assert parse_job(in_force(job(environment={"id": id_}))).spec.algorithm.type == "PPO"
