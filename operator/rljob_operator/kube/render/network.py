"""How pods of a job find each other, and who else may reach them."""

from __future__ import annotations

from typing import Any

from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings


def service(owned: Owned) -> dict[str, Any]:
    """The headless Service: names for pods, also before they are ready, as roles wait for each other while they start."""
    ports = {**names.DATA_PORTS, names.METRICS: owned.job.spec.monitoring.metrics_port}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned.metadata(names.service(owned.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**names.labels(owned.name), names.REACHABLE_LABEL: "true"},
            "ports": [{"name": name, "port": number} for name, number in ports.items()],
        },
    }


def network_policy(owned: Owned, settings: Settings) -> dict[str, Any]:
    """Pods of the job reach each other; the operator and Prometheus reach the metrics, nobody reaches more. What the pods
    themselves reach is not limited: an environment may need the world."""
    own = {"podSelector": {"matchLabels": names.labels(owned.name)}}
    readers = [dict(settings.operator_namespaces)]
    if settings.prometheus_namespaces is not None:
        readers.append(dict(settings.prometheus_namespaces))
    metrics = [{"protocol": "TCP", "port": owned.job.spec.monitoring.metrics_port}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned.metadata(names.network_policy(owned.name)),
        "spec": {
            "podSelector": {"matchLabels": names.labels(owned.name)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [own]},
                {"from": [{"namespaceSelector": {"matchLabels": each}} for each in readers], "ports": metrics},
            ],
        },
    }
