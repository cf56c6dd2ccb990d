"""The file of ``rljob operator --config``: what it changes, and what is said of a wrong one."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given as drawn, settings, strategies as st
from jsonschema import Draft7Validator
from rljob.api import ManifestError
from rljob.api.generate.schema import schema_of
from rljob_operator.core.member import Role
from rljob_operator.generate import CONFIGURATION_PAGE, RULES_FILE, SCHEMA_FILE, generated, strict
from rljob_operator.kube.process.configuration import OperatorConfiguration, checked, read_configuration, settings_of
from rljob_operator.kube.render.settings import REQUESTS, Settings, SpotMarks, default_image

from tests.support.paths import ROOT
from tests.unit.api.test_documents import VALUES, places, replaced

SCHEMA = Draft7Validator(strict(schema_of(OperatorConfiguration, "config")))

FULL = """
image: registry.example.com/rl:1
gpuImage: registry.example.com/rl:1-gpu
spot:
  taints: [{key: spot, value: ""}]
  labels: [{key: spot, value: "yes"}]
gpuNodes: {labels: [gpu], keepOff: None}
prometheusNamespaces: {team: watch}
clusterDomain: cluster.local
runAsUser: 2000
checkpointClaim: {size: 10Gi, storageClass: fast}
architectures: [arm64]
kueue: {enabled: true}
requests:
  learner: {cpu: 4, example.com/fast: "1"}
  redis: {memory: 1Gi}
