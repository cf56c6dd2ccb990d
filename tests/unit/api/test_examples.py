"""The manifests that are shipped: all valid, and saying what their comments promise."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rljob.api import (
    ManifestError,
    RLJob,
    dump_manifest,
    load_manifest,
    not_applied_locally,
    parse_job,
)
from rljob.api.document import parse_document

from tests.support.paths import EXAMPLES, MANIFESTS, ROOT

PAGE = ROOT / "docs" / "examples.md"


def example(name: str) -> RLJob:
    return load_manifest(EXAMPLES / f"{name}.yaml")


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_valid_and_unchanged_by_writing_and_reading(file: Path) -> None:
    job = load_manifest(file)
    assert (job.metadata.name, parse_job(parse_document(dump_manifest(job).encode(), "dump"))) == (file.stem, job)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("pong-vtrace", "PongVTrace"),
        ("pong-ppo", "PongPPO"),
        ("pong-apex", "PongApeX"),
        ("cartpole-apex", "CartPoleApeX"),
        ("cartpole-impala", "CartPoleIMPALA"),
    ],
)
def test_a_quickstart_is_its_preset(name: str, preset: str) -> None:
    """A user who copies one reads the least that a manifest can be."""
    job = example(name)
    assert (job.spec.preset, job.spec.model_fields_set) == (preset, {"preset"})


def test_what_the_variations_train() -> None:
    """What their comments promise, of the values that matter."""
    large = example("pong-impala-84x84").spec
    found = (large.environment.parameters.atari.frame_size, large.success_policy.target_return.value)
    assert (large.algorithm.parameters.updates_per_batch, *found) == (32, 84, 18)
    nature, breakout = example("pong-apex-nature").spec, example("breakout-apex").spec
    assert nature.algorithm.parameters == breakout.algorithm.parameters
    assert breakout.environment.parameters.atari.life_loss == "EndsEpisode"
    assert example("pong-central").spec.algorithm == example("pong-apex").spec.algorithm
    assert example("custom-env").spec.environment.parameters.kwargs == {"difficulty": 1}


def test_the_page_lists_each() -> None:
    listed = re.findall(r"\[`[\w.-]+`\]\(\.\./([\w./-]+\.yaml)\)", PAGE.read_text())
    assert sorted(listed) == sorted(str(file.relative_to(ROOT)) for file in MANIFESTS)


def without_each_field(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(its path, a copy without it), for every field below ``node`` that is no section."""
    for name, item in node.items():
        if isinstance(item, dict) and item:
            yield from ((f"{name}.{path}", {**node, name: rest}) for path, rest in without_each_field(item))
        elif name != "type":  # PPO learns without it, and a reader looks for it
            yield name, {key: other for key, other in node.items() if key != name}


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_an_example_shows_nothing_that_holds_anyway(file: Path) -> None:
    """A value that the preset or a default has already looks like a choice, and goes out of date."""
    document, job = parse_document(file.read_bytes(), file.name), load_manifest(file)
    for path, spec in without_each_field(document["spec"]):
        try:
            shorter = parse_job({**document, "spec": spec})
        except ManifestError:
            continue
        assert shorter.spec != job.spec, path


def test_what_one_machine_does_not_apply() -> None:
    cluster = EXAMPLES / "pong-apex-cluster.yaml"
    named = not_applied_locally(
        load_manifest(cluster, ["spec.network.encryption=None", "spec.monitoring.metricsPort=9100"])
    )
    assert {
        "metadata.labels.kueue.x-k8s.io/queue-name",
        "spec.image",
        "spec.learner.nodeSelector",
        "spec.learner.tolerations",
        "spec.actors.topologySpread",
        "spec.network",
        "spec.monitoring",
        "spec.checkpoint.storage.persistentVolumeClaim",
    } <= set(named)
    assert not any(path.startswith(("spec.algorithm", "spec.environment", "spec.successPolicy")) for path in named)
    nothing = ["spec.suspend=false", "spec.actors.podTemplate={}"]
    assert not_applied_locally(load_manifest(cluster, nothing)) == not_applied_locally(load_manifest(cluster))
    bucket = not_applied_locally(example("cartpole-s3"))
    assert bucket == ["spec.checkpoint.storage.objectStore.secretRef"], "a bucket is one from here, too"
    for file in ("cartpole-apex", "pong-vtrace"):
        assert not_applied_locally(example(file)) == [], "what a preset says was not asked for"
    assert "spec.autoscaling" not in not_applied_locally(
        load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.autoscaling.mode=Disabled"])
    )


def applied_of_cartpole(*overrides: str) -> list[str]:
    return not_applied_locally(load_manifest(EXAMPLES / "cartpole-apex.yaml", overrides))


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
    assert applied_of_cartpole("spec.learner.resources.requests={cpu: '2'}") == []
    more = "{requests: {cpu: '2', memory: 1Gi}, limits: {cpu: '2', nvidia.com/gpu: 1}}"
    named = ["spec.learner.resources.requests.memory", "spec.learner.resources.limits.cpu"]
    assert applied_of_cartpole(f"spec.learner.resources={more}") == named


def test_variables_are_applied_locally_but_for_those_that_a_cluster_takes_from_elsewhere() -> None:
    env = "[{name: A, value: b}, {name: PASSWORD, valueFrom: {secretKeyRef: {name: a, key: b}}}]"
    found = applied_of_cartpole(f"spec.actors.env={env}", "spec.learner.env=[{name: A}]")
    assert found == ["spec.actors.env[PASSWORD]"]
