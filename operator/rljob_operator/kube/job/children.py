"""Makes sure that a job has everything besides its pods: Secrets once, the rest as the job in force says; the NetworkPolicy
follows this operator's configuration.

A child is created by POST, so that a name which another object has is found out and never merged into; from then on it
is changed by server-side apply under its own uid. What a replay shard has left in a Redis of others is removed once its job is
over, by a Job that is left behind: it is never waited for, and what it can't remove expires (``rljob worker replay --redis-
keep-seconds``).
"""

import hashlib
import json
import logging
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rljob.api.status import RLJobStatus

from rljob_operator.kube.apiserver.client import Client, concurrently
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from rljob_operator.kube.apiserver.resources import ALL, CONFIG_MAPS, JOBS, NETWORK_POLICIES, PODS, Object, resource_of
from rljob_operator.kube.job.keys import NameConflict, create, ensure_secrets, get_own
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.job.stored import ReadBefore, StoredJob, kept_job, read, status_of
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import changing_children, config_map, network_policies, unwanted
from rljob_operator.kube.render.external_redis import removal
from rljob_operator.kube.render.metadata import Owned, is_of
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.pods import is_gone

log = logging.getLogger(__name__)

_MADE_ONCE = "PersistentVolumeClaim"
"""The kind of objects that are never changed once they exist."""
SECRETS_SECONDS: Final = 600.0
"""Secrets may not be watched. For so long those of a job which starts pods are taken to be there: a job whose roles come up
minutes after each other, or whose number of actors changes, does not read its Secrets each time."""
DOUBTED_SECONDS: Final = 60.0
"""The same where one may be missing: nothing of the job runs, so that its user may have deleted them, or a pod does not
come up."""


@dataclass(slots=True)
class Known:
    """What is known of one job's children.

    Attributes:
        digests: (kind, name) -> digest of what was last written, of those that are there.
        uids: (kind, name) -> uid.
        token: what requests to the learner carry; empty while the Secrets are not there.
        secrets_seen: when they were all there, by the clock that `ensure` is given; minus infinity where that is not known.
        made_for: what all the other children were made for; None while something may be missing. ``made_with``: and with what.
        lost: whether one of these has gone since.
        kept: the job that the ConfigMap has.
    """

    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    token: str = ""
    secrets_seen: float = float("-inf")
    made_for: Owned | None = None
    made_with: Settings | None = None
    lost: bool = False
    kept: Owned | None = None

    def forget(self, uid: str) -> None:
        """The object of this uid is not there any more; where it is one of these, `ensure` makes it anew."""
        for place in [place for place, known in self.uids.items() if known == uid]:
            del self.uids[place]
            self.digests.pop(place, None)
            self.made_for, self.lost = None, True


async def recalled(client: Client, document: Object, before: ReadBefore) -> Owned | None:
    """Note in ``before`` the job that another operator had in force, as its ConfigMap has it, and answer it; None where there is
    none. Raises whatever `Client` raises."""
    about, status = document["metadata"], status_of(document, RLJobStatus)
    if not status.observed_generation or status.finished:
        return None
    try:
        found = await client.get(CONFIG_MAPS, about["namespace"], names.config_map(about["name"]))
    except NotFound:
        return None
    job = kept_job(document, (found.get("data") or {}).get(names.JOB_FILE, "")) if is_of(found, about["uid"]) else None
    if job is None:
        return None
    notes = found["metadata"].get("annotations") or {}
    before.in_force = job
    before.made_for = notes.get(names.WRITTEN_ANNOTATION, status.controller.started_with)  # earlier releases noted none
    return Owned(job, about["uid"], written=before.made_for)


async def stored_job(client: Client, document: Object) -> StoredJob:
    """The job as the operator takes it, for one who only looks; without the right to read ConfigMaps as its user wrote it."""
    before = ReadBefore()
    with suppress(ApiError):
        await recalled(client, document, before)
    return read(document, before=before)


async def ensure(
    client: Client,
    owned: Owned,
    settings: Settings,
    known: Known,
    now: float,
    *,
    new: bool = False,
    idle: bool = False,
    held_up: bool = False,
) -> None:
    """Create what is missing, change what differs, delete what the job no longer wants; as much as possible at the same time.

    ``now``: seconds that only go forward; ``new``, ``idle``: as `keys.ensure_secrets`; ``held_up``: a pod does not come up.
    Raises `NameConflict`, `KeysLost`, and whatever `Client` raises; called again it goes on where it was.
    """
    calls: list[Awaitable[None]] = []
    believed_seconds = DOUBTED_SECONDS if idle or held_up else SECRETS_SECONDS
    if not known.token or now - known.secrets_seen >= believed_seconds:
        calls.append(_ensure_secrets(client, owned, known, now, new=new and not known.token, idle=idle))
    if known.made_for is None or not known.made_for.same_children(owned) or known.made_with != settings:
        calls += [_ensure(client, owned, document, known) for document in changing_children(owned, settings)]
        if not new:
            calls += [_ensure_none(client, owned, kind, name, known) for kind, name in unwanted(owned)]
    await concurrently(*calls)
    known.made_for, known.made_with, known.lost, known.kept = owned, settings, False, owned


