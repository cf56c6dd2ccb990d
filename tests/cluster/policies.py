"""What a namespace's owner sets beside its jobs: quotas, rights, and webhooks that can't be called."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ControlPlane

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def set_quota(cluster: ControlPlane, namespace: str, what: str, *, most: int | str, used: int | str) -> None:
    """Bound what the namespace may have of one thing. No controller computes what is used here."""
    path, hard = f"/api/v1/namespaces/{namespace}/resourcequotas", {what: str(most)}
    cluster.request("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    cluster.change(f"{path}/few", {"spec": {"hard": hard}})
    cluster.change(f"{path}/few/status", {"status": {"hard": hard, "used": {what: str(used)}}})


def give_rights(cluster: ControlPlane, namespace: str, account: str, rules: list[dict[str, Any]], folder: Path) -> Path:
    """A kubeconfig in ``folder`` of a ServiceAccount with exactly these rights in the namespace."""
    group = "rbac.authorization.k8s.io"
    token = cluster.token(namespace, account)
    cluster.create(f"/apis/{group}/v1/namespaces/{namespace}/roles", {"metadata": {"name": account}, "rules": rules})
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    cluster.create(f"/apis/{group}/v1/namespaces/{namespace}/rolebindings", binding)
    return cluster.kubeconfig_for(folder, {"token": token})


@contextmanager
def webhook_away(
    cluster: ControlPlane, namespace: str, url: str, resources: list[str], *, seconds: int, **selects: Any
) -> Iterator[Callable[[], object]]:
    """The resources are asked of ``policy.example.com``, which can't be called, before they are made in the namespace. The
    function takes it away."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": resources}
    webhook = {
        "name": "policy.example.com", "clientConfig": {"url": url}, "rules": [rule], **selects,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": seconds,
    }  # fmt: skip
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    cluster.create(WEBHOOKS, {**about, "metadata": {"name": namespace}, "webhooks": [webhook]})

    def remove() -> object:
        return cluster.request("DELETE", f"{WEBHOOKS}/{namespace}")

    try:
        time.sleep(1.0)  # until every part of the server has heard of it
        yield remove
    finally:
        remove()
