"""The Workloads of every example, every preset and a job with everything, as Kueue's definition takes them."""

import copy
from typing import Any

import pytest
from rljob.api import parse_job, read_manifest
from rljob.api.presets import PRESETS
from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.resources import WORKLOADS
from rljob_operator.kube.render import workload
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, kept, of_preset
from tests.cluster.test_rendered_objects import EVERYTHING
from tests.unit.api.bad_manifests import EXAMPLES, PRESET

SETTINGS = Settings(image="rljob-worker:test", kueue=True)
JOBS: dict[str, dict[str, Any]] = {
    **{file.stem: read_manifest(file) for file in EXAMPLES},
    **{name: read_manifest(PRESET, of_preset(name)) for name in PRESETS},
    "everything": read_manifest(PRESET, ["spec.preset=PongApeX", *EVERYTHING]),
}
TRY = f"{WORKLOADS.path('default')}?{STRICT}&dryRun=All"


def asked_for(name: str) -> list[dict[str, Any]]:
    """The Workload of its core, and one of a block of actors."""
    written = JOBS[name]
    owned = Owned(parse_job({**written, "metadata": {**written["metadata"], "namespace": "default"}}), "uid")
    sets = {
        "pong": workload.core(owned, SETTINGS),
        "pong.actors-0": [workload.pod_set(owned, Role.ACTOR, 16, SETTINGS)],
    }
    named = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
    rest = {"queueName": "team", "priority": 7, "priorityClassRef": named}
    return [workload.workload(owned, each, {"podSets": found, **rest}) for each, found in sets.items()]


@pytest.mark.parametrize("name", JOBS)
def test_it_is_admitted_and_nothing_of_it_is_dropped(with_kueue: ControlPlane, name: str) -> None:
    for document in asked_for(name):
        answer = with_kueue.create(TRY, document)
        assert kept(document["spec"], answer["spec"])


@pytest.mark.parametrize("wrong", [{"queue": "team"}, {"queueName": 1}, {"podSets": []}], ids=str)
def test_what_is_wrong_is_refused(with_kueue: ControlPlane, wrong: dict[str, Any]) -> None:
    """So that the test above can fail: the kind has a schema."""
    document = copy.deepcopy(asked_for("everything")[0])
    document["spec"].update(wrong)
    code, answer = with_kueue.request("POST", TRY, document)
    assert code in (400, 422), answer
