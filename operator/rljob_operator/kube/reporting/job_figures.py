"""What the operator's `/metrics` tells of each job: a few conditions, the number of its actors, its restarts.

They are read at each scrape from the jobs as the API server last told them, so the series of a job are there from its first
status until it is deleted, and only the operator that leads has any. A document is replaced and never changed, so a thread may
read it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rljob.api.conditions import ConditionType

from rljob_operator.kube.apiserver.resources import Object

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
    """``jobs``: all RLJobs that are known, as `kopf_watch.kept`; called at each scrape, on another thread."""

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
