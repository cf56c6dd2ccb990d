"""What ``helm upgrade --wait`` of Helm 4, which reads kstatus as Flux and kpt do, makes of a job in each of its states."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rljob.api.status import RLJobStatus

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.support.chart import Chart, HelmRefused, find_program
from tests.support.controller import Controller, exited, make_job, member, members, running, sample
from tests.unit.api.bad_manifests import BASE
from tests.unit.api.written import document

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


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    program = find_program("helm")
    if program is None:
        pytest.skip("helm is neither on the PATH nor in KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("chart")
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "job", "version": "0.1.0"}))
    (folder / "templates" / "job.yaml").write_text(json.dumps(document(BASE)))
    found = Chart(program, tmp_path_factory.mktemp("helm"), folder)
    if not found.run("version", "--short").startswith("v4"):
        pytest.skip("Helm 3 does not wait for custom resources")
    return found


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
    cluster: ControlPlane, chart: Chart, namespace: str, state: Callable[[], RLJobStatus] | None, refused: str
) -> None:
    place = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    chart.run("install", "rl", str(chart.folder), *place, "--wait=hookOnly")
    if state is not None:
        path = f"{jobs.JOBS.replace('default', namespace)}/pong/status"
        said: dict[str, Any] = state().document() | {"observedGeneration": 1}
        code, answer = cluster.request("PATCH", path, {"status": said}, "application/merge-patch+json")
        assert code == 200, answer
    wait = ("upgrade", "rl", str(chart.folder), *place, "--wait", f"--timeout={SECONDS}s")
    if not refused:
        chart.run(*wait)
        return
    with pytest.raises(HelmRefused, match=refused):
        chart.run(*wait)
