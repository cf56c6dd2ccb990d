"""A cluster's job seen from outside, by a verb: what the API server stores of it, what its learner says, and
the logs of its pods."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rljob.api.experiment import is_experiment
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.api.status_model import parse_rfc3339

from rljob_operator.core.member import Role, leader
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Invalid, NotFound, Unavailable
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
    known = LearnerStatus(
        updates=status.progress.learner_updates if status.start_time is not None else None,
        policy_lag_updates_p95=status.progress.policy_lag_updates,
    )
    servers = dict(answers or {})
    learner = leader(servers)
    servers = {name: told for name, told in servers.items() if Role.of(name) is not Role.LEARNER}
    return JobView(
        place=f"{about['namespace']}/{about['name']}",
        document=without_managed_fields(document),
        status=status,
        attended=True,
        running=tuple(running),
        figures=known if learner is None else LearnerStatus.lenient(learner),
        queue_fill_percent=status.progress.queue_fill_percent if learner is None else None,
        servers=servers,
        problem=unattended(document, status, now) or problem,
        further={} if is_experiment(document) else {"NODE": status.learner.node_name or "-"},
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
    return "running" in _worker(pod)


def _worker(pod: Pod) -> Mapping[str, Any]:
    """How the pod's worker is: running, terminated or waiting."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each.get("state") or {} for each in containers if each.get("name") == names.WORKER), {})


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


async def find_pods(client: Client, namespace: str, job: str, which: str = "") -> list[Pod]:
    """All pods of a job; ``which``: a selector of those that are meant."""
    selector = ",".join(filter(None, (names.selector(names.labels(job)), which)))
    return list((await client.list(PODS, namespace, label_selector=selector)).items)


MOST: Final = 100
"""Logs that are read at once: each by a request of its own."""
LOOK_SECONDS: Final = 2.0
"""Time between two looks for new lines and new pods."""

Show = Callable[[Sequence[str], Iterable[tuple[str, str]]], None]


class TooMany(Exception):
    """There are more logs than are read at once; ``str()`` says how many."""


def chosen(pods: Iterable[Pod], who: str | None) -> dict[str, Pod]:
    """Member -> its present pod, of all or of one role or member."""
    return {name: pod for name, pod in sorted(current(pods).items()) if who in (None, name, name.partition("-")[0])}


async def show_last(client: Client, pods: Mapping[str, Pod], tail: int, show: Show) -> None:
    """The last ``tail`` lines of each, member by member. Raises `TooMany`."""
    _check(pods)
    texts = await asyncio.gather(*(_read(client, pod, {"tailLines": tail}) for pod in pods.values()))
    show(tuple(pods), ((name, line) for name, lines in zip(pods, texts, strict=True) for line in lines))


async def follow(look: Callable[[], AsyncIterator[Mapping[str, Pod]]], client: Client, tail: int, show: Show) -> None:
    """Show the last lines of each pod that ``look`` brings, now and later, and whatever comes; never ends by itself."""
    newest: dict[str, str] = {}  # uid -> the time of the last line that was shown
    ended: set[str] = set()
    async for pods in look():
        _check({name: pod for name, pod in pods.items() if runs(pod)})
        asked = {name: pod for name, pod in pods.items() if pod["metadata"]["uid"] not in ended}
        texts = await asyncio.gather(*(_new(client, pod, tail, newest) for pod in asked.values()))
        show(tuple(pods), [(name, line) for name, lines in zip(asked, texts, strict=True) for line in lines or ()])
        read = [pod for pod, lines in zip(asked.values(), texts, strict=True) if lines is not None]
        ended |= {pod["metadata"]["uid"] for pod in read if "terminated" in _worker(pod)}


def _check(pods: Mapping[str, Pod]) -> None:
    if len(pods) > MOST:
        raise TooMany(f"{len(pods)} logs at once; at most {MOST} are read: name a role or one member")


async def _new(client: Client, pod: Pod, tail: int, newest: dict[str, str]) -> list[str] | None:
    """What a pod has written since the time that ``newest`` has of it; of one that it does not have the last ``tail`` lines. None
    where the API server has no time."""
    uid = pod["metadata"]["uid"]
    since = newest.get(uid)
    where = {"tailLines": max(1, tail)} if since is None else {"sinceTime": since} if since else {}
    try:
        lines = [line.partition(" ") for line in await _read(client, pod, {"timestamps": "true", **where})]
    except Unavailable:
        return None
    # A kubelet that can't read on says so in a line without a time.
    found = [(at, text) for at, _, text in lines if at[:1].isdigit() and at > (since or "")]
    newest[uid] = found[-1][0] if found else since or ""
    return [text for _, text in found[max(0, len(found) - tail) if since is None else 0 :]]


async def _read(client: Client, pod: Pod, query: Mapping[str, str | int]) -> list[str]:
    """Lines of a pod's log; none before its worker runs."""
    if not _worker(pod).keys() & {"running", "terminated"}:
        return []
    about = pod["metadata"]
    query = {"container": names.WORKER, **query}
    try:
        async with (
            asyncio.timeout(30.0),
            client.log(about["namespace"], about["name"], query, silence_seconds=30.0) as content,
        ):
            return (await content.read()).decode(errors="replace").splitlines()
    except (NotFound, Invalid):  # it has gone meanwhile, or its container is being made
        return []
    except TimeoutError:
        raise Unavailable(f"the log of {about['name']} has not come within 30 s") from None
