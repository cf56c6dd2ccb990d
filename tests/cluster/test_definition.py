"""The CRDs on a real API server: accepted without a complaint, quick to check objects with, and applied by several owners.

What a role has of a PodSpec: kept as it is written, merged by its keys, and not changed while the job runs.
"""

from typing import Any

import pytest
from rljob.api import parse_job, transition_problems
from rljob.api.generate.crd import definition, experiment_definition

from tests.cluster import jobs
from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, ControlPlane
from tests.cluster.rule_cost import ALL, LIMIT_OF_A_RULE, LIMIT_OF_ALL, estimates
from tests.unit.api.bad_manifests import BASE, PRESET, document
from tests.unit.api.changed_manifests import rule_of, said_by_the_server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOTH = pytest.mark.parametrize("crd", [definition(), experiment_definition()], ids=["RLJob", "RLExperiment"])
APPLY = "application/apply-patch+yaml"
SUSPENDED = ["spec.suspend=true"]


def stored(cluster: ControlPlane, crd: dict[str, Any]) -> dict[str, Any]:
    code, found = cluster.request("GET", f"{CRDS}/{crd['metadata']['name']}")
    assert code == 200
    return found


@BOTH
def test_it_is_established_and_structural(cluster: ControlPlane, crd: dict[str, Any]) -> None:
    found = stored(cluster, crd)
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert found["status"]["storedVersions"] == ["v1alpha1"]


@BOTH
def test_nothing_of_it_is_dropped(cluster: ControlPlane, crd: dict[str, Any]) -> None:
    """A field that the server does not know would be dropped in silence; so would a rule on a server without CEL."""
    (ours,), (theirs,) = crd["spec"]["versions"], stored(cluster, crd)["spec"]["versions"]
    assert (theirs["schema"], theirs["subresources"]) == (ours["schema"], ours["subresources"])
    assert theirs["additionalPrinterColumns"] == ours["additionalPrinterColumns"]


@pytest.mark.parametrize("file", [CRD_FILE, EXPERIMENT_CRD_FILE], ids=lambda file: file.stem)
def test_applying_it_again_changes_nothing(cluster: ControlPlane, file: Any) -> None:
    again = cluster.kubectl("apply", "-f", str(file))
    assert again.stdout == f"customresourcedefinition.apiextensions.k8s.io/{file.stem} unchanged\n", again.stderr
    assert again.stderr == "", "no warnings either"


@BOTH
def test_its_rules_cost_a_fraction_of_what_a_server_allows(cluster: ControlPlane, crd: dict[str, Any]) -> None:
    """It would refuse the definition as a whole. ``-s`` shows the figures."""
    found = dict(estimates(cluster, crd))
    print("", *(f"{cost:>12,} {place}" for place, cost in found.items()), sep="\n")
    assert found.pop(ALL) < LIMIT_OF_ALL / 20
    assert found
    assert max(found.values()) < LIMIT_OF_A_RULE / 4


def apply(cluster: ControlPlane, owner: str, spec: dict[str, Any], *, force: bool = False) -> jobs.Answer:
    given = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "pong"}, "spec": spec}
    path = f"{jobs.JOBS}/pong?fieldManager={owner}&{jobs.STRICT}"
    return jobs.Answer(*cluster.request("PATCH", f"{path}&force={str(force).lower()}", given, APPLY))


@pytest.fixture
def pong(cluster: ControlPlane) -> dict[str, Any]:
    """A job made by the owner `user`, suspended so that its parameters may change."""
    spec: dict[str, Any] = document(BASE, SUSPENDED)["spec"]
    apply(cluster, "user", spec).stored()
    return spec


def test_one_leaf_is_changed_without_its_neighbours(cluster: ControlPlane) -> None:
    """What a sweep or a population does, beside the person who wrote the job."""
    spec = document(PRESET, [*SUSPENDED, "spec.algorithm={entropyCost: 0.005, impala: {unrollQueue: {capacity: 32}}}"])[
        "spec"
    ]
    apply(cluster, "user", spec).stored()
    for rate in (3e-4, 5e-4):
        swept = apply(cluster, "sweep", {"algorithm": {"learningRate": rate}}).stored()
        algorithm = swept["spec"]["algorithm"]
        assert algorithm == {"entropyCost": 0.005, "impala": {"unrollQueue": {"capacity": 32}}, "learningRate": rate}
        in_force = parse_job(swept).spec.algorithm.parameters
        assert (in_force.learning_rate, in_force.entropy_cost, in_force.batch_size) == (rate, 0.005, 16)
    again = apply(cluster, "user", spec | {"algorithm": {"entropyCost": 0.01}}).stored()
    assert again["spec"]["algorithm"] == {"entropyCost": 0.01, "learningRate": 5e-4}, "each its own"
    ended = apply(cluster, "sweep", {}).stored()
    assert ended["spec"]["algorithm"] == {"entropyCost": 0.01}, "the preset's rate is in force again"


