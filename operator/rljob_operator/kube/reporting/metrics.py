"""The operator's own figures, in a Prometheus registry of their own.

Events are counted when they happen; states are read once a second (`Health`), so that a scrape, which comes on
another thread, reads nothing but numbers, and for the jobs (`job_figures`) documents that never change.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

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