async def keep(client: Client, owned: Owned, known: Known) -> None:
    """Have the ConfigMap follow a change of the job that makes no role start. Raises whatever `Client` raises."""
    if known.kept is not None and not known.kept.same_children(owned):
        await _ensure(client, owned, config_map(owned), known)
        known.kept = owned


async def _ensure_secrets(client: Client, owned: Owned, known: Known, now: float, *, new: bool, idle: bool) -> None:
    known.secrets_seen = float("-inf")
    known.token = await ensure_secrets(client, owned, new=new, idle=idle)
    known.secrets_seen = now


async def _ensure_none(client: Client, owned: Owned, kind: str, name: str, known: Known) -> None:
    if known.digests.pop((kind, name), None) is None and (kind, name) in known.uids:
        return
    resource, namespace = next(each for each in ALL if each.kind == kind), owned.job.metadata.namespace
    with suppress(NotFound):
        found = await client.get(resource, namespace, name)
        if is_of(found, owned.uid):
            await client.delete(resource, namespace, name, uid=found["metadata"]["uid"])
    known.uids[kind, name] = ""


async def _ensure(client: Client, owned: Owned, document: Object, known: Known) -> None:
    place = (document["kind"], document["metadata"]["name"])
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    if known.digests.get(place) == digest:
        return
    stands = document["kind"] == _MADE_ONCE
    if not known.uids.get(place):
        stored, new = await create(client, owned, document)
        known.uids[place], stands = stored["metadata"]["uid"], stands or new
    if not stands:
        try:
            await client.apply(resource_of(document), document, uid=known.uids[place])
        except Conflict:  # another client has deleted it: the next try makes it anew
            known.forget(known.uids[place])
            raise
    known.digests[place] = digest


async def renew_policy(client: Client, owned: Owned, settings: Settings) -> None:
    """Have the job's NetworkPolicies let in whom ``settings`` name, such as this operator itself in its own namespace.

    One that is not there, or is not the job's, is left to `children.ensure`. Raises whatever `Client` raises.
    """
    if owned.job.spec.network.policy != "Enabled":
        return
    for wanted in network_policies(owned, settings):
        try:
            found = await get_own(client, owned, NETWORK_POLICIES, wanted["metadata"]["name"])
        except NameConflict:
            continue
        if found is not None and found.get("spec") != wanted["spec"]:
            await client.apply(NETWORK_POLICIES, wanted, uid=found["metadata"]["uid"])


_MOST_NOTES: Final = 300
"""Notes under one name; with the pods that read a claim they have half of what a ConfigMap may."""


async def keep_note(client: Client, owned: Owned, note: Object) -> None:
    """Store a note (`render.others.note`) of the job, in the place of its earlier one, where it outlives the job: one ConfigMap
    has those of all jobs of a name, or of an experiment, and no operator deletes it. Raises whatever `Client` raises."""
    about = owned.job.metadata
    name = names.history(about.labels.get(names.EXPERIMENT_LABEL, owned.name))
    patch = partial(client.patch, CONFIG_MAPS, about.namespace, name)
    change = {"data": {f"{note['created'].replace(':', '.')}_{owned.uid}": json.dumps(note)}}  # sorted by time
    try:
        kept = await patch(change)
    except NotFound:
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": about.namespace}}
        with suppress(AlreadyExists):
            await client.create(CONFIG_MAPS, document)
        kept = await patch(change)
    if oldest := sorted(kept["data"])[:-_MOST_NOTES]:
        await patch({"data": dict.fromkeys(oldest)})


_WEBHOOK_FAILED: Final = 500
"""An API server answers so where a webhook is down, or was left behind when its queue was uninstalled: waiting for it would keep
the pod for ever."""


async def leave_removal(client: Client, found: Pod) -> None:
    """Make the Job for the shard of this pod, if it is one with such a log, and is there still.

    Raises `ApiError` where the API server does not answer or asks for patience.
    """
    about = found["metadata"]
    if is_gone(found) or names.EXTERNAL_LOG_ANNOTATION not in (about.get("annotations") or {}):
        return
    try:
        with suppress(NotFound, AlreadyExists):
            made = removal(await client.get(PODS, about["namespace"], about["name"]))
            if made is not None:
                await client.create(JOBS, made)
    except ApiError as problem:  # no quota, or the namespace is going, or a webhook does not answer
        if isinstance(problem, TooManyRequests) or (
            isinstance(problem, Unavailable) and problem.code != _WEBHOOK_FAILED
        ):
            raise
        log.warning("%s/%s: its log in Redis stays until it expires: %s", about["namespace"], about["name"], problem)
