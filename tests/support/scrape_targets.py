"""Targets in files, for a Prometheus without a discovery of Kubernetes, as Debian's is: in the words in which it would be told.

The rules of a monitor's `scrape_configs` are used as they are; only the part of them that says where targets come from is carried
out here, with its role and its namespaces.

What a ServiceMonitor or a PodMonitor means to Prometheus: the configuration that the Prometheus operator would write of it.

Only what the chart's monitors use is understood; anything else is an error, so that no field of theirs can be passed over.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

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


_PLACES: Final = {"ServiceMonitor": ("service", "endpoints"), "PodMonitor": ("pod", "podMetricsEndpoints")}
_KNOWN: Final = {"selector", "namespaceSelector", "endpoints", "podMetricsEndpoints"}
_KNOWN_OF_ENDPOINT: Final = {
    "port", "path", "interval", "scrapeTimeout", "honorLabels", "relabelings", "metricRelabelings",
}  # fmt: skip


def scrape_configs(monitor: Mapping[str, Any]) -> list[Object]:
    """One ``scrape_config`` for each endpoint."""
    kind, spec = monitor["kind"], monitor["spec"]
    selected, section = _PLACES[kind]
    _refuse_unknown(spec, _KNOWN)
    own, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    discovery = {"role": "endpoints" if kind == "ServiceMonitor" else "pod", **_namespaces(spec, own)}
    found = []
    for number, endpoint in enumerate(spec[section]):
        _refuse_unknown(endpoint, _KNOWN_OF_ENDPOINT)
        config = {
            "job_name": f"{kind[0].lower()}{kind[1:]}/{own}/{name}/{number}",
            "honor_labels": endpoint.get("honorLabels", False),
            "metrics_path": endpoint.get("path", "/metrics"),
            "scrape_interval": endpoint["interval"],
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": [
                *_selection(spec["selector"], selected),
                *_identity(kind, own, name, endpoint["port"]),
                *map(_snake, endpoint.get("relabelings", ())),
            ],
            "metric_relabel_configs": [_snake(each) for each in endpoint.get("metricRelabelings", ())],
        }
        if "scrapeTimeout" in endpoint:
            config["scrape_timeout"] = endpoint["scrapeTimeout"]
        found.append(config)
    return found


def _refuse_unknown(fields: Mapping[str, Any], known: set[str]) -> None:
    if unknown := fields.keys() - known:
        raise NotImplementedError(f"a monitor's {', '.join(sorted(unknown))}")


def _namespaces(spec: Mapping[str, Any], own: str) -> Object:
    selector = spec.get("namespaceSelector") or {}
    return {} if selector.get("any") else {"namespaces": {"names": selector.get("matchNames") or [own]}}


def _selection(selector: Mapping[str, Any], of: str) -> list[Object]:
    """Keep what the label selector selects."""
    rules = []
    for label, value in (selector.get("matchLabels") or {}).items():
        rules.append(_rule("keep", _label(of, label), f"({re.escape(value)});true"))
    for each in selector.get("matchExpressions") or ():
        names, values = _label(of, each["key"]), "|".join(map(re.escape, each.get("values") or ()))
        action, regex = {
            "Exists": ("keep", ".*;true"),
            "DoesNotExist": ("drop", ".*;true"),
            "In": ("keep", f"({values});true"),
            "NotIn": ("drop", f"({values});true"),
        }[each["operator"]]
        rules.append(_rule(action, names, regex))
    return rules


def _identity(kind: str, own: str, name: str, port: str) -> list[Object]:
    """Keep the port of that name, and say where a series is from."""
    if kind == "PodMonitor":
        rules = [
            _rule("drop", ["__meta_kubernetes_pod_phase"], "(Failed|Succeeded)"),
            _rule("keep", ["__meta_kubernetes_pod_container_port_name"], port),
            _copy("__meta_kubernetes_namespace", "namespace"),
            _copy("__meta_kubernetes_pod_container_name", "container"),
            _copy("__meta_kubernetes_pod_name", "pod"),
            {"target_label": "job", "replacement": f"{own}/{name}"},
        ]
    else:
        rules = [
            _rule("drop", ["__meta_kubernetes_pod_phase"], "(Failed|Succeeded)"),
            _rule("keep", ["__meta_kubernetes_endpoint_port_name"], port),
            _copy("__meta_kubernetes_namespace", "namespace"),
            _copy("__meta_kubernetes_service_name", "service"),
            _copy("__meta_kubernetes_pod_name", "pod"),
            _copy("__meta_kubernetes_pod_container_name", "container"),
            _copy("__meta_kubernetes_service_name", "job"),
        ]
    return [*rules, {"target_label": "endpoint", "replacement": port}]


def _label(of: str, name: str) -> list[str]:
    """The two words under which Prometheus finds a label: its value, and whether it is there."""
    clean = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return [f"__meta_kubernetes_{of}_label_{clean}", f"__meta_kubernetes_{of}_labelpresent_{clean}"]


def _rule(action: str, sources: list[str], regex: str) -> Object:
    return {"action": action, "source_labels": sources, "regex": regex}


def _copy(source: str, target: str) -> Object:
    return {"source_labels": [source], "target_label": target}


def _snake(relabeling: Mapping[str, Any]) -> Object:
    """``sourceLabels`` -> ``source_labels``; the action in small letters."""
    found = {re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", key): value for key, value in relabeling.items()}
    if "action" in found:
        found["action"] = found["action"].lower()
    return found
