"""Targets in a file, for a Prometheus that has no cluster to ask: in the words in which it is told of pods and Services.

The rules of a monitor's `scrape_configs` are used as they are; only where the targets come from is another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]


def from_file(configs: Iterable[Mapping[str, Any]], file: Path, targets: Iterable[Object]) -> list[Object]:
    """The configurations with ``targets``, written to ``file``, in the place of a cluster's."""
    file.write_text(json.dumps(list(targets)))
    discovery = {"file_sd_configs": [{"files": [str(file)]}]}
    return [
        {**{key: value for key, value in config.items() if key != "kubernetes_sd_configs"}, **discovery}
        for config in configs
    ]


def of_pod(pod: Mapping[str, Any], metrics_address: str) -> Iterator[Object]:
    """One target for each port of a running pod; the port ``metrics`` is at ``metrics_address``."""
    metadata = pod["metadata"]
    labels = {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        "__meta_kubernetes_pod_phase": "Running",
        **_labels("pod", metadata["labels"]),
    }
    for container in pod["spec"]["containers"]:
        for port in container["ports"]:
            named = {
                "__meta_kubernetes_pod_container_name": container["name"],
                "__meta_kubernetes_pod_container_port_name": port["name"],
            }
            address = metrics_address if port["name"] == "metrics" else f"127.0.0.1:{port['containerPort']}"
            yield {"targets": [address], "labels": {**labels, **named}}


def of_service(service: Mapping[str, Any], pod: str, container: str, address: str) -> Iterator[Object]:
    """The endpoint of a Service's only port: one running pod at ``address``."""
    metadata = service["metadata"]
    (port,) = service["spec"]["ports"]
    labels = {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_service_name": metadata["name"],
        "__meta_kubernetes_endpoint_port_name": port["name"],
        "__meta_kubernetes_pod_name": pod,
        "__meta_kubernetes_pod_container_name": container,
        "__meta_kubernetes_pod_phase": "Running",
        **_labels("service", metadata["labels"]),
    }
    yield {"targets": [address], "labels": labels}


def _labels(of: str, labels: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for label, value in labels.items():
        clean = re.sub(r"\W", "_", label)
        found[f"__meta_kubernetes_{of}_label_{clean}"] = value
        found[f"__meta_kubernetes_{of}_labelpresent_{clean}"] = "true"
    return found
