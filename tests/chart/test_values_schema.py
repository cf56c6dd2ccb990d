"""Wrong values are refused with their place, by Helm itself; a chart within another one works; what is generated is current."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rljob_operator.generate import CHART as FOLDER, INSTALL_FILE, README_FILE, chart_readme, install_manifest

from tests.support.chart import CHART, Chart, HelmRefused, find_program, only
from tests.support.paths import ROOT

BAD: list[tuple[Any, tuple[str, ...]]] = [
    # values, places and words of the refusal
    ({"replica": 3}, ("replica",)),
    ({"replicas": "3"}, ("/replicas",)),
    ({"replicas": -1}, ("/replicas",)),
    # as `--set config=null` takes a section away, and `helm upgrade --reuse-values` lacks those that are new
    ({"config": None}, ("missing propert", "config")),
    ({"monitoring": {"podMonitor": None}}, ("/monitoring", "missing propert", "podMonitor")),
    ({"image": "rljob-operator:1"}, ("/image",)),
    ({"image": {"tag": 1.2}}, ("/image/tag",)),
    ({"image": {"tag": "a b"}}, ("/image/tag",)),
    ({"image": {"digest": "sha256:abc"}}, ("/image/digest",)),
    ({"image": {"repository": "rljob-operator:1.2"}}, ("/image/repository",)),
    ({"image": {"registry": "r.example.com/"}}, ("/image/registry",)),
    ({"image": {"pullPolicy": "Sometimes"}}, ("/image/pullPolicy",)),
    ({"imagePullSecrets": ["pull"]}, ("/imagePullSecrets/0",)),
    ({"watchNamespaces": "team-a"}, ("/watchNamespaces",)),
    ({"watchNamespaces": ["Team A"]}, ("/watchNamespaces/0",)),
    ({"watchNamespaces": ["a", "a"]}, ("/watchNamespaces",)),
    ({"conflictCheck": "false"}, ("/conflictCheck",)),
    ({"crds": {"keep": "yes"}}, ("/crds/keep",)),
    ({"crds": {"install": True}}, ("/crds", "install")),
    ({"workers": 0}, ("/workers",)),
    ({"logFormat": "json"}, ("/logFormat",)),
    ({"port": 80}, ("/port",)),
    ({"rbac": {"rules": []}}, ("/rbac", "rules")),
    ({"serviceAccount": {"annotations": {"a": 1}}}, ("/serviceAccount/annotations/a",)),
    ({"service": {"type": "None"}}, ("/service/type",)),
    ({"service": {"port": 0}}, ("/service/port",)),
    ({"podDisruptionBudget": {"maxUnavailable": "half"}}, ("/podDisruptionBudget/maxUnavailable",)),
    ({"networkPolicy": {"apiServerPorts": ["https"]}}, ("/networkPolicy/apiServerPorts/0",)),
    ({"resources": {"request": {}}}, ("/resources", "request")),
    ({"livenessProbe": {"httpGet": {}}}, ("/livenessProbe", "httpGet")),
    ({"terminationGracePeriodSeconds": 0}, ("/terminationGracePeriodSeconds",)),
    ({"strategy": {"type": "Blue"}}, ("/strategy/type",)),
    ({"priorityClass": {"value": "high"}}, ("/priorityClass/value",)),
    ({"priorityClass": {"value": 2000000000}}, ("/priorityClass/value",)),
    ({"priorityClass": {"name": "High"}}, ("/priorityClass/name",)),
    ({"config": {"kueue": {"enable": True}}}, ("/config/kueue", "enable")),
    ({"nodeSelector": {"a": True}}, ("/nodeSelector/a",)),
    ({"tolerations": {"key": "a"}}, ("/tolerations",)),
    ({"extraArgs": ["port=1"]}, ("/extraArgs/0",)),
    ({"extraEnv": {"A": "b"}}, ("/extraEnv",)),
    ({"extraVolumeMounts": [{"name": "v"}]}, ("/extraVolumeMounts/0", "mountPath")),
    ({"config": {"gpuNode": {}}}, ("/config", "gpuNode")),
    ({"config": {"gpuNodes": {"keepOff": False}}}, ("/config/gpuNodes/keepOff",)),
    ({"config": {"runAsUser": 0}}, ("/config/runAsUser",)),
    ({"config": {"requests": {"actor": {"cpu": "lots"}}}}, ("/config/requests/actor/cpu",)),
    ({"config": {"spot": {"taints": [{"key": "a"}]}}}, ("/config/spot/taints/0", "value")),
    ({"serviceAccount": {"create": False}}, ("serviceAccount.name",)),
]


@pytest.mark.parametrize(("values", "words"), BAD, ids=[str(case[0])[:60] for case in BAD])
def test_a_wrong_value_is_refused_with_its_place(chart: Chart, values: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(HelmRefused) as refused:
        chart.render(values)
    for word in words:
        assert refused.value.names(word) if word.startswith("/") else word in str(refused.value), refused.value


def test_a_cluster_that_is_too_old_is_refused(chart: Chart) -> None:
    with pytest.raises(HelmRefused, match=r">=1\.29\.0-0.* incompatible with Kubernetes v1\.28\.3"):
        chart.render({}, "--kube-version=1.28.3")
    assert chart.render({}, "--kube-version=1.29.0-gke.100")


def test_lint_finds_nothing(chart: Chart) -> None:
    said = chart.run("lint", str(chart.folder), "--strict")
    assert "[ERROR]" not in said
    assert "[WARNING]" not in said


@pytest.fixture
def parent(chart: Chart, tmp_path: Path) -> Chart:
    """A chart of another author that has this one as a dependency."""
    folder = tmp_path / "parent"
    shutil.copytree(CHART, folder / "charts" / CHART.name)
    dependency = {"name": CHART.name, "version": "0.1.0", "condition": f"{CHART.name}.enabled"}
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    (folder / "values.yaml").write_text("global: {imageRegistry: r.example.com, anything: [1]}\n")
    return chart.of(folder)


def test_as_a_chart_of_another(parent: Chart) -> None:
    assert only(parent.render({CHART.name: {"enabled": True, "replicas": 3}}), "Deployment")["spec"]["replicas"] == 3
    assert parent.render({CHART.name: {"enabled": False}}) == []
    with pytest.raises(HelmRefused) as refused:
        parent.render({CHART.name: {"replicas": "3"}})
    assert refused.value.names("/replicas") or refused.value.names(f"/{CHART.name}/replicas")


def documents(text: str) -> list[object]:
    """Helm's versions differ in empty lines between objects."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def test_the_install_manifest(chart: Chart) -> None:
    written = (ROOT / INSTALL_FILE).read_text()
    assert documents(written) == documents(install_manifest(ROOT / FOLDER, chart.helm)), "run: make generate"
    assert "helm" not in written.lower().replace("without helm", "")


def test_the_readme() -> None:
    program = find_program("helm-docs")
    if program is None:
        pytest.skip("helm-docs is not on the PATH")
    assert (ROOT / README_FILE).read_text() == chart_readme(ROOT / FOLDER, program), "run: make generate"
    undescribed = re.findall(r"^\| (\S+) .*\|  \|$", (ROOT / README_FILE).read_text(), re.MULTILINE)
    assert [value for value in undescribed if not value.startswith("monitoring")] == []