"""
BAD = [
    ("image: 1", "image", "allowed: a container image"),
    ("image: a b", "image", "allowed: a container image"),
    ("gpuimage: a", "gpuimage", "unknown field; did you mean 'gpuImage'?"),
    ("spot: {taints: [{key: a}]}", "spot.taints[0].value", "required"),
    ("spot: {labels: {a: b}}", "spot.labels", "allowed: a list"),
    ("gpuNodes: {keepOff: Preferd}", "gpuNodes.keepOff", "did you mean 'Preferred'?"),
    ("gpuNodes: {keepOff: no}", "gpuNodes.keepOff", "allowed: Preferred, Required, None"),
    ("prometheusNamespaces: monitoring", "prometheusNamespaces", "allowed: a mapping"),
    ("clusterDomain: Cluster.Local", "clusterDomain", "allowed: a DNS domain"),
    ("runAsUser: 0", "runAsUser", "allowed: an integer from 1"),
    ("runAsUser: '10001'", "runAsUser", "allowed: an integer from 1"),
    ("userFromNamespace: 'true'", "userFromNamespace", "allowed: true or false"),
    ("kueue: true", "kueue", "allowed: a mapping"),
    ("kueue: {enable: true}", "kueue.enable", "did you mean 'enabled'?"),
    ("requests: {actors: {cpu: 1}}", "requests.actors", "did you mean 'actor'?"),
    ("requests: {actor: {cpu: lots}}", "requests.actor.cpu", "allowed: a Kubernetes quantity"),
]


def written(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(text)
    return file


def settings_in(folder: Path, text: str, image: str | None = None) -> Settings:
    return settings_of(read_configuration(written(folder, text)), "here", image)


def test_nothing_written_is_what_is_built_in(tmp_path: Path) -> None:
    assert settings_in(tmp_path, "{}") == settings_of(OperatorConfiguration(), "here")
    here = {"kubernetes.io/metadata.name": "here"}
    built_in = Settings(image=default_image(), gpu_image=f"{default_image()}-gpu", operator_namespaces=here)
    assert settings_in(tmp_path, "{}") == built_in
    assert settings_in(tmp_path, "image: rl:1").gpu_image == "", "an image of one's own is not guessed another name for"


def test_every_field_counts(tmp_path: Path) -> None:
    found = settings_in(tmp_path, FULL)
    expected = {
        "image": "registry.example.com/rl:1",
        "gpu_image": "registry.example.com/rl:1-gpu",
        "spot": SpotMarks(taints=(("spot", ""),), labels=(("spot", "yes"),)),
        "gpu_node_labels": ("gpu",),
        "keep_off_gpu_nodes": "None",
        "prometheus_namespaces": {"team": "watch"},
        "cluster_domain": "cluster.local",
        "run_as_user": 2000,
        "checkpoint_size": "10Gi",
        "checkpoint_class": "fast",
        "kueue": True,
        "architectures": ("arm64",),
        "redis_requests": {"cpu": "100m", "memory": "1Gi"},
    }
    assert {name: getattr(found, name) for name in expected} == expected
    learner = {"cpu": "4", "memory": REQUESTS[Role.LEARNER]["memory"], "example.com/fast": "1"}
    assert (found.requests[Role.LEARNER], found.requests[Role.ACTOR]) == (learner, REQUESTS[Role.ACTOR])
    written_in = set(yaml.safe_load(FULL)) | {"userFromNamespace"}
    assert written_in == {field.alias for field in OperatorConfiguration.model_fields.values()}


def test_what_switches_something_off(tmp_path: Path) -> None:
    found = settings_in(tmp_path, "{prometheusNamespaces: {}, userFromNamespace: true, gpuNodes: {labels: []}}")
    assert (found.prometheus_namespaces, found.run_as_user, found.gpu_node_labels) == (None, None, ())


def test_an_option_wins_over_the_file(tmp_path: Path) -> None:
    assert settings_in(tmp_path, FULL, image="rl:2").image == "rl:2"


@pytest.mark.parametrize(("text", "path", "words"), BAD, ids=[case[0] for case in BAD])
def test_a_wrong_one_is_refused_with_its_place(tmp_path: Path, text: str, path: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ManifestError) as refused:
        read_configuration(file)
    (problem,) = refused.value.problems
    assert (problem.path, words in problem.message) == (f"{file}: {path}", True)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as refused:
        read_configuration(written(tmp_path, "{image: 1, runAsUser: 0, more: 1}"))
    assert len(refused.value.problems) == 3


@pytest.mark.parametrize("text", ["", "- image", "image: a\nimage: b\n"], ids=["nothing", "a list", "a key twice"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError):
        read_configuration(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        read_configuration(tmp_path / "none.yaml")


@settings(max_examples=300)
@drawn(st.data())
def test_any_document_is_taken_or_refused_and_the_chart_refuses_none_that_is_taken(data: st.DataObject) -> None:
    document = dict(yaml.safe_load(FULL))
    for place, value in data.draw(st.lists(st.tuples(st.sampled_from(places(document)), VALUES), max_size=4)):
        document = replaced(document, place, value)
    try:
        settings_of(checked(document, "drawn"), "here")
    except ManifestError as refused:
        for problem in refused.problems:
            assert problem.path.startswith("drawn: ")
            assert any(word in problem.message for word in ("allowed", "unknown", "required")), str(problem)
    else:
        # A null counts as not given, and only here.
        given = {name: value for name, value in document.items() if value is not None}
        assert [error.message for error in SCHEMA.iter_errors(given)] == []


@pytest.mark.parametrize("path", [RULES_FILE, SCHEMA_FILE, CONFIGURATION_PAGE], ids=str)
def test_generated_files_are_current(path: Path) -> None:
    assert (ROOT / path).read_text() == generated(ROOT)[path], "run: make generate"


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x")])
def test_images_run_on_nodes_like_the_operators_own_unless_it_is_told_others(
    machine: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built_for(text: str) -> tuple[str, ...]:
        return settings_in(tmp_path, text).architectures

    monkeypatch.setattr("platform.machine", lambda: machine)
    assert built_for("{}") == (), "a laptop is no node"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    texts = ("{}", "architectures: [arm64, amd64]", "architectures: []")
    assert [built_for(text) for text in texts] == [(name,), ("arm64", "amd64"), ()]
