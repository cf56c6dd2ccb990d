"""Patches: of a podTemplate on a generated pod, as a real server answers (tests/cluster), and what differs as RFC 7386 has it."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rljob_operator.kube.apiserver.resources import merge_patch
from rljob_operator.kube.render.template import PodTemplateProblem, merged

from tests.support import experiment_cluster

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
    spec: dict[str, Any] = merged(POD, {"spec": patch})["spec"]
    assert (before, given) == (POD, patch)
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


CLAIM = {"claimName": "data"}
CLAIMED = [{"name": "data", "persistentVolumeClaim": CLAIM}]
ROLE, REDIS = POD["spec"]["containers"]


@pytest.mark.parametrize(
    ("patch", "made"),
    [
        ({"hostNetwork": True}, {"hostNetwork": True}),
        ({"restartPolicy": None, "nodeName": None}, {"restartPolicy": None, "nodeName": None}),
        # A container is found by its name; what has no merge key is replaced.
        (
            {"containers": [{"name": "role", "image": "rl:2", "tty": True}]},
            {"containers": [{**ROLE, "image": "rl:2", "tty": True}, REDIS]},
        ),
        ({"tolerations": [{"key": "spot"}]}, {"tolerations": [{"key": "spot"}]}),
        ({"tolerations": []}, {"tolerations": []}),
        # A volume gets another source.
        ({"volumes": [{"name": "data", "emptyDir": None, "persistentVolumeClaim": CLAIM}]}, {"volumes": CLAIMED}),
        (
            {"volumes": [{"name": "data", "emptyDir": {"$patch": "replace", "medium": "Memory"}}]},
            {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]},
        ),
        # A mapping is emptied or replaced where there is none.
        ({"affinity": {"$patch": "delete"}}, {"affinity": None}),
        ({"affinity": {"$patch": "replace", "nodeAffinity": {}}}, {"affinity": {"nodeAffinity": {}}}),
        # What has changed its kind is replaced: the server that makes the pod says why not.
        ({"volumes": {"name": "data"}}, {"volumes": {"name": "data"}}),
    ],
)
def test_what_a_patch_makes_of_a_pods_spec(patch: dict[str, Any], made: dict[str, Any]) -> None:
    spec = pod(patch)
    assert {name: spec[name] for name in made if name in spec} == {
        name: value for name, value in made.items() if value is not None
    }


@pytest.mark.parametrize(
    ("patch", "made"),
    [
        (
            {"labels": {"app": None, "team": "rl"}, "annotations": {"a": "b", "c": None}},
            {"labels": {"team": "rl"}, "annotations": {"a": "b"}},
        ),
        ({"finalizers": ["c", "a"]}, {"finalizers": ["c", "a", "b"]}),  # a list of words is joined
        ({"labels": {"$patch": "delete"}}, {"labels": {}}),
        ({"labels": {"$patch": "replace", "a": "b"}}, {"labels": {"a": "b"}}),
    ],
)
def test_what_a_patch_makes_of_a_pods_metadata(patch: dict[str, Any], made: dict[str, Any]) -> None:
    assert merged(POD, {"metadata": patch})["metadata"] == {**POD["metadata"], **made}


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


FROM_FIELD = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}


@pytest.mark.parametrize(
    ("env", "result"),
    [
        (
            [{"name": "B", "$patch": "delete"}, {"name": "X", "$patch": "delete"}],
            [{"name": "A", "value": "a"}, {"name": "C", "value": "c"}],
        ),
        ([{"$patch": "replace"}, {"name": "C", "value": "3"}], [{"name": "C", "value": "3"}]),
        ([{"$patch": "replace"}], []),
        (None, None),
        (
            [{"name": "A", "$patch": "delete"}, FROM_FIELD],
            [FROM_FIELD, {"name": "B", "value": "b"}, {"name": "C", "value": "c"}],
        ),
    ],
)
def test_entries_are_deleted_and_lists_replaced(env: Any, result: Any) -> None:
    assert role(env=env).get("env") == result


def test_both_ports_of_a_number_survive_a_replaced_list() -> None:
    both = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
    assert role(ports=[{"$patch": "replace"}, *both])["ports"] == both


def test_what_is_new_comes_without_nulls_and_directives() -> None:
    new = {
        "name": "new",
        "image": "a",
        "env": [{"name": "A", "$patch": "delete"}, {"name": "B", "value": None}],
        "args": None,
    }
    containers = pod({"containers": [new], "affinity": {"nodeAffinity": None}})["containers"]
    assert containers[0] == {"name": "new", "image": "a", "env": [{"name": "B"}]}


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
        ({"metadata": {"labels": {"$retainKeys": ["a"]}}}, "podTemplate.metadata.labels.$retainKeys: unknown directive"),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_named(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PodTemplateProblem, match=re.escape(words)):
        merged(POD, patch)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}, {}),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}, {"b": {"d": 4}}),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}, {"a": None, "b": {"d": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_what_differs_is_sent(before: dict[str, Any], after: dict[str, Any], change: dict[str, Any]) -> None:
    assert merge_patch(before, after) == change


LEAVES = st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2)
DOCUMENTS = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(LEAVES, lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=3)),
    max_size=4,
)


@given(DOCUMENTS, DOCUMENTS)
def test_the_change_makes_one_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert experiment_cluster.merged(before, merge_patch(before, after)) == after
