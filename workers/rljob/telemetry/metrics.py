"""The Prometheus view of a role: one collector that reads the role's status document at each scrape.

Nothing is counted here. A scrape asks the role for its status once and translates; what the status lacks is left out of
the answer rather than sent as a made-up zero.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rljob.telemetry.catalogue import (
    CLEANRL,
    LEARNER,
    PROCESS,
    ROLES,
    STABLE_BASELINES3,
    KnownTag,
    Metric as Declared,
)
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


_HEAD: Final = """# Metrics

<!-- Written by `python -m rljob.telemetry.metrics`; a test compares. Change workers/rljob/telemetry/catalogue.py. -->

Every role serves HTTP on its metrics port: `/metrics` (Prometheus), `/healthz` (503 if the role's loop is stuck), `/readyz`,
and `/status` (JSON, with the same values). `rljob worker --metrics-host ADDRESS --metrics-port PORT` (or `RLJOB_METRICS_HOST`,
`RLJOB_METRICS_PORT`) set the address; the default is 127.0.0.1 and any free port. A value that the role does not know is
absent, not 0. `/profile` samples the role while it is polled, as [`rljob profile`](running-locally.md#where-does-the-time-go)
does.

Any client that reaches the port may read. `POST /checkpoint` and `POST /ending` (learner; the operator reports a tracked job's
end) need the job's token, as `Authorization: Bearer TOKEN` or `X-RLJob-Token: TOKEN`, if the role has one
(`--token-file FILE` or `RLJOB_TOKEN_FILE`, read at each request). Without a token, they work on loopback only. The answer is 401
for a missing or wrong token, 403 if the role has none. `rljob run` makes a token for each run (`roles/request-token` in the run
folder), so `rljob checkpoint` and `suspend` work wherever the learner listens.

Every series has the label `role`, and `actor`, `shard` or `evaluator` with the name of the process; braces show a further
label. Names that end in `_total` are counters, all others gauges unless noted. Counters start at 0 with their process, except
those "over the whole run". A learner that serves actions also has the metrics of [Inference](#inference).

A **raw frame** is one frame of the emulator; an agent **step** takes several (frame skip). A **transition** is one step with
its n-step return. **Policy lag** is counted in learner updates. **Queue depth** is in batches: with a replay, the batches that
the learner may draw before it must wait for new experience. Read it next to `rljob_learner_wait_fraction` and
`rljob_actors_blocked_fraction`. `rljob_ready_batches` shows health, not demand: it is full whenever the replay keeps up.

"""

_TAIL: Final = """
## The run folder

TensorBoard and `metrics.jsonl` hold the learner's `/status`: its top-level numbers under their own names (`mean_return`,
`queue_depth_batches`, ...), and

- `replay/<name>`, `queue/<name>` (unrolls; `queue/dropped/<reason>`), `inference/<name>` (a server in the learner);
- `episode/<name>`: numbers that the environment reports;
- `stage/<role>/<stage>`: share of time since the last record;
- `processes/<role>/<name>`: sums over the role's processes (`metrics.jsonl` alone);
- `actors_running`;
- `evaluation/mean`, `/standard_error`, `/mean_length_steps`, `/episodes`, `/seconds`, `/episode/<name>`.

TensorBoard's step is raw frames. `metrics.jsonl` keeps up to 10,000 points over the run. TensorBoard's points thin out: one in
two seconds after an hour, one in 17 after a day, one in nine minutes after a month, 50 MB in all.

A line of `metrics.jsonl` without `kind` is a point in time: `time_unix`, `elapsed_seconds` (without pauses), `updates`,
`raw_frames`, `state`, and the numbers. A line with `kind` is an event: `evaluation`, `checkpoint`, `machine` (processor and
versions, at each start) or `learner` (device, precision and rewards, at each change).

### Tags of other libraries

TensorBoard also gets these tags of Stable-Baselines3 and CleanRL, so that their dashboards show a run of rljob. A plug-in's own
tag of the same name wins. Their step is raw frames: for Atari games four per agent step of those libraries. Returns and lengths
are means of the last 20 games; CleanRL writes every game. They add 0.5 KB to a record of 1.3 KB, or 0.9 MB an hour.

| Stable-Baselines3 | CleanRL | rljob |
|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    sections = [_HEAD, _section("All roles", PROCESS)]
    listed = {**ROLES, "learner": LEARNER}  # those of a server in the learner stand below Inference
    sections += [_section(role.capitalize(), metrics) for role, metrics in listed.items()]
    return "\n".join(sections) + _TAIL + _known_tags()


def _known_tags() -> str:
    """The rows of the table of known tags, a figure each."""

    def told(tags: Sequence[KnownTag], figure: str) -> str:
        differs = ((each, f" (times {each.factor:g})" if each.factor != 1.0 else "") for each in tags)
        return ", ".join(
            f"`{each.tag}`{times}" + (f" beside `{each.beside}`" if each.beside else "")
            for each, times in differs
            if each.figure == figure
        )

    figures = dict.fromkeys(each.figure for each in (*STABLE_BASELINES3, *CLEANRL))
    return "".join(f"| {told(STABLE_BASELINES3, name)} | {told(CLEANRL, name)} | `{name}` |\n" for name in figures)


def _section(title: str, metrics: Sequence[Declared]) -> str:
    lines = (
        f"- `{each.full_name}{f'{{{each.label}}}' if each.label else ''}`: "
        f"{'(histogram) ' if each.kind == 'histogram' else ''}{each.help}\n"
        for each in metrics
    )
    return f"## {title}\n\n{''.join(lines)}"


if __name__ == "__main__":
    sys.stdout.write(markdown())
