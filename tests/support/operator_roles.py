"""Roles and bindings of an operator, as objects, from the table of its rights; the chart has templates for the same."""

from collections.abc import Sequence
from typing import Any

from rljob_operator.kube.process.rbac import Where, rules


def role_objects(
    name: str,
    namespace: str,
    watched: Sequence[str] = (),
    *,
    outside: bool = False,
    kueue: bool = False,
) -> list[dict[str, Any]]:
    """Roles of the ServiceAccount ``name`` in ``namespace`` with their bindings.

    ``watched`` names the namespaces that the operator looks after, with a Role in each and no ClusterRole; without any it looks
    after all of them. ``outside``: it asks members through the API server. ``kueue``: it asks Kueue for quota.
    """
    more: tuple[Where, ...] = (*(("Outside",) if outside else ()), *(("Queue",) if kueue else ()))
    of_jobs = rules("Jobs", *more)
    of_all = rules("Cluster", "QueueCluster") if kueue else rules("Cluster")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found = _granted("Role", f"{name}-leader", namespace, rules("Operator"), subject)
    if not watched:
        return [*found, *_granted("ClusterRole", name, None, [*of_jobs, *of_all], subject)]
    for each in watched:
        found += _granted("Role", name, each, of_jobs, subject)
    return found


def _granted(
    kind: str, name: str, namespace: str | None, granted: list[dict[str, Any]], subject: dict[str, str]
) -> list[dict[str, Any]]:
    """A role and the binding that gives it to ``subject``."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": name, **({"namespace": namespace} if namespace is not None else {})}
    return [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": granted},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [subject],
        },
    ]
