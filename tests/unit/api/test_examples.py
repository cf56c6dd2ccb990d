"""The manifests that are shipped: all valid, and saying what their comments promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import RLJob, RLJobSpec, dump_manifest, load_manifest, not_applied_locally, parse_job
from rljob.api.document import parse_document

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def example(name: str) -> RLJob:
    return load_manifest(EXAMPLES / f"{name}.yaml")


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_valid_and_unchanged_by_writing_and_reading(file: Path) -> None:
    job = load_manifest(file)
    assert job.metadata.name == file.stem
    assert parse_job(parse_document(dump_manifest(job).encode(), "dump")) == job


@pytest.mark.parametrize("name", ["pong-apex", "pong-impala", "pong-vtrace"])
def test_a_quickstart_is_its_preset(name: str) -> None:
    """The values in the file only show the preset; changing one of the two alone would mislead."""
    shown = example(name).spec.algorithm
    alone = shown.model_copy(
        update={"parameters": [item for item in shown.parameters if item.name in ("preset", "seed")]}
    )
    assert shown.resolved() == alone.resolved()
    assert example(name).spec.environment.resolved().actions == (0, 2, 3)


def test_cartpole_is_its_preset() -> None:
    shown = example("cartpole-apex").spec.algorithm
    alone = shown.model_copy(update={"parameters": [item for item in shown.parameters if item.name == "preset"]})
    assert shown.resolved() == alone.resolved()


def test_the_cluster_example_uses_every_field() -> None:
    spec = example("pong-apex-cluster").spec
    assert spec.model_fields_set == set(RLJobSpec.model_fields) - {"queue"}, "queue is IMPALA's"


def test_what_one_machine_does_not_apply() -> None:
    named = not_applied_locally(example("pong-apex-cluster"))
    assert {
        "metadata.labels.kueue.x-k8s.io/queue-name",
        "spec.image",
        "spec.learner.placement",
        "spec.network",
        "spec.scheduling",
        "spec.monitoring",
        "spec.checkpoint.storage",
    } <= set(named)
    assert "spec.suspend" not in named, "suspend: false asks for nothing"
    assert "spec.learner.podTemplate" not in named, "an empty patch asks for nothing"
    assert not any(path.startswith(("spec.algorithm", "spec.environment", "spec.successPolicy")) for path in named)
    assert not_applied_locally(example("cartpole-apex")) == []
    assert "spec.autoscaling" not in not_applied_locally(
        load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.autoscaling.mode=Disabled"])
    )


@pytest.mark.parametrize("role", ["actors", "evaluator"])
def test_the_cores_of_those_who_play_are_applied_locally(role: str) -> None:
    """limits.cpu, or else requests.cpu, is the number of an actor's threads and of an evaluator's processes."""
    file = EXAMPLES / "cartpole-apex.yaml"
    job = load_manifest(
        file, [f"spec.{role}.resources={{requests: {{cpu: '1', memory: 1Gi}}, limits: {{cpu: '2500m'}}}}"]
    )
    assert not_applied_locally(job) == [f"spec.{role}.resources.requests.memory"]
    assert getattr(job.spec, role).resources.cores() == 2
    for text, cores in (("{}", 1), ("{requests: {cpu: '3'}}", 3), ("{requests: {cpu: '500m'}}", 1)):
        assert load_manifest(file, [f"spec.actors.resources={text}"]).spec.actors.resources.cores() == cores


def test_the_threads_of_the_learner_are_applied_locally() -> None:
    """requests.cpu is the number of threads torch computes with; the rest of the resources means nothing here."""
    file = EXAMPLES / "cartpole-apex.yaml"
    assert not_applied_locally(load_manifest(file, ["spec.learner.resources.requests={cpu: '2'}"])) == []
    assert not_applied_locally(
        load_manifest(file, ["spec.learner.resources={requests: {cpu: '2', memory: 1Gi}, limits: {cpu: '2'}}"])
    ) == ["spec.learner.resources.requests.memory", "spec.learner.resources.limits"]
