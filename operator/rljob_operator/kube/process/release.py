"""``rljob operator --release``: before an operator is uninstalled, its jobs are drained and nothing of its own keeps a pod.

A pod goes only when its end has been counted, which its finalizer sees to. Without an operator to take that off, deleted pods
would stay Terminating, and with them their namespace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rljob.api.conditions import ConditionType

from rljob_operator.core.member import Phase
from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.job.apply import PodWriter
from rljob_operator.kube.job.members import Pod, member, member_of
from rljob_operator.kube.job.stored import StoredJob, is_ours, read
from rljob_operator.kube.process.lease import Elector
from rljob_operator.kube.process.operator import Operator, OperatorConfig
from rljob_operator.kube.process.run import candidate
from rljob_operator.kube.render import names
from rljob_operator.kube.render.rendering import settings_for
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoints_are
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.pods import JobKey, owner_of

LEAD_SECONDS: Final = 25.0
"""A Lease that is not renewed is had within its fifteen seconds and a look. One that is not to be had for so long is renewed."""
START_SECONDS: Final = 120.0
"""For the lists of all jobs and pods after that."""
LOOK_SECONDS: Final = 0.2


class AnotherLeads(Exception):
    """Another operator holds the Lease, and goes on renewing it."""


class NotStarted(Exception):
    """The API server does not tell what there is to be released."""


@dataclass(frozen=True, slots=True)
class Row:
    """One job.

    Attributes:
        state: its state in one word; ``Gone`` of one that is deleted already, of which pods are left.
        running: its pods that have not ended.
        kept: its pods that our finalizer keeps.
        result: what becomes, or has become, of it.
    """

    namespace: str
    name: str
    state: str
    running: int
    kept: int
    result: str

    @property
    def cells(self) -> tuple[str, ...]:
        """As `HEADINGS` names them."""
        return self.namespace, self.name, self.state, str(self.running), self.result


HEADINGS: Final = ("NAMESPACE", "NAME", "STATE", "RUNNING", "RESULT")


def table(rows: Iterable[Row]) -> list[str]:
    """The rows below their headings, in columns."""
    cells = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


async def jobs(config: OperatorConfig) -> list[Row]:
    """Every job of the scope and what a release would do with it; nothing is changed, and no Lease needed. Raises `NoAccess` and
    `ApiError`."""
    client = Client(await load_access(config.kubeconfig, config.context))
    try:
        stored, pods = await _listed(client, config)
    finally:
        await client.close()
    return [
        _row(key, stored.get(key), pods.get(key, []), _would(stored.get(key), config.settings))
        for key in _keys(stored, pods)
    ]


async def release(config: OperatorConfig, seconds: float) -> list[Row]:
    """Drain every job of the scope and take the finalizers off; what became of each. ``seconds`` bounds the draining, and so
    how long a checkpoint is waited for that can't be written.

    Where RLJobs are not even defined any more no operator can work: what pods are left of them are let go at once.

    Raises:
        AnotherLeads: an operator is at work; nothing was changed.
        NotStarted: the API server does not tell what jobs and pods there are; nothing was changed.
        LeadershipLost, NoAccess, ApiError: as an operator does.
    """
    client = Client(await load_access(config.kubeconfig, config.context))
    try:
        before, pods_before = await _listed(client, config)
        if not await _defined(client, config):
            writer = PodWriter(client, Expectations(), config.settings)
            await writer.release_for_good(pod for pods in pods_before.values() for pod in pods)
        else:
            await _drain(config, seconds)
        after, pods = await _listed(client, config)
    finally:
        await client.close()
    return [
        replace(
            _row(key, after.get(key), pods.get(key, []), _became(after.get(key), pods.get(key, []), config.settings)),
            state=_state(before.get(key)),
            running=_running(pods_before.get(key, [])),
        )
        for key in _keys(before, pods_before)
    ]


async def _drain(config: OperatorConfig, seconds: float) -> None:
    """Lead until no pod has our finalizer, or ``seconds`` are over."""
    async with candidate(replace(config, releasing=True)) as (operator, elector, _):
        leading = asyncio.ensure_future(elector.lead(operator.lead))
        try:
            await _wait_started(operator, elector, leading)
            await _wait_released(operator, leading, seconds)
            operator.stop()
            await leading
        finally:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)


async def _wait_started(operator: Operator, elector: Elector, leading: asyncio.Future[None]) -> None:
    began = time.monotonic()
    while not operator.started.is_set() and not leading.done():
        waited = time.monotonic() - began
        if not operator.leading and waited >= LEAD_SECONDS:
            raise AnotherLeads(
                f"{elector.holder or 'nobody'} holds the Lease and renews it: stop that operator first, for instance with "
                "kubectl scale deployment --replicas=0; nothing was changed"
            )
        if waited >= START_SECONDS:
            raise NotStarted(f"jobs and pods could not be listed within {START_SECONDS:g} s; nothing was changed")
        await asyncio.sleep(LOOK_SECONDS)


async def _wait_released(operator: Operator, leading: asyncio.Future[None], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while operator.jobs_with_finalizers() and time.monotonic() < deadline and not leading.done():
        await asyncio.sleep(LOOK_SECONDS)


async def _listed(client: Client, config: OperatorConfig) -> tuple[dict[JobKey, StoredJob], dict[JobKey, list[Pod]]]:
    """Our jobs, and the pods that belong to a job, whether it is still there or not."""
    stored: dict[JobKey, StoredJob] = {}
    pods: dict[JobKey, list[Pod]] = {}
    for namespace in [None] if config.namespaces is None else config.namespaces:
        for document in await _jobs_of(client, namespace):
            if is_ours(document):
                found = read(document)
                stored[found.key] = found
        for pod in (await client.list(PODS, namespace, label_selector=names.SELECTOR)).items:
            owner = owner_of(pod)
            if owner is not None:
                pods.setdefault((pod["metadata"]["namespace"], owner["name"]), []).append(pod)
    return stored, pods


async def _defined(client: Client, config: OperatorConfig) -> bool:
    """Whether the API server knows what an RLJob is."""
    try:
        await anext(client.pages(RLJOBS, config.namespaces[0] if config.namespaces else None, limit=1))
    except NotFound:
        return False
    return True


async def _jobs_of(client: Client, namespace: str | None) -> list[Object]:
    try:
        return (await client.list(RLJOBS, namespace)).items
    except NotFound:  # their definition is gone, and they with it
        return []


def _keys(stored: Mapping[JobKey, StoredJob], pods: Mapping[JobKey, list[Pod]]) -> list[JobKey]:
    return sorted({*stored, *pods})


def _row(key: JobKey, stored: StoredJob | None, pods: list[Pod], result: str) -> Row:
    return Row(*key, _state(stored), _running(pods), len(_kept(pods)), result)


def _state(stored: StoredJob | None) -> str:
    return "Gone" if stored is None else stored.status.state or "New"


def _running(pods: Iterable[Pod]) -> int:
    """How many have not ended."""
    phases = (member(pod, time.time()).phase for pod in pods if member_of(pod) is not None)
    return sum(phase is not Phase.EXITED for phase in phases)


def _kept(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if names.FINALIZER in (pod["metadata"].get("finalizers") or ())]


def _would(stored: StoredJob | None, settings: Settings) -> str:
    """What a release would do with it."""
    if stored is None:
        return "its pods would be let go"
    if stored.status.finished or stored.leaving:
        return "nothing would be drained; its pods would be let go"
    if not checkpoints_are(stored.desired.job, settings_for(stored.status, settings)):
        return "would be drained; what it has learned is lost, since its checkpoints are in its learner's pod"
    return "would be drained, after a verified checkpoint"


def _became(stored: StoredJob | None, pods: list[Pod], settings: Settings) -> str:
    if _kept(pods):
        return f"NOT released: {_why_not(stored)}"
    if stored is None:
        return "released"
    if stored.status.finished:
        return "released; it was over"
    checkpoint = stored.status.checkpoint
    if checkpoint is None or not checkpoints_are(stored.desired.job, settings_for(stored.status, settings)):
        return "released; no checkpoint outlives it"
    return f"released; checkpoint of step {checkpoint.step:,}"


def _why_not(stored: StoredJob | None) -> str:
    condition = stored.status.condition(ConditionType.SUSPENDED) if stored is not None else None
    return condition.message if condition is not None and condition.message else "its pods did not end in time"
