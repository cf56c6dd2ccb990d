"""Has jobs that name a queue wait for Kueue's quota, and gives it back when nothing of them uses it any more.

Kueue knows Workloads, not RLJobs: for each job they are made, watched and ended here. What they say goes into the core as an
`Admission`; the core suspends a job without quota after a checkpoint. A user's ``spec.suspend`` is never written.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Admission, Observation
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, NotFound, is_refusal
from rljob_operator.kube.apiserver.resources import WORKLOADS, Object
from rljob_operator.kube.job import workload_state as state
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.job.queue_places import (
    ClusterObjects,
    PriorityUnknown,
    QueuePlaces,
    places,
    priority_of,
    users,
)
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.job.workload_state import Block, as_it_runs, change, ignored, in_queue, waiting, wanted_actors
from rljob_operator.kube.render import workload
from rljob_operator.kube.render.metadata import is_of
from rljob_operator.kube.render.rendering import settings_for
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.workload import queue_of
from rljob_operator.kube.watch.pods import JobKey
from rljob_operator.kube.watch.workloads import Workloads

AGAIN_SECONDS: Final = 10.0
"""What Kueue has refused is asked for again after so long."""


class JobQueue:
    """Asks Kueue for the quota of the jobs of one operator.

    Args:
        workloads: those that are known; None in an operator that asks Kueue for no quota.
        later: has a job reconciled again, in so many seconds.
        now: Unix seconds.
    """

    def __init__(
        self,
        client: Client,
        workloads: Workloads | None,
        settings: Settings,
        later: Callable[[JobKey, float], None] = lambda key, seconds: None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._workloads, self._settings, self._later = client, workloads, settings, later
        self._now, self._objects = now, ClusterObjects(client)

    async def seen(
        self, stored: StoredJob, observed: Observation, pods: Sequence[Pod]
    ) -> tuple[Observation, QueuePlaces]:
        """What is observed of a job, with what its queue says, and what that gives its new pods: the queue is asked for the quota
        that the job lacks, and given back what the job no longer needs. A job whose pods are refused asks for nothing."""
        members, given = observed.members, QueuePlaces()
        if self._workloads is None or not settings_for(stored.status, self._settings).kueue:
            return replace(observed, admission=ignored(stored.document)), given  # it runs as it was started: without
        queue, mine = queue_of(stored.document), self._workloads.of(stored.key[0], stored.uid)
        core, alive = mine.get(stored.key[1]), any(member.alive for member in members)
        admission: Admission | None = None
        if not queue and not mine:
            pass
        elif self._workloads.why:
            admission = state.unknown(stored, members, self._workloads.why)
        elif stored.status.finished or stored.desired.suspends or stored.stopped or not queue:
            admission = await self._without_use(stored, mine, core, queue, members, alive=alive)
        elif core is not None and state.is_admitted(core):
            admission, given = await self._admitted(stored, mine, core, queue, members, pods)
            going = given.going(pods)
            members = tuple(replace(each, leaving_node=True) if each.name in going else each for each in members)
        elif core is not None:
            admission = await self._not_admitted(stored, mine, core, queue, idle=not alive)
        elif stored.desired.blocked:
            admission = waiting(queue, "its pods are refused; see condition Accepted")
        else:
            said = await self._create(stored, stored.key[1], queue, self._core(stored))
            admission = waiting(queue, said or "asked for")
        return replace(observed, members=members, admission=admission), given

    def _core(self, stored: StoredJob) -> list[dict[str, Any]]:
        """The sets of pods of the job's core as they would be now. Raises `PodProblem`."""
        return workload.core(stored.owned(), settings_for(stored.status, self._settings))

    async def _spec(self, stored: StoredJob, queue: str, sets: list[dict[str, Any]]) -> dict[str, Any]:
        """What a Workload asks for. Raises `PriorityUnknown`."""
        labels = stored.document["metadata"].get("labels") or {}
        return {"queueName": queue, "podSets": sets, **await priority_of(labels, sets, self._objects)}

    async def _not_admitted(
        self, stored: StoredJob, mine: Mapping[str, Object], core: Object, queue: str, *, idle: bool
    ) -> Admission:
        if idle:
            await self._delete(*(each for each in mine.values() if each is not core))
            if state.holds(core, "Evicted") and state.holds(core, "QuotaReserved"):
                await self._give_back(core)
            elif not state.holds(core, "QuotaReserved") and not stored.desired.blocked:
                # One that waits asks for what the job wants now, in the queue that it names now.
                wanted = ""
                with contextlib.suppress(PriorityUnknown):
                    wanted = workload.digest(await self._spec(stored, queue, self._core(stored)))
                if (core["metadata"].get("annotations") or {}).get(workload.ASKED_FOR_ANNOTATION) != wanted:
                    await self._delete(core)  # the watch tells when it is gone, and then the next one is made
        reason = Reason.EVICTED if state.holds(core, "Evicted") else Reason.WAITING_FOR_QUOTA
        return waiting(queue, state.words(core), core["metadata"]["name"], reason)

    async def _admitted(
        self,
        stored: StoredJob,
        mine: Mapping[str, Object],
        core: Object,
        queue: str,
        members: Sequence[Member],
        pods: Sequence[Pod],
    ) -> tuple[Admission, QueuePlaces]:
        owned, spec = stored.owned(), stored.desired.job.spec
        first = state.count(core, Role.ACTOR)
        blocks = {
            number: each
            for each in mine.values()
            if (number := workload.block_number(owned.name, each["metadata"]["name"])) is not None
        }
        alive = sum(member.alive for member in members if member.role is Role.ACTOR)
        known = [
            Block(number, state.count(each, Role.ACTOR), state.is_admitted(each), state.holds(each, "QuotaReserved"))
            for number, each in blocks.items()
        ]
        allowed = first + sum(each.actors for each in known if each.admitted)
        for block in known:
            evicted = block.reserved and state.holds(blocks[block.number], "Evicted")
            if evicted and not block.admitted and alive <= allowed:
                await self._give_back(blocks[block.number])
        todo = change(spec, first, known, wanted_actors(spec, stored.status), alive)
        await self._delete(*(blocks[number] for number in todo.give_back))
        said = ""
        for number, actors in todo.ask_for:
            sets = [workload.pod_set(owned, Role.ACTOR, actors, settings_for(stored.status, self._settings))]
            said = said or await self._create(stored, workload.block_name(owned.name, number), queue, sets)
        kept = [each for each in known if each.number not in todo.give_back]
        running = [core, *(blocks[each.number] for each in sorted(kept, key=lambda b: b.number) if each.admitted)]
        await self._tell_ready(stored, running, members, pods)
        admission = Admission(
            True,
            Reason.QUOTA_RESERVED,
            in_queue(queue, said) if said else f"queue {queue}",
            workload=core["metadata"]["name"],
            actor_blocks=sum(each.admitted for each in kept),
            pending_blocks=sum(not each.admitted for each in kept) + len(todo.ask_for),
            max_actors=first + sum(each.actors for each in kept if each.admitted),
        )
        return admission, await places(self._objects, running, pods)

    async def _tell_ready(
        self, stored: StoredJob, running: Sequence[Object], members: Sequence[Member], pods: Sequence[Pod]
    ) -> None:
        """Tell Kueue that pods are up, since it takes the quota away otherwise: all pods of the core, and one of a block, since
        actors are of use one by one, and those that are up must not go because another one never comes up."""
        used, up = users(pods), stored.status.controller.started is not None
        begun = {used.get(each.name) for each in members if each.phase is Phase.READY}
        for each in running:
            told = up if each is running[0] else each["metadata"]["name"] in begun
            if told and not state.holds(each, "PodsReady"):
                await self._write(each, state.pods_ready(each, self._now()))

    async def _without_use(
        self,
        stored: StoredJob,
        mine: Mapping[str, Object],
        core: Object | None,
        queue: str,
        members: Sequence[Member],
        *,
        alive: bool,
    ) -> Admission | None:
        """A job that is over, suspended or stopped, or queues no more: it has its quota until the last of its pods is gone."""
        if alive:
            if core is None or not state.is_admitted(core):
                return waiting(queue, state.words(core) if core is not None else "nothing is asked for")
            return as_it_runs(members, f"queue {queue}", core["metadata"]["name"])
        over = stored.status.finished
        await self._delete(*(each for each in mine.values() if not (over and each is core)))
        if over and core is not None and not state.holds(core, "Finished"):
            outcome = stored.status.controller.outcome
            succeeded = outcome is not None and outcome.state == "Complete"
            message = f"{outcome.reason}: {outcome.message}" if outcome is not None else "the job is over"
            await self._write(core, state.finished(core, succeeded, message, self._now()))
        if not queue:
            return None
        return waiting(queue, "asked for again when the job is resumed")

    async def _create(self, stored: StoredJob, name: str, queue: str, sets: list[dict[str, Any]]) -> str:
        """Make a Workload; empty, or why it can't be made."""
        try:
            spec = await self._spec(stored, queue, sets)
            await self._client.create(WORKLOADS, workload.workload(stored.owned(), name, spec))
            return ""
        except PriorityUnknown as problem:
            said = str(problem)
        except AlreadyExists:
            if is_of(await self._client.get(WORKLOADS, stored.key[0], name), stored.uid):
                return ""
            said = f"the name of Workload {name} belongs to another owner: delete it, or give the job another name"
        except ApiError as problem:
            if not is_refusal(problem):
                raise
            said = f"the Workload {name} is refused: {problem}"
        self._later(stored.key, AGAIN_SECONDS)
        return said

    async def _delete(self, *given: Object) -> None:
        assert self._workloads is not None, "there are some"
        for each in given:
            about = each["metadata"]
            with contextlib.suppress(NotFound):
                await self._client.delete(WORKLOADS, about["namespace"], about["name"], uid=about["uid"])
            self._workloads.change("DELETED", each)  # nothing is to be read from it any more

    async def _give_back(self, evicted: Object) -> None:
        await self._write(evicted, state.without_quota(evicted, self._now()))

    async def _write(self, found: Object, change: Mapping[str, Any]) -> None:
        """Change the status of one as it was read; what Kueue has changed since is read first."""
        about = found["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.patch(
                WORKLOADS, about["namespace"], about["name"], {"status": change},
                resource_version=about["resourceVersion"], subresource="status",
            )  # fmt: skip
