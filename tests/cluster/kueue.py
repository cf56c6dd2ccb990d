"""Kueue's part in the life of a Workload, played by the test.

The CRDs are Kueue's own where `KUEUE` names a folder with them. Else they have exactly the fields of Kueue's v1beta2 API that
the operator reads and writes, with the rules that its webhook and its CRD have about them. Kueue itself: tests/e2e/test_kueue.py.
"""

import time
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import FLAVORS, WORKLOAD_PRIORITIES, WORKLOADS, Object
from rljob_operator.kube.job.kueue import JobQueue
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.kept import Workloads

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import stamped
from tests.cluster.reconciling import Run
from tests.support.provided_crds import KUEUE

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(required: str = "", **fields: Any) -> Object:
    found: Object = {"type": "object", "properties": fields}
    return found | ({"required": required.split()} if required else {})


def _list(items: Object, key: str = "", **more: Any) -> Object:
    by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"type": "array", "items": items, **by_key, **more}


CONDITION = _object(
    "type status reason message lastTransitionTime",
    type=TEXT, status={"type": "string", "enum": ["True", "False", "Unknown"]},
    reason={"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    message={"type": "string", "maxLength": 32768}, observedGeneration=NUMBER,
    lastTransitionTime={"type": "string", "format": "date-time"},
)  # fmt: skip
POD_SET = _object("name count template", name={**TEXT, "maxLength": 63}, count=NUMBER, template=_object(spec=ANYTHING))
ASSIGNMENT = _object("name", name=TEXT, count=NUMBER, flavors=TEXTS)
UPDATE = _object("name", name=TEXT, labels=TEXTS, annotations=TEXTS, nodeSelector=TEXTS, tolerations=_list(ANYTHING))
CHECK = _object(
    "name state message lastTransitionTime",
    name=TEXT, state={"type": "string", "enum": ["Pending", "Ready", "Retry", "Rejected"]}, message=TEXT,
    lastTransitionTime={"type": "string", "format": "date-time"}, podSetUpdates=_list(UPDATE),
)  # fmt: skip
RESERVED = "has({0}.status) && has({0}.status.conditions) && {0}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"  # noqa: E501
WORKLOAD = {
    **_object(
        spec=_object(
            "podSets", queueName=TEXT, active={**FLAG, "default": True},
            podSets=_list(POD_SET, "name", minItems=1, maxItems=8),
            priority={"type": "integer"}, priorityClassRef=_object("group kind name", group=TEXT, kind=TEXT, name=TEXT),
        ),
        status=_object(
            conditions=_list(CONDITION, "type", maxItems=16), admissionChecks=_list(CHECK, "name"),
            admission=_object("clusterQueue podSetAssignments", clusterQueue=TEXT,
                              podSetAssignments=_list(ASSIGNMENT, "name", maxItems=8)),
        ),
    ),
    "x-kubernetes-validations": [
        {"rule": f"!({RESERVED.format('oldSelf')}) || oldSelf.spec.podSets == self.spec.podSets",
         "message": "podSets are fixed with quota"},
        {"rule": f"!({RESERVED.format('oldSelf')}) || !({RESERVED.format('self')})"
         " || oldSelf.spec.queueName == self.spec.queueName", "message": "queueName is fixed with quota"},
        {"rule": f"!({RESERVED.format('self')}) || !has(self.status.admission)"
         " || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
         "message": "as many assignments as podSets"},
    ],
}  # fmt: skip
PRIORITY = _object("value", value={"type": "integer"})
FLAVOR = _object(spec=_object(nodeLabels=TEXTS, tolerations=_list(ANYTHING)))


def _definition(kind: str, plural: str, schema: Object, scope: str) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{WORKLOADS.group}",
            # A group that ends on k8s.io is Kubernetes' own, and a server wants it to say so.
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": WORKLOADS.group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": WORKLOADS.version, "served": True, "storage": True, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


DEFINITIONS = (
    _definition("Workload", "workloads", WORKLOAD, "Namespaced"),
    _definition("ResourceFlavor", "resourceflavors", FLAVOR, "Cluster"),
    _definition("WorkloadPriorityClass", "workloadpriorityclasses", PRIORITY, "Cluster"),
)


def install(cluster: ControlPlane) -> None:
    if KUEUE.given:
        cluster.apply(*KUEUE.files())
    else:
        for each in DEFINITIONS:
            cluster.create(CRDS, each)
    served = f"/apis/{WORKLOADS.group}/{WORKLOADS.version}"
    cluster.wait_until(
        "serving Workloads",
        lambda: all(
            cluster.request("GET", f"{served}/{r.plural}")[0] == 200 for r in (WORKLOADS, FLAVORS, WORKLOAD_PRIORITIES)
        ),
    )


def uninstall(cluster: ControlPlane) -> None:
    for each in cluster.request("GET", CRDS)[1]["items"]:
        if each["spec"]["group"] == WORKLOADS.group:
            cluster.request("DELETE", f"{CRDS}/{each['metadata']['name']}")
    path = f"/apis/{WORKLOADS.group}/{WORKLOADS.version}/{WORKLOADS.plural}"
    cluster.wait_until("without Workloads", lambda: cluster.request("GET", path)[0] == 404)


class Listed(Workloads):
    """The cache, filled by hand. ``why``: why nothing is known."""

    why = ""  # type: ignore[assignment]


class QueuedRun(Run):
    """An operator that asks Kueue. ``cache`` is filled by `look`, as its watch would."""

    def __init__(self, client: Client, namespace: str, **options: Any) -> None:
        settings = Settings(image="rl:1", kueue=True)
        self.cache = Listed(client, None, lambda key: None)
        super().__init__(client, namespace, settings, queue=JobQueue(client, self.cache, settings), **options)

    async def look(self, viewer: Client) -> None:
        await super().look(viewer)
        if not self.cache.why:
            found = (await viewer.list(WORKLOADS, self.namespace)).items
            self.cache.replace(self.namespace, [self.cache.keep(each) for each in found])


class Kueue:
    """Decides about Workloads of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def asked_for(self) -> dict[str, dict[str, int]]:
        """Workload -> pods of each set."""
        found = (await self._client.list(WORKLOADS, self._namespace)).items
        return {
            each["metadata"]["name"]: {one["name"]: one["count"] for one in each["spec"]["podSets"]} for each in found
        }

    async def get(self, name: str) -> Object:
        return await self._client.get(WORKLOADS, self._namespace, name)

    async def says(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a Workload's condition."""
        conditions = ((await self.get(name)).get("status") or {}).get("conditions") or ()
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == kind), ("", ""))

    async def admit(self, name: str, flavor: str = "", checks: list[Object] | None = None) -> None:
        """Reserve quota for all it asks for, of one flavour, and admit it."""
        assigned = [
            {"name": each["name"], "count": each["count"], **({"flavors": {"cpu": flavor}} if flavor else {})}
            for each in (await self.get(name))["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "all", "podSetAssignments": assigned}
        conditions = {"QuotaReserved": True, "Admitted": True, "Evicted": False}
        seen = [{**each, "lastTransitionTime": stamped(time.time())} for each in checks or ()]
        await self._say(name, conditions, "Admitted", "", admission=admission, admissionChecks=seen)

    async def keep_waiting(self, name: str, message: str) -> None:
        await self._say(name, {"QuotaReserved": False}, "Pending", message)

    async def evict(self, name: str, reason: str = "Preempted", message: str = "to make room") -> None:
        """As Kueue does it: the quota stays reserved until the owner of the Workload has given it back."""
        await self._say(name, {"Evicted": True}, reason, message)

    async def _say(self, name: str, said: dict[str, bool], reason: str, message: str, **status: Any) -> None:
        before = ((await self.get(name)).get("status") or {}).get("conditions") or []
        new = [
            {"type": kind, "status": str(value), "reason": reason, "message": message,
             "lastTransitionTime": stamped(time.time())}
            for kind, value in said.items()
        ]  # fmt: skip
        kept = [each for each in before if each["type"] not in said]
        change = {"status": {**status, "conditions": [*kept, *new]}}
        await self._client.patch(WORKLOADS, self._namespace, name, change, subresource="status")
