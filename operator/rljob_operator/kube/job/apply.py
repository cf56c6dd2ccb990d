"""Carries a decision out on a cluster: pods are created, asked to leave and let go. All of it is idempotent."""

import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rljob.api.status import RLJobStatus
from rljob.api.status_model import rfc3339

from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.client import Client, concurrently
from rljob_operator.kube.apiserver.errors import (
    ApiError,
    Conflict,
    NotFound,
    Unavailable,
    is_refusal,
)
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.job.children import leave_removal
from rljob_operator.kube.job.keys import NameConflict, create
from rljob_operator.kube.job.members import Pod, current, former, member_of, outlives_its_worker
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.job.workload_state import QueuePlaces
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.rendering import settings_for
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.pods import PodCache, is_gone

CHUNK: Final = 8
"""Pods of a job that are created at once: half of the calls that may be under way (`client.AT_ONCE`) are left for others."""
_SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""As in names that Kubernetes makes: no vowels, so that no words arise, and no characters that look like others."""


class PodWriter:
    """Makes the changes to pods that decisions name, for every job of one operator. ``pods`` is told of those whose end
    was handled."""

    def __init__(
        self,
        client: Client,
        pods: PodCache,
        expectations: Expectations,
        settings: Settings,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._pods, self._expectations, self._settings = client, pods, expectations, settings
        self._now = now

    async def carry_out(
        self, stored: StoredJob, decision: Decision, pods: Sequence[Pod], places: QueuePlaces | None = None
    ) -> dict[str, Exception]:
        """Carry out what the decision says of pods; answers the members that the API server refuses to make, and why. Any other
        `ApiError` ends it, after the calls that are under way at the same time."""
        owned = replace(stored.owned(), learner_epoch=decision.status.controller.learner_epoch)
        by_member = current(pods)
        drained = [by_member[name] for name in decision.drain if name in by_member]
        removed = [by_member[name] for name in (*decision.remove, *decision.start) if name in by_member]
        staying = [each for name, each in by_member.items() if name not in decision.drain and _was_asked_in_vain(each)]
        await self._each(staying, lambda each: self._note(each, annotations={names.ASKED_ANNOTATION: None}))
        await self._each(
            [each for name, each in by_member.items() if _is_bare(owned.name, name, each)],
            lambda each: self._note(each, labels=names.member_labels(owned.name, str(member_of(each)))),
        )
        if decision.status.controller.outcome is not None:  # for good
            await self._each([*drained, *removed], lambda each: leave_removal(self._client, each))
        await self._each(drained, lambda each: self._ask_to_leave(owned, each))
        await self._each([*removed, *former(pods)], lambda each: self._let_go(owned, each))
        # Where nothing of the job is to run, such a pod stays for its logs alone.
        if decision.status.controller.active_since is None:
            outliving = [each for each in pods if outlives_its_worker(each)]
            await self._each(outliving, lambda each: self._note(each, {"activeDeadlineSeconds": 1}))
        refused = await self._make(stored, owned, decision, by_member, places or QueuePlaces())
        if decision.delete_job:
            namespace, name = stored.key
            with contextlib.suppress(NotFound):
                await self._client.delete(RLJOBS, namespace, name, uid=stored.uid, propagation="Background")
        return refused

    async def _let_go(self, owned: Owned, found: Pod) -> None:
        """Delete a pod whose end has been dealt with. One on a lost node, which stays, no longer has its member's address."""
        self._pods.settle(found)
        if is_gone(found):
            return
        if not found["metadata"].get("deletionTimestamp"):
            await self._delete(owned, found)
        elif names.REACHABLE_LABEL in (found["metadata"].get("labels") or {}):
            await self._note(found, labels={names.REACHABLE_LABEL: None})

    async def leave(self, owned: Owned, pods: Iterable[Pod]) -> None:
        """Delete the pods of a job that is being deleted, and remove what they have left elsewhere."""
        found = list(pods)
        await self.remove_logs(found)
        await self._each(found, lambda each: self._let_go(owned, each))

    async def remove_logs(self, pods: Iterable[Pod]) -> None:
        """Remove what pods have left elsewhere, whose job is gone or goes. Nothing that was remembered of them is needed."""
        for each in pods:
            self._pods.settle(each)
            await leave_removal(self._client, each)

    async def _make(
        self,
        stored: StoredJob,
        owned: Owned,
        decision: Decision,
        by_member: Mapping[str, Pod],
        places: QueuePlaces,
    ) -> dict[str, Exception]:
        """Create the pods of those that start. Where one of a role was refused no later one of that role is tried: they are
        equal, and a full quota need not be asked five hundred times."""
        refused: dict[str, Exception] = {}
        of_role: dict[Role, Exception] = {}

        async def start(name: str) -> None:
            role = Role.of(name)
            if role in of_role:
                refused[name] = of_role[role]
                return
            try:
                await self._start(stored, owned, name, by_member.get(name), decision.status, places)
            except Exception as problem:
                if not is_refusal(problem):
                    raise
                refused[name] = problem

        for first in range(0, len(decision.start), CHUNK):
            chunk = decision.start[first : first + CHUNK]
            await concurrently(*map(start, chunk))
            of_role |= {Role.of(name): refused[name] for name in chunk if name in refused}
        return refused

    async def _start(
        self,
        stored: StoredJob,
        owned: Owned,
        member: str,
        before: Pod | None,
        status: RLJobStatus,
        places: QueuePlaces,
    ) -> None:
        """Create the pod that follows on ``before``. Its name follows from that one's uid: tried again it asks for the same name,
        so it never makes two."""
        suffix = _suffix(owned.uid, member, before["metadata"]["uid"] if before is not None else "")
        made = pod(owned, member, suffix, stored.revision(Role.of(member)), settings_for(status, self._settings))
        document, name = places.placed(owned.name, made), made["metadata"]["name"]
        self._expectations.expect(owned.uid, name)
        try:
            await create(self._client, owned, document)  # or it was made before, by a call whose answer was lost
        except Unavailable as problem:
            if problem.code:
                self._expectations.doubt(owned.uid)
            raise  # it may have been created: the watch tells, or the expectation lapses
        except (ApiError, NameConflict):
            self._expectations.take_back(owned.uid, name)
            raise

    async def _ask_to_leave(self, owned: Owned, found: Pod) -> None:
        """Note on the pod that its end is asked for, then ask: an end without the note would count as a failure."""
        about = found["metadata"]
        if about.get("deletionTimestamp"):
            return
        if names.ASKED_ANNOTATION not in (about.get("annotations") or {}):
            await self._note(found, annotations={names.ASKED_ANNOTATION: rfc3339(self._now())})
        await self._delete(owned, found)

    async def _note(self, found: Pod, spec: Object | None = None, **noted: Mapping[str, str | None]) -> None:
        """Change labels or annotations of a pod that is there still, or its ``spec``."""
        about = found["metadata"]
        change = {"metadata": {"uid": about["uid"], **noted}, **({"spec": spec} if spec else {})}
        with contextlib.suppress(NotFound, Conflict):
            await self._client.patch(PODS, about["namespace"], about["name"], change)

    async def _delete(self, owned: Owned, found: Pod) -> None:
        """The pod has the time to leave that its spec says, which a podTemplate may have set."""
        about = found["metadata"]
        self._expectations.expect(owned.uid, about["uid"])
        try:
            await self._client.delete(PODS, about["namespace"], about["name"], uid=about["uid"])
        except ApiError as problem:
            if not isinstance(problem, Unavailable):
                self._expectations.take_back(owned.uid, about["uid"])
            if not isinstance(problem, NotFound | Conflict):  # it is gone, or the name is another one's already
                raise

    @staticmethod
    async def _each(items: Sequence[object], act: Callable[..., Awaitable[None]]) -> None:
        """Chunk by chunk; a failure does not stop the others of its chunk. Raises the first failure."""
        for start in range(0, len(items), CHUNK):
            await concurrently(*(act(item) for item in items[start : start + CHUNK]))


def _is_bare(job: str, member: str, found: Pod) -> bool:
    """Whether a pod has lost labels that its Service and its job's NetworkPolicy find it by; it is the job's all the same."""
    about, wanted = found["metadata"], names.member_labels(job, member)
    return not (is_gone(found) or about.get("deletionTimestamp") or wanted.items() <= about.get("labels", {}).items())


def _was_asked_in_vain(found: Pod) -> bool:
    """Whether a pod that works was noted to be asked to leave, and the request itself was lost. Where it is no longer to leave,
    its end would else be taken for one that was asked for."""
    about, phase = found["metadata"], (found.get("status") or {}).get("phase")
    asked = names.ASKED_ANNOTATION in (about.get("annotations") or {})
    return asked and not about.get("deletionTimestamp") and phase not in ("Failed", "Succeeded")


def _suffix(*parts: str) -> str:
    """Five characters that follow from ``parts``."""
    number = int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8])
    base = len(_SUFFIX_CHARACTERS)
    return "".join(_SUFFIX_CHARACTERS[number // base**place % base] for place in range(5))
