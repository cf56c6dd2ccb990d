"""A manifest that names no algorithm: PPO learns, and that is said."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api import RLJob, parse_job
from rljob.api.presets.merging import NO_ALGORITHM, note_on
from rljob.api.problems import ManifestError


def job(**spec: Any) -> RLJob:
    head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "by-its-id"}}
    return parse_job({**head, "spec": {"environment": {"id": "Pendulum-v1"}, **spec}})


@pytest.mark.parametrize("algorithm", [{}, {"algorithm": {}}, {"algorithm": {"ppo": {"gamma": 0.9}}}])
def test_ppo_learns_and_it_is_said(algorithm: dict[str, Any]) -> None:
    found = job(**algorithm)
    assert found.spec.algorithm.type == "PPO"
    assert note_on(found.spec) == NO_ALGORITHM


@pytest.mark.parametrize(
    "spec", [{"algorithm": {"type": "PPO"}}, {"algorithm": {"type": "IMPALA"}}, {"preset": "PPOVector"}]
)
def test_where_one_is_named_nothing_is_said(spec: dict[str, Any]) -> None:
    assert note_on(job(**spec).spec) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"algorithm": {"impala": {}}},
            "PPO, which it is unless algorithm.type says another: only the block ppo; remove impala",
        ),
        ({"replay": {}}, "not allowed with algorithm PPO"),
    ],
)
def test_what_belongs_to_another_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ManifestError, match="spec") as refused:
        job(**spec)
    assert words in str(refused.value)
