"""The CRD itself: accepted by a real API server without a complaint, and quick to check jobs with."""

from __future__ import annotations

from rljob.api.generate.crd import definition

from tests.cluster.control_plane import CRD_FILE, ControlPlane
from tests.cluster.rule_cost import ALL, LIMIT_OF_A_RULE, LIMIT_OF_ALL, estimates

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rljobs.rljob.dev"


def test_it_is_established_and_structural(cluster: ControlPlane) -> None:
    code, stored = cluster.request("GET", CRD)
    assert code == 200
    conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert stored["status"]["storedVersions"] == ["v1alpha1"]


def test_nothing_of_it_is_dropped(cluster: ControlPlane) -> None:
    """A field that the server does not know would be dropped in silence; so would a rule on a server without CEL."""
    _, stored = cluster.request("GET", CRD)
    (ours,), (theirs,) = definition()["spec"]["versions"], stored["spec"]["versions"]
    assert theirs["schema"] == ours["schema"]
    assert theirs["subresources"] == ours["subresources"]
    assert theirs["additionalPrinterColumns"] == ours["additionalPrinterColumns"]


def test_applying_it_again_changes_nothing(cluster: ControlPlane) -> None:
    again = cluster.kubectl("apply", "-f", str(CRD_FILE))
    assert again.stdout == "customresourcedefinition.apiextensions.k8s.io/rljobs.rljob.dev unchanged\n", again.stderr
    assert again.stderr == "", "no warnings either"


def test_its_rules_cost_a_fraction_of_what_a_server_allows(cluster: ControlPlane) -> None:
    """It would refuse the definition as a whole. With ``-s``, the figures of docs/performance.md are shown."""
    found = dict(estimates(cluster))
    print("", *(f"{cost:>12,} {place}" for place, cost in found.items()), sep="\n")
    assert found.pop(ALL) < LIMIT_OF_ALL / 20
    assert found
    assert max(found.values()) < LIMIT_OF_A_RULE / 4
