"""A patch of a podTemplate on a generated pod. What is expected here is what a real server answers (tests/cluster)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rljob_operator.kube.render.strategic_merge import PodTemplateProblem, merged

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "rljob"}, "finalizers": ["a", "b"]},
    "spec": {
        "restartPolicy": "Never",
        "tolerations": [{"key": "gpu"}],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
        "initContainers": [{"name": "first"}, {"name": "second"}],
        "containers": [
            {
                "name": "role",
                "image": "rl:1",
                "args": ["worker"],
                "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"}],
                "ports": [
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                ],
            },
            {"name": "redis", "image": "redis:7"},
        ],
    },
}


def pod(patch: dict[str, Any]) -> dict[str, Any]:
    """The spec of the patched pod. Neither side of the merge has been changed by it."""
    before, given = copy.deepcopy(POD), copy.deepcopy(patch)
    result = merged(POD, {"spec": patch})
    assert (before, given) == (POD, patch)
    spec: dict[str, Any] = result["spec"]
    return spec


def role(**fields: Any) -> dict[str, Any]:
    """The role's container after a patch of it alone."""
    (container,) = [each for each in pod({"containers": [{"name": "role", **fields}]})["containers"] if "args" in each]
    return container


def named(entries: list[dict[str, Any]]) -> str:
    return " ".join(f"{entry['name']}={entry.get('value', '')}".rstrip("=") for entry in entries)


def test_nothing_changes_nothing() -> None:
    assert merged(POD, {}) == POD
    assert merged(POD, {"spec": {"containers": [{"name": "role"}]}})["metadata"] == POD["metadata"]


def test_fields_are_set_merged_and_removed() -> None:
    assert pod({"hostNetwork": True})["hostNetwork"] is True
    assert "restartPolicy" not in pod({"restartPolicy": None, "nodeName": None})
    labels = {"labels": {"app": None, "team": "rl"}, "annotations": {"a": "b", "c": None}}
    patched = merged(POD, {"metadata": labels})["metadata"]
    assert patched == {"labels": {"team": "rl"}, "annotations": {"a": "b"}, "finalizers": ["a", "b"]}


def test_a_container_is_found_by_its_name() -> None:
    containers = pod({"containers": [{"name": "role", "image": "rl:2", "tty": True}]})["containers"]
    assert containers == [{**POD["spec"]["containers"][0], "image": "rl:2", "tty": True}, POD["spec"]["containers"][1]]


def test_what_has_no_merge_key_is_replaced() -> None:
    assert role(args=["sleep"])["args"] == ["sleep"]
    assert pod({"tolerations": [{"key": "spot"}]})["tolerations"] == [{"key": "spot"}]
    assert pod({"tolerations": []})["tolerations"] == []


def test_a_list_of_words_is_joined() -> None:
    assert merged(POD, {"metadata": {"finalizers": ["c", "a"]}})["metadata"]["finalizers"] == ["c", "a", "b"]


def test_a_port_is_found_by_its_number_alone() -> None:
    ports = role(ports=[{"containerPort": 53, "name": "changed"}])["ports"]
    assert [port["name"] for port in ports] == ["changed", "dns-tcp"]


@pytest.mark.parametrize(
    ("env", "result"),
    [
        ([], "A=a B=b C=c"),
        ([("B", "2")], "A=a B=2 C=c"),
        ([("D", "4")], "D=4 A=a B=b C=c"),
        ([("B", "2"), ("D", "4")], "A=a B=2 D=4 C=c"),
        ([("D", "4"), ("B", "2")], "D=4 A=a B=2 C=c"),
        ([("C", "3"), ("A", "1")], "B=b C=3 A=1"),
    ],
)
def test_the_order_of_entries_is_a_servers(env: list[tuple[str, str]], result: str) -> None:
    assert named(role(env=[{"name": name, "value": value} for name, value in env])["env"]) == result


