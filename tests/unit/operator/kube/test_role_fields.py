"""Every field that a manifest has for a role's pods reaches them, of whichever role; a field that is new has no row here yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rljob.api.pods import RoleSpec
from rljob_operator.core.member import Role
from rljob_operator.kube.render.settings import Settings

from .rendered import MEMBERS, pod_of, with_section, worker

Check = Callable[[dict[str, Any]], bool]

REQUIRED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]}}}  # fmt: skip
SCRATCH = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}
MOUNT = {"name": "scratch", "mountPath": "/scratch", "readOnly": True}
SECRET = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}

ROWS: dict[str, tuple[Any, Check]] = {
    "resources": (
        {"requests": {"cpu": "3", "example.com/fpga": "1"}, "limits": {"memory": "5Gi", "example.com/fpga": "1"}},
        lambda pod: (
            worker(pod)["resources"]
            == {
                "requests": {"cpu": "3", "example.com/fpga": "1"},
                "limits": {"memory": "5Gi", "example.com/fpga": "1"},
            }
        ),
    ),
    "image": ("mine:2", lambda pod: worker(pod)["image"] == "mine:2"),
    "env": (
        [{"name": "A", "value": "$(RLJOB_NAME)"}, SECRET],
        lambda pod: worker(pod)["env"][-2:] == [{"name": "A", "value": "$(RLJOB_NAME)"}, SECRET],
    ),
    "volumes": ([SCRATCH], lambda pod: SCRATCH in pod["spec"]["volumes"]),
    "volumeMounts": ([MOUNT], lambda pod: MOUNT in worker(pod)["volumeMounts"]),
    "serviceAccountName": ("robot", lambda pod: pod["spec"]["serviceAccountName"] == "robot"),
    "nodeSelector": ({"disk": "ssd"}, lambda pod: pod["spec"]["nodeSelector"] == {"disk": "ssd"}),
    "tolerations": (
        [{"key": "team", "operator": "Exists"}],
        lambda pod: {"key": "team", "operator": "Exists"} in pod["spec"]["tolerations"],
    ),
    "affinity": (
        REQUIRED,
        lambda pod: REQUIRED["nodeAffinity"].items() <= pod["spec"]["affinity"]["nodeAffinity"].items(),
    ),
    "priorityClassName": ("high", lambda pod: pod["spec"]["priorityClassName"] == "high"),
    "runtimeClassName": ("gvisor", lambda pod: pod["spec"]["runtimeClassName"] == "gvisor"),
    "topologySpread": (
        "Required",
        lambda pod: (
            [each["whenUnsatisfiable"] for each in pod["spec"]["topologySpreadConstraints"]] == ["DoNotSchedule"]
        ),
    ),
    "podTemplate": (
        {"metadata": {"annotations": {"a": "b"}}, "spec": {"dnsPolicy": "Default"}},
        lambda pod: (pod["metadata"]["annotations"]["a"], pod["spec"]["dnsPolicy"]) == ("b", "Default"),
    ),
}


def test_every_field_has_a_row() -> None:
    assert set(ROWS) == {field.alias or name for name, field in RoleSpec.model_fields.items()}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("field", ROWS)
def test_a_field_reaches_the_pod(field: str, role: Role) -> None:
    value, holds = ROWS[field]
    member = MEMBERS[role]
    # Without the operator's own wishes, an empty part of the pod is one that the manifest has left empty.
    settings = Settings(image="rl:1", keep_off_gpu_nodes="None")
    assert holds(pod_of(with_section(role, **{field: value}), member, settings))
    for other, name in MEMBERS.items():
        if other is not role:
            without = pod_of(with_section(role), name, settings)
            assert pod_of(with_section(role, **{field: value}), name, settings) == without, f"{other} has its own"
