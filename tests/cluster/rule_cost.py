"""What a server estimates our rules to cost, found out by asking it: it says by how much a definition exceeds a limit, so it is
given one that holds ours as the values of a map, of ever more entries, until it refuses.

Each rule then costs as often as the map has entries. Nothing is stored.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

from tests.cluster.control_plane import ControlPlane

TRIAL = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
LIMIT_OF_A_RULE = 10_000_000
LIMIT_OF_ALL = 100_000_000
ALL = "all"
_MOST_COPIES = 400
_FACTOR = re.compile(r"exceeds budget by factor of (\d\.\d{6})x")
"""A factor below 1.5 is shown with all its digits."""


def estimates(cluster: ControlPlane, definition: Mapping[str, Any]) -> Mapping[str, int]:
    """The costs of all rules of a definition together (`ALL`) and, of the dearer ones, of each by its place."""
    found: dict[str, int] = {}
    for copies in range(1, _MOST_COPIES):
        _, answer = cluster.request("POST", TRIAL, _copied(definition, copies))
        for cause in answer.get("details", {}).get("causes", []):
            rule = "x-kubernetes-validations" in cause["field"]
            place = cause["field"].partition("[copies].additionalProperties.")[2] if rule else ALL
            if (factor := _FACTOR.search(cause["message"])) is not None:
                found.setdefault(place, round(float(factor[1]) * (LIMIT_OF_A_RULE if rule else LIMIT_OF_ALL) / copies))
        if ALL in found:
            return found
    raise AssertionError(f"{_MOST_COPIES} copies of the rules cost less than the limit")


def _copied(definition: Mapping[str, Any], copies: int) -> dict[str, Any]:
    """The definition of a map of at most ``copies`` such objects."""
    document = copy.deepcopy(dict(definition))
    (version,) = document["spec"]["versions"]
    ours = version["schema"]["openAPIV3Schema"] | {"x-kubernetes-embedded-resource": True}
    jobs = {"type": "object", "maxProperties": copies, "additionalProperties": ours}
    version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"copies": jobs}}
    version["subresources"].pop("scale", None)  # they point at fields that are elsewhere now
    del version["additionalPrinterColumns"]
    return document