def test_the_same_leaf_is_a_conflict(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    smaller = {"algorithm": {"batchSize": 64}}
    refused = apply(cluster, "tuner", smaller)
    assert refused.code == 409
    assert ".spec.algorithm.batchSize" in refused.message
    forced = apply(cluster, "tuner", smaller, force=True).stored()
    assert forced["spec"]["algorithm"] == {"type": "ApeXDQN", "gamma": 0.99, "batchSize": 64}


def test_rules_of_failures_are_merged_by_name(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    policy = {"failurePolicy": {"rules": [{"name": "evicted", "onPodConditions": [{"type": "X"}], "action": "Ignore"}]}}
    applied = apply(cluster, "platform", policy).stored()
    assert {each["name"] for each in applied["spec"]["failurePolicy"]["rules"]} == {"bad-config", "evicted"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"autoscaling": {"minReplicas": 5, "maxReplicas": 4}}, "spec.autoscaling.minReplicas"),
        (
            {"algorithm": {"impala": {"cClip": 0.9}}},
            "spec.algorithm: Forbidden: allowed: only the block of the algorithm's own type",
        ),
    ],
    ids=["a rule", "a member of another algorithm"],
)
def test_a_partial_owner_breaks_no_rule(
    cluster: ControlPlane, pong: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    refused = apply(cluster, "tuner", fields)
    assert (refused.code, words in refused.message) == (422, True), refused.message


NODE = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def with_role(**fields: Any) -> dict[str, Any]:
    """A job whose actors have ``fields``."""
    given = document(BASE)
    given["spec"]["actors"] = {**given["spec"].get("actors", {}), **fields}
    return given


def test_what_no_schema_knows_is_kept(cluster: ControlPlane) -> None:
    written = {
        "env": [{"name": "A", "value": "a"}, {"name": "NODE", **NODE}],
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 30}],
        "podTemplate": {
            "spec": {
                "hostNetwork": None,
                "affinity": {"nodeAffinity": {}},
                "containers": [{"name": "actor", "tty": True}],
            }
        },
    }
    answer = jobs.create(cluster, with_role(**written)).stored()
    assert {name: answer["spec"]["actors"][name] for name in written} == written


CHANGES: list[tuple[str, Any, Any]] = [
    ("env", [{"name": "A", "value": "a"}], [{"name": "A", "value": "b"}]),
    ("env", [{"name": "A", "value": "a"}], None),
    ("env", [{"name": "A", **NODE}], [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostIP"}}}]),
    ("tolerations", [{"key": "a"}], [{"key": "b"}]),
    ("tolerations", [{"key": "a"}], [{"key": "a", "effect": "NoSchedule"}]),
    ("podTemplate", {"spec": {"hostPID": True}}, {"spec": {"hostIPC": True}}),
]
ONLY_THE_CONTROLLER_SEES: list[tuple[str, Any, Any]] = [
    ("env", [{"name": "A", "value": "a"}], [{"name": "A", **NODE}]),
    ("tolerations", [{"key": "a"}], [{"operator": "Exists"}]),
    ("podTemplate", {"spec": {}}, {"metadata": {}}),
]
"""A key in the place of another (`rljob.api.cel.NOT_IN_CEL`)."""


def ids(cases: list[tuple[str, Any, Any]]) -> list[str]:
    return [f"{field} {before} {after}"[:60] for field, before, after in cases]


def problems(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What the controller says of the change."""
    return [problem.path for problem in transition_problems(parse_job(before), parse_job(after))]


@pytest.mark.parametrize(("field", "before", "after"), CHANGES, ids=ids(CHANGES))
def test_none_of_it_changes_while_the_job_runs(cluster: ControlPlane, field: str, before: Any, after: Any) -> None:
    old, new = with_role(**{field: before}), with_role(**({} if after is None else {field: after}))
    jobs.create(cluster, old, dry_run=False).stored()
    answer = jobs.replace(cluster, new)
    assert not answer.accepted
    assert answer.names("spec.actors", said_by_the_server(rule_of(f"actors.{field}"))[1]), answer.message
    assert [path for path in problems(old, new) if path.startswith(f"spec.actors.{field}")]
    new["spec"] |= {"suspend": True}
    jobs.replace(cluster, new).stored()


@pytest.mark.parametrize(("field", "before", "after"), ONLY_THE_CONTROLLER_SEES, ids=ids(ONLY_THE_CONTROLLER_SEES))
def test_what_only_the_controller_sees(cluster: ControlPlane, field: str, before: Any, after: Any) -> None:
    """If servers begin to see it, the list of exceptions is out of date."""
    old, new = with_role(**{field: before}), with_role(**{field: after})
    jobs.create(cluster, old, dry_run=False).stored()
    jobs.replace(cluster, new).stored()
    assert [path for path in problems(old, new) if path.startswith(f"spec.actors.{field}")]


def test_the_order_of_what_has_names_is_no_change(cluster: ControlPlane) -> None:
    entries = [{"name": "a", "value": "a"}, {"name": "b", "value": "b"}]
    jobs.create(cluster, with_role(env=entries), dry_run=False).stored()
    jobs.replace(cluster, with_role(env=entries[::-1])).stored()


def test_variables_of_two_owners_lie_side_by_side(cluster: ControlPlane) -> None:
    for owner, value in (("one", "1"), ("two", "2")):
        role = {"env": [{"name": owner, "value": value}]}
        found = apply(cluster, owner, with_role()["spec"] | {"suspend": True, "actors": role}, force=True).stored()
    env = {each["name"]: each["value"] for each in found["spec"]["actors"]["env"]}
    assert env == {"one": "1", "two": "2"}
