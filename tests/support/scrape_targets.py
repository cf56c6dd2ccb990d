"""Targets in files, for a Prometheus without a discovery of Kubernetes, as Debian's is: in the words in which it would be told.

The rules of a monitor's `scrape_configs` are used as they are; only the part of them that says where targets come from is carried
out here, with its role and its namespaces.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rljob.threads import SupervisedThread

Object = dict[str, Any]
List = Callable[[str, str | None], list[Object]]
"""(pods, services or endpoints; a namespace or all) -> the objects."""
REFRESH_SECONDS = 1.0


def from_file(configs: Iterable[Mapping[str, Any]], file: Path, targets: Iterable[Object]) -> list[Object]:
    """The configurations with ``targets``, written to ``file``, in the place of a cluster's."""
    _write(file, targets)
    discovery = {"file_sd_configs": [{"files": [str(file)], "refresh_interval": "2s"}]}
    return [
        {**{key: value for key, value in config.items() if key != "kubernetes_sd_configs"}, **discovery}
        for config in configs
    ]


class Discovery:
    """Looks at a cluster once a second and writes the targets of each configuration into ``folder``.

    ``configs`` is what Prometheus reads in the place of what was given.
    """

    def __init__(self, configs: list[Object], folder: Path, objects: List) -> None:
        self._objects = objects
        self._asked = [(folder / f"targets-{number}.json", config) for number, config in enumerate(configs)]
        self.configs = [each for file, config in self._asked for each in from_file([config], file, ())]
        self._stop = threading.Event()
        self._thread = SupervisedThread("discovery", self._run, until=self._stop)

    def __enter__(self) -> Discovery:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.close()

    def _run(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            for file, config in self._asked:
                (discovery,) = config["kubernetes_sd_configs"]
                names = (discovery.get("namespaces") or {}).get("names") or [None]
                _write(file, [target for name in names for target in self._found(discovery["role"], name)])

    def _found(self, role: str, namespace: str | None) -> Iterator[Object]:
        pods = self._objects("pods", namespace)
        if role == "pod":
            for pod in pods:
                yield from of_pod(pod)
            return
        services = {_key(each): each for each in self._objects("services", namespace)}
        for endpoints in self._objects("endpoints", namespace):
            if _key(endpoints) in services:
                yield from of_endpoints(services[_key(endpoints)], endpoints, {_key(pod): pod for pod in pods})


def of_pod(pod: Mapping[str, Any], metrics_address: str = "") -> Iterator[Object]:
    """One target for each port of a pod that has an address; ``metrics_address``: where its port ``metrics`` is instead."""
    status = pod["status"]
    if not status.get("podIP"):
        return
    spec = pod["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for port in container.get("ports", ()):
            named = {
                "__meta_kubernetes_pod_container_name": container["name"],
                "__meta_kubernetes_pod_container_port_name": port.get("name", ""),
            }
            address = f"{status['podIP']}:{port['containerPort']}"
            if metrics_address and port.get("name") == "metrics":
                address = metrics_address
            yield {"targets": [address], "labels": {**_of_pod(pod), **named}}


def of_endpoints(
    service: Mapping[str, Any], endpoints: Mapping[str, Any], pods: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[Object]:
    """One target for each ready address and port of a Service; ``pods`` by (namespace, name)."""
    namespace = service["metadata"]["namespace"]
    labels = {
        "__meta_kubernetes_namespace": namespace,
        "__meta_kubernetes_service_name": service["metadata"]["name"],
        **_labels("service", service["metadata"]["labels"]),
    }
    for subset in endpoints.get("subsets") or ():
        for address in subset.get("addresses") or ():
            pod = pods.get((namespace, (address.get("targetRef") or {}).get("name", "")))
            for port in subset["ports"]:
                found = {**labels, "__meta_kubernetes_endpoint_port_name": port.get("name", "")}
                if pod is not None:
                    found |= {**_of_pod(pod), "__meta_kubernetes_pod_container_name": _container(pod, port["port"])}
                yield {"targets": [f"{address['ip']}:{port['port']}"], "labels": found}


def _container(pod: Mapping[str, Any], port: int) -> str:
    for container in pod["spec"]["containers"]:
        if any(each["containerPort"] == port for each in container.get("ports", ())):
            return str(container["name"])
    return ""


def _of_pod(pod: Mapping[str, Any]) -> dict[str, str]:
    metadata = pod["metadata"]
    return {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        "__meta_kubernetes_pod_phase": pod["status"]["phase"],
        **_labels("pod", metadata.get("labels") or {}),
    }


def _labels(of: str, labels: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for label, value in labels.items():
        clean = re.sub(r"\W", "_", label)
        found[f"__meta_kubernetes_{of}_label_{clean}"] = value
        found[f"__meta_kubernetes_{of}_labelpresent_{clean}"] = "true"
    return found


def _key(document: Mapping[str, Any]) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]


def _write(file: Path, targets: Iterable[Object]) -> None:
    """At once as a whole, as Prometheus reads it at any time."""
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps(list(targets)))
    fresh.replace(file)
