"""What a ServiceMonitor or a PodMonitor means to Prometheus: the configuration that the Prometheus operator would write of it.

Only what the chart's monitors use is understood; anything else is an error, so that no field of theirs can be passed over.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]

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
