"""The operator's own figures, in a Prometheus registry of their own, and what it tells of each job: a few conditions, the number
of its actors, its restarts.

Events are counted when they happen; states are read once a second (`Health`), so that a scrape, which comes on
another thread, reads nothing but numbers, and for the jobs (`JobFigures`) documents that never change.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from rljob.api.conditions import ConditionType

from rljob_operator.kube.apiserver.resources import Object

PREFIX = "rljob_operator"
RECONCILE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
CALL_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class OperatorMetrics:
    """All figures of one operator; ``registry`` is what `/metrics` serves."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._reconciles = Counter(
            f"{PREFIX}_reconciles", "Looks at a job, by how they went.", ["result"], registry=self.registry
        )
        self._reconcile_seconds = Histogram(
            f"{PREFIX}_reconcile_seconds", "How long a look took.", registry=self.registry, buckets=RECONCILE_SECONDS
        )
        self._calls = Counter(
            f"{PREFIX}_api_calls",
            "Calls to the API server; without its answer the code is timeout, connection or cancelled.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._call_seconds = Histogram(
            f"{PREFIX}_api_call_seconds",
            "How long a call to the API server took, watches apart.",
            ["verb"],
            registry=self.registry,
            buckets=CALL_SECONDS,
        )
        self._events = Counter(
            f"{PREFIX}_events", "Events, sent to the API server or dropped.", ["outcome"], registry=self.registry
        )
        self._recommended = Gauge(
            f"{PREFIX}_recommended_actors",
            "Actors that a job's learner has work for, by the law of docs/autoscaling.md; not there while the job does not run.",
            ["namespace", "rljob"],
            registry=self.registry,
        )
        self.jobs_waiting = self._gauge("jobs_waiting", "Jobs that wait for a worker.")
        self.jobs_delayed = self._gauge("jobs_delayed", "Jobs that are to be reconciled later.")
        self.jobs_failing = self._gauge("jobs_failing", "Jobs whose last reconciliation failed.")
        self.jobs_waiting_seconds = self._gauge(
            "jobs_waiting_seconds", "How long the next job has waited for a worker."
        )
        self.leader = self._gauge("leader", "1 where this process leads, else 0.")
        self.jobs = self._gauge("jobs", "RLJobs that are known.")
        self.namespace_readable = Gauge(
            f"{PREFIX}_namespace_readable",
            "0 where RLJobs of a watched namespace may not be read, as after it or a RoleBinding in it was deleted, else 1.",
            ["namespace"],
            registry=self.registry,
        )
        self.cached_pods = self._gauge("cached_pods", "Pods of jobs that are known.")
        self.watch_age_seconds = self._gauge(
            "watch_age_seconds", "Since the API server was last heard by a watch or a list."
        )
        self.loop_lag_seconds = self._gauge(
            "loop_lag_seconds", "How much too late the event loop was in the last second."
        )

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconciliation has ended. ``result`` is one of a few words, never a message."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def called(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """A call to the API server has ended: the observer of a `Client`."""
        self._calls.labels(verb, resource, code).inc()
        if verb != "watch":
            self._call_seconds.labels(verb).observe(seconds)

    def event(self, outcome: str) -> None:
        """An event was sent or dropped: for an `EventRecorder`."""
        self._events.labels(outcome).inc()

    def recommended(self, namespace: str, name: str, actors: int | None) -> None:
        """So many actors are recommended for a job; None: there is nothing to recommend."""
        if actors is None:
            self._recommended.remove_by_labels({"namespace": namespace, "rljob": name})
        else:
            self._recommended.labels(namespace, name).set(actors)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", meaning, registry=self.registry)


CONDITIONS: Final = (
    ConditionType.READY,
    ConditionType.PROGRESSING,
    ConditionType.CHECKPOINT_VALID,
    ConditionType.FAILED,
)
"""Those that alerts ask for. All of them would be fifteen series a job."""
_JOB: Final = ("namespace", "rljob")
_TRUTH: Final = {"True": 1.0, "False": 0.0}
_ACTORS: Final = {
    "wanted": ("autoscaling", "desiredReplicas"),
    "ready": ("actors", "ready"),
    "leaving": ("actors", "draining"),
}


class JobFigures(Collector):
    """The series of a job are there from its first status until it is deleted, and only the operator that leads has any.

    ``jobs``: all RLJobs that are known, as `kopf_watch.kept`; called at each scrape, on another thread. A document is replaced
    and never changed, so a thread may read it.
    """

    def __init__(self, jobs: Callable[[], Sequence[Object]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        """The families; what a status does not say is left out."""
        conditions = GaugeMetricFamily(
            "rljob_operator_job_condition",
            "1 where the condition is True, 0 where it is False, with its reason; "
            f"of {', '.join(CONDITIONS[:-1])} and {CONDITIONS[-1]}.",
            labels=(*_JOB, "condition", "reason"),
        )
        actors = GaugeMetricFamily(
            "rljob_operator_job_actors",
            "Actors that there should be (wanted), that play (ready), and that are leaving.",
            labels=(*_JOB, "state"),
        )
        restarts = GaugeMetricFamily(
            "rljob_operator_job_restarts",
            "Unexpected ends of members: those counted towards backoffLimit, and those ignored.",
            labels=(*_JOB, "kind"),
        )
        for job in self._jobs():
            key = (str(job["metadata"]["namespace"]), str(job["metadata"]["name"]))
            status = json.loads(job.get("status") or "{}")
            for condition in status.get("conditions") or ():
                value = _TRUTH.get(condition["status"])
                if condition["type"] in CONDITIONS and value is not None:
                    conditions.add_metric((*key, condition["type"], condition.get("reason") or ""), value)
            for state, (section, field) in _ACTORS.items():
                _add(actors, (*key, state), (status.get(section) or {}).get(field))
            for kind in ("counted", "ignored"):
                _add(restarts, (*key, kind), (status.get("restarts") or {}).get(kind))
        return conditions, actors, restarts


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: object) -> None:
    if isinstance(value, int):
        family.add_metric(labels, float(value))
