"""A cluster's job seen from outside, by a verb: what the API server stores of it, and what its learner says."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rljob.api.experiment import is_experiment
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.api.status_model import parse_rfc3339

from rljob_operator.core.member import Role, leader
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, without_managed_fields
from rljob_operator.kube.job.members import Pod, current
from rljob_operator.kube.job.stored import is_ours, status_of
from rljob_operator.kube.render import names
from rljob_operator.view.job_view import JobView, stale_seconds
from rljob_operator.view.words import age

UNSEEN_SECONDS: Final = 15.0
"""Where a change was not reconciled for so long, no operator runs. A new leader needs up to twelve."""


def view(
    document: Mapping[str, Any],
    now: float,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    running: Iterable[str] = (),
    problem: str = "",
) -> JobView:
    """The stored object as its user sees it.

    Args:
        now: Unix seconds.
        answers: status documents of members by name; without that of the learner, what the job's status knows stands for it.
        running: members that run.
        problem: what kept it from being seen whole.
    """
    status, about = status_of(document, RLJobStatus), document["metadata"]
    servers = dict(answers or {})
    learner = leader(servers)
    servers = {name: told for name, told in servers.items() if Role.of(name) is not Role.LEARNER}
    return JobView(
        place=f"{about['namespace']}/{about['name']}",
        document=without_managed_fields(document),
        status=status,
        attended=True,
        running=tuple(running),
        figures=remembered(status) if learner is None else LearnerStatus.lenient(learner),
        queue_fill_percent=status.progress.queue_fill_percent if learner is None else None,
        servers=servers,
        problem=unattended(document, status, now) or problem,
        further={} if is_experiment(document) else {"NODE": status.learner.node_name or "-"},
    )


def remembered(status: RLJobStatus) -> LearnerStatus:
    """The learner's figures as the job's status has them."""
    progress = status.progress
    return LearnerStatus(
        updates=progress.learner_updates if status.start_time is not None else None,
        policy_lag_updates_p95=progress.policy_lag_updates,
    )


def unattended(document: Mapping[str, Any], status: RLJobStatus, now: float) -> str:
    """Why it seems that no operator looks after the job; empty where one does, or none is needed."""
    about = document["metadata"]
    if about.get("deletionTimestamp"):
        return "it is being deleted"
    if status.finished:
        return ""
    if not is_ours(document):
        return f"spec.managedBy is {document['spec']['managedBy']}: no operator of rljob looks after it"
    unseen = now - _changed(about)
    if status.observed_generation < int(about.get("generation", 1)) and unseen > UNSEEN_SECONDS:
        return (
            f"no operator has looked at its newest spec, which is {age(unseen)} old: does one run that looks after namespace "
            f"{about['namespace']}?"
        )
    old = stale_seconds(status, now)
    if old is not None:
        return f"the status is {age(old)} old: does an operator run that looks after namespace {about['namespace']}?"
    return ""


def live(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Members that can be asked -> their pods: those that have an address and whose worker runs."""
    return {name: pod for name, pod in current(pods).items() if (pod.get("status") or {}).get("podIP") and runs(pod)}


def runs(pod: Pod) -> bool:
    """Whether the pod's worker runs now."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(each.get("name") == names.WORKER and (each.get("state") or {}).get("running") for each in containers)


def metrics_port(pod: Pod) -> int | None:
    """The number of the port that a pod is asked at."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if container.get("name") == names.WORKER and port.get("name") == names.METRICS:
                return int(port["containerPort"])
    return None


def _changed(about: Mapping[str, Any]) -> float:
    """When the object was last changed, its status apart; Unix seconds."""
    fields = about.get("managedFields") or ()
    times = [each["time"] for each in fields if each.get("time") and each.get("subresource") != "status"]
    return parse_rfc3339(max([*times, about["creationTimestamp"]]))


async def find_pods(client: Client, namespace: str, job: str) -> list[Pod]:
    """All pods of a job."""
    return list((await client.list(PODS, namespace, label_selector=names.selector(names.labels(job)))).items)
