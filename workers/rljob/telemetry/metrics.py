"""The Prometheus view of a role: one collector that reads the role's status document at each scrape.

Nothing is counted here. A scrape asks the role for its status once and translates; what the status lacks is left out of
the answer rather than sent as a made-up zero.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rljob.telemetry.catalogue import PROCESS, ROLES, Metric as Declared
from rljob.telemetry.flat_figures import number, numbers_in
from rljob.telemetry.process import PROCESS as THIS_PROCESS

Snapshot = Callable[[], Mapping[str, Any]]

_IDENTITY: Final = {
    "actor": "actor",
    "replay": "shard",
    "learner": "learner",
    "evaluator": "evaluator",
    "inference": "inference",
}
"""The label that carries a role's name, so that queries read well, such as ``sum by (actor)``."""


def role_registry(role: str, snapshot: Snapshot) -> CollectorRegistry:
    """The metrics of one ``role`` such as "learner"; ``snapshot`` returns its status document and is called at each scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RoleCollector(role, snapshot))
    return registry


class RoleCollector(Collector):
    """Translates a role's status document into metric families. Raises what ``snapshot`` raises."""

    def __init__(self, role: str, snapshot: Snapshot) -> None:
        self.role = role
        self.declared = ROLES[role]
        self._snapshot = snapshot
        self._start_unix = time.time()

    def collect(self) -> Iterable[Metric]:
        """One family a declared metric for which the status holds a value."""
        status = self._snapshot()
        identity = {"role": self.role}
        name = status.get("name") or status.get("service")
        if name and _IDENTITY[self.role] != "learner":
            identity[_IDENTITY[self.role]] = str(name)
        process = {**THIS_PROCESS.now(), "start_time_seconds": self._start_unix, "state": status.get("state")}
        for of, declared in ((status, self.declared), (process, PROCESS)):
            for metric in declared:
                if samples := list(_samples(metric, _at(of, metric.path))):
                    yield _family(metric, identity, samples)


def _at(value: Any, path: str) -> Any:
    """The value at ``a/b/c`` of nested mappings, or None."""
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _samples(metric: Declared, value: Any) -> Iterable[tuple[str, Any]]:
    """(label value or "", sample value) pairs of one metric."""
    if metric.kind == "histogram":
        if isinstance(value, Mapping) and len(value.get("counts", ())) == len(value.get("bounds", ())) + 1:
            yield "", value
    elif not metric.label:
        if (finite := number(value)) is not None:
            yield "", finite
    elif isinstance(value, Mapping):
        yield from numbers_in(value).items()
    elif isinstance(value, str) and value:
        yield value, 1.0


def _family(metric: Declared, identity: Mapping[str, str], samples: Iterable[tuple[str, Any]]) -> Metric:
    names = [*identity, metric.label] if metric.label else list(identity)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.full_name, metric.help, labels=names)
        for _, value in samples:
            histogram.add_metric(list(identity.values()), _cumulative(value), sum_value=number(value.get("sum")) or 0.0)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(metric.full_name.removesuffix("_total"), metric.help, labels=names)
        if metric.kind == "counter"
        else GaugeMetricFamily(metric.full_name, metric.help, labels=names)
    )
    for label, value in samples:
        values = [*identity.values(), label] if metric.label else list(identity.values())
        family.add_metric(values, value)
    return family


def _cumulative(value: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Prometheus buckets from ``{"bounds": [b...], "counts": [c..., overflow]}``, whose counts are not cumulative."""
    buckets: list[tuple[str, float]] = []
    total = 0.0
    for bound, count in zip([*value["bounds"], "+Inf"], value["counts"], strict=True):
        total += float(count)
        buckets.append((str(bound), total))
    return buckets
