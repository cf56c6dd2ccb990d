"""The CRDs themselves: accepted by a real API server without a complaint, and quick to check objects with."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api.generate.crd import definition, experiment_definition

from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, ControlPlane
from tests.cluster.rule_cost import ALL, LIMIT_OF_A_RULE, LIMIT_OF_ALL, estimates

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOTH = pytest.mark.parametrize("crd", [definition(), experiment_definition()], ids=["RLJob", "RLExperiment"])


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
    """It would refuse the definition as a whole. With ``-s``, the figures of docs/performance.md are shown."""
    found = dict(estimates(cluster, crd))
    print("", *(f"{cost:>12,} {place}" for place, cost in found.items()), sep="\n")
    assert found.pop(ALL) < LIMIT_OF_ALL / 20
    assert found
    assert max(found.values()) < LIMIT_OF_A_RULE / 4
