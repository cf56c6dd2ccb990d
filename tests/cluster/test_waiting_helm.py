"""What ``helm upgrade --wait`` of Helm 4, which reads kstatus as Flux and kpt do, makes of a job in each of its states."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from rljob.api.status import RLJobStatus

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.support.chart import Chart, HelmRefused
from tests.support.controller import Controller, exited, make_job, member, members, running, sample
from tests.unit.api.bad_manifests import BASE, document

SECONDS = 4
"""How long Helm waits for what does not come."""


def starts() -> RLJobStatus:
    controller = Controller(make_job())
    controller.look(1.0, members=(member("replay-0"),), learner=None)
    return controller.status


def runs() -> RLJobStatus:
    return running().status


def is_done() -> RLJobStatus:
    controller = running("spec.successPolicy.rawFrames=4000")
    controller.look(1.0, learner=sample(controller.now + 1, 1001))
    controller.look(1.0, members=())
    assert controller.status.is_true("Complete")
    return controller.status


def has_failed() -> RLJobStatus:
    controller = running()
    controller.look(1.0, members=exited("learner", members(), exit_code=78))
    controller.look(1.0, members=())
    assert controller.status.is_true("Failed")
    return controller.status


@pytest.fixture
def chart_of_a_job(chart: Chart, tmp_path: Path) -> Chart:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "job", "version": "0.1.0"}))
    (tmp_path / "templates" / "job.yaml").write_text(json.dumps(document(BASE)))
    if not chart.run("version", "--short").startswith("v4"):
        pytest.skip("Helm 3 does not wait for custom resources")
    return chart.of(tmp_path)


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        (None, "InProgress"),
        (starts, "InProgress"),
        (runs, ""),
        (is_done, ""),
        (has_failed, "Failed"),
    ],
)
def test_helm_waits_for_what_starts_and_for_nothing_else(
    cluster: ControlPlane, chart_of_a_job: Chart, namespace: str, state: Callable[[], RLJobStatus] | None, refused: str
) -> None:
    words = (str(chart_of_a_job.folder), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    chart_of_a_job.run("install", "rl", *words, "--wait=hookOnly")
    if state is not None:
        said = state().document() | {"observedGeneration": 1}
        cluster.change(f"{jobs.JOBS.replace('default', namespace)}/pong/status", {"status": said})
    with pytest.raises(HelmRefused, match=refused) if refused else nullcontext():
        chart_of_a_job.run("upgrade", "rl", *words, "--wait", f"--timeout={SECONDS}s")
