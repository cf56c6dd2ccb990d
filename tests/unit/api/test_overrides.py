"""``--set``: what it addresses, what it leaves alone, and that no text makes it do anything but apply or refuse."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.api import ManifestError, load_manifest
from rljob.api.overrides import apply_overrides, split_override

BASE = Path(__file__).parent / "base.yaml"
NAMES = st.from_regex(r"[a-z][A-Za-z0-9]{0,8}", fullmatch=True).filter(lambda name: name != "parameters")


def test_values_are_yaml() -> None:
    job = load_manifest(
        BASE,
        [
            "spec.actors.replicas=2",
            "spec.evaluator.enabled=false",
            "spec.replay.prioritization.exponent=0.7",
            'spec.replay.prioritization.importance="0.3"',
            "spec.learner.resources.requests={cpu: 500m, memory: 2Gi}",
            "spec.actors.placement.nodeSelector.zone=a=b",
        ],
    )
    assert job.spec.actors.replicas == 2
    assert job.spec.evaluator.enabled is False
    assert (job.spec.replay.prioritization.exponent, job.spec.replay.prioritization.importance) == (0.7, 0.3)
    assert job.spec.learner.resources.requests == {"cpu": "500m", "memory": "2Gi"}
    assert job.spec.actors.placement.node_selector == {"zone": "a=b"}


def test_parameters_are_addressed_by_name() -> None:
    job = load_manifest(
        BASE,
        [
            "spec.algorithm.parameters.gamma=0.9",
            "spec.algorithm.parameters.compile=true",
            "spec.algorithm.parameters.batchSize=",
            "spec.environment.parameters.actions=0,2,3",
            'spec.environment.parameters.kwargs={"mode": 1}',
        ],
    )
    parameters = job.spec.algorithm.resolved()
    assert (parameters.gamma, parameters.compile, parameters.batch_size) == (0.9, True, 512)
    assert job.spec.environment.resolved().actions == (0, 2, 3)
    assert job.spec.environment.resolved().factory_options == {"mode": 1}
    assert [item.name for item in job.spec.algorithm.parameters] == ["gamma", "compile"]


def test_parameters_without_a_list_in_the_manifest() -> None:
    document = apply_overrides({"spec": {"algorithm": {"name": "ApeXDQN"}}}, ["spec.algorithm.parameters.gamma=0.9"])
    assert document["spec"]["algorithm"]["parameters"] == [{"name": "gamma", "value": "0.9"}]


def test_the_last_override_wins_and_empty_restores_the_default() -> None:
    assert load_manifest(BASE, ["spec.actors.replicas=2", "spec.actors.replicas=3"]).spec.actors.replicas == 3
    assert load_manifest(BASE, ["spec.actors.replicas=2", "spec.actors.replicas="]).spec.actors.replicas == 1


def test_every_bad_override_is_named() -> None:
    with pytest.raises(ManifestError) as caught:
        apply_overrides({}, ["x", "spec.a=1", "y=1"])
    assert [problem.value for problem in caught.value.problems] == ["x", "y=1"]


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers() | st.booleans())
def test_what_is_set_is_found_there(path: list[str], value: Any) -> None:
    original: dict[str, Any] = {"spec": {"kept": [1, {"deep": 2}]}}
    before = copy.deepcopy(original)
    text = str(value).lower()
    node: Any = apply_overrides(original, [f"spec.new.{'.'.join(path)}={text}"])
    assert original == before, "the document given is not changed"
    assert node["spec"]["kept"] == before["spec"]["kept"]
    for part in ["spec", "new", *path]:
        node = node[part]
    assert node == value


@given(st.lists(NAMES, min_size=1, max_size=6), st.text(max_size=20))
def test_splitting_is_the_inverse_of_joining(path: list[str], value: str) -> None:
    assert split_override(f"spec.{'.'.join(path)}={value}") == (("spec", *path), value.strip())


@settings(deadline=None)  # each case reads and checks a whole manifest
@given(
    st.text(max_size=60),
    st.sampled_from(["", "spec.", "spec.algorithm.parameters.", "spec.actors.", "metadata.labels="]),
)
def test_any_text_applies_or_is_refused(text: str, start: str) -> None:
    with contextlib.suppress(ManifestError):  # nothing else may come out
        load_manifest(BASE, [start + text])