def test_entries_are_deleted_and_lists_replaced() -> None:
    assert named(role(env=[{"name": "B", "$patch": "delete"}, {"name": "X", "$patch": "delete"}])["env"]) == "A=a C=c"
    assert named(role(env=[{"$patch": "replace"}, {"name": "C", "value": "3"}])["env"]) == "C=3"
    assert role(env=[{"$patch": "replace"}])["env"] == []
    assert "env" not in role(env=None)
    again = [{"name": "A", "$patch": "delete"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]
    assert role(env=again)["env"][0] == {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}


def test_both_ports_of_a_number_survive_a_replaced_list() -> None:
    both = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
    assert role(ports=[{"$patch": "replace"}, *both])["ports"] == both


def test_a_volume_gets_another_source() -> None:
    claim = {"claimName": "data"}
    wanted = [{"name": "data", "persistentVolumeClaim": claim}]
    assert pod({"volumes": [{"name": "data", "emptyDir": None, "persistentVolumeClaim": claim}]})["volumes"] == wanted
    keep = {"$retainKeys": ["name", "persistentVolumeClaim"]}
    assert pod({"volumes": [{"name": "data", **keep, "persistentVolumeClaim": claim}]})["volumes"] == wanted
    whole = {"emptyDir": {"$patch": "replace", "medium": "Memory"}}
    assert pod({"volumes": [{"name": "data", **whole}]})["volumes"] == [
        {"name": "data", "emptyDir": {"medium": "Memory"}}
    ]


def test_a_mapping_is_emptied_or_replaced_where_there_is_one_and_where_there_is_none() -> None:
    assert merged(POD, {"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}
    assert merged(POD, {"metadata": {"labels": {"$patch": "replace", "a": "b"}}})["metadata"]["labels"] == {"a": "b"}
    assert "affinity" not in pod({"affinity": {"$patch": "delete"}})
    assert pod({"affinity": {"$patch": "replace", "nodeAffinity": {}}})["affinity"] == {"nodeAffinity": {}}


def test_what_is_new_comes_without_nulls_and_directives() -> None:
    new = {
        "name": "new",
        "image": "a",
        "env": [{"name": "A", "$patch": "delete"}, {"name": "B", "value": None}],
        "args": None,
    }
    containers = pod({"containers": [new], "affinity": {"nodeAffinity": None}})["containers"]
    assert containers[0] == {"name": "new", "image": "a", "env": [{"name": "B"}]}


def test_what_has_changed_its_kind_is_replaced() -> None:
    assert pod({"volumes": {"name": "data"}})["volumes"] == {"name": "data"}, (
        "the server that makes the pod says why not"
    )


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"spec": {"containers": [{"image": "a"}]}}, "podTemplate.spec.containers[0].name: required"),
        ({"spec": {"containers": [None]}}, "podTemplate.spec.containers[0]: got None"),
        (
            {"spec": {"containers": [{"name": "role", "env": [{"name": ["A"]}]}]}},
            "podTemplate.spec.containers[role].env[0].name: required",
        ),
        ({"spec": {"containers": [{"name": "role", "$patch": "merge"}]}}, "got 'merge'; allowed: delete, replace"),
        ({"spec": {"containers": [{"name": "role", "$patch": "replace"}]}}, "replaces the whole list"),
        ({"$patch": 1}, "podTemplate.$patch: got 1"),
        ({"spec": {"$setElementOrder/containers": []}}, "podTemplate.spec.$setElementOrder/containers: unknown directive"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, "unknown directive; allowed: $patch"),
        ({"metadata": {"finalizers": [{}]}}, "podTemplate.metadata.finalizers: allowed: a list of words"),
        ({"metadata": {"labels": {"$retainKeys": "a"}}}, "a list of fields' names"),
        ({"metadata": {"labels": {"$retainKeys": ["a"], "b": "c"}}}, "podTemplate.metadata.labels.b: it is set here"),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_named(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PodTemplateProblem) as caught:
        merged(POD, patch)
    assert words in str(caught.value)
