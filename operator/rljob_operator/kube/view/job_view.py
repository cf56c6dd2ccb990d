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
from rljob_operator.kube.apiserver.errors import ApiError, Invalid, NotFound, Unavailable
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


MOST: Final = 100
"""Logs that are read at once: each is a connection of its own."""
LOOK_SECONDS: Final = 2.0
"""Time between two checks for new pods."""
LONGEST_LINE_BYTES: Final = 1 << 20

Show = Callable[[Sequence[str], Iterable[tuple[str, str]]], None]


class TooMany(Exception):
    """There are more logs than are read at once; ``str()`` says how many."""


def chosen(pods: Iterable[Pod], who: str | None) -> dict[str, Pod]:
    """Member -> its present pod, of all or of one role or member."""
    return {name: pod for name, pod in sorted(current(pods).items()) if who in (None, name, name.partition("-")[0])}


async def show_last(client: Client, pods: Mapping[str, Pod], tail: int, show: Show) -> None:
    """The last ``tail`` lines of each, member by member. Raises `TooMany`."""
    _check(pods)
    texts = await asyncio.gather(*(_last(client, pod, tail) for pod in pods.values()))
    show(tuple(pods), ((name, line) for name, lines in zip(pods, texts, strict=True) for line in lines))


async def follow(look: Callable[[], AsyncIterator[Mapping[str, Pod]]], client: Client, tail: int, show: Show) -> None:
    """Show the last lines of each pod that ``look`` brings, now and later, and go on with each; never ends by itself."""
    lines: asyncio.Queue[tuple[str, str]] = asyncio.Queue(10_000)
    seen: dict[str, str] = {}  # uid -> member
    streams: dict[str, asyncio.Task[None]] = {}

    async def watch_pods() -> None:
        async for pods in look():
            _check({name: pod for name, pod in pods.items() if runs(pod)})
            for name, pod in pods.items():
                uid = pod["metadata"]["uid"]
                reading = uid in streams and not streams[uid].done()
                if reading or not _started(pod) or (uid in seen and not runs(pod)):
                    continue
                from_here = 0 if uid in seen else tail  # one that was cut goes on with what is new
                seen[uid] = name
                streams[uid] = asyncio.ensure_future(_read(client, name, pod, from_here, lines))

    watching = asyncio.ensure_future(watch_pods())
    try:
        while True:
            coming = asyncio.ensure_future(lines.get())
            await asyncio.wait({coming, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                coming.cancel()
                watching.result()
                return
            found = [coming.result()]
            while not lines.empty():
                found.append(lines.get_nowait())
            show(tuple(dict.fromkeys(seen.values())), found)
    finally:
        for task in (watching, *streams.values()):
            task.cancel()
        await asyncio.gather(watching, *streams.values(), return_exceptions=True)


def _check(pods: Mapping[str, Pod]) -> None:
    if len(pods) > MOST:
        raise TooMany(f"{len(pods)} logs at once; at most {MOST} are read: name a role or one member")


async def _last(client: Client, pod: Pod, tail: int) -> list[str]:
    if not _started(pod):
        return []
    about = pod["metadata"]
    try:
        async with (
            asyncio.timeout(30.0),
            client.log(
                about["namespace"], about["name"], {"container": names.WORKER, "tailLines": tail}, silence_seconds=30.0
            ) as content,
        ):
            return (await content.read()).decode(errors="replace").splitlines()
    except (NotFound, Invalid):  # it has gone meanwhile, or its container is being made
        return []
    except TimeoutError:
        raise Unavailable(f"the log of {about['name']} has not come within 30 s") from None


async def _read(client: Client, name: str, pod: Pod, tail: int, lines: asyncio.Queue[tuple[str, str]]) -> None:
    """Put every line of one pod into the queue until its container ends. One that is cut is begun anew by the next look."""
    about, rest = pod["metadata"], b""
    query: dict[str, str | int] = {"container": names.WORKER, "tailLines": tail, "follow": "true"}
    try:
        async with client.log(about["namespace"], about["name"], query) as content:
            async for piece in content.iter_any():
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    await lines.put((name, line.decode(errors="replace")))
                if len(rest) > LONGEST_LINE_BYTES:
                    await lines.put((name, rest.decode(errors="replace")))
                    rest = b""
        if rest:
            await lines.put((name, rest.decode(errors="replace")))
    except (NotFound, Invalid, Unavailable):
        return
    except ApiError as problem:
        await lines.put((name, f"[its log can't be read: {problem}]"))


def _started(pod: Pod) -> bool:
    """Whether its worker runs or has run."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    states = [each.get("state") or {} for each in containers if each.get("name") == names.WORKER]
    return any(state.get("running") or state.get("terminated") for state in states)
