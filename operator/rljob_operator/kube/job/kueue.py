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
from rljob_operator.kube.apiserver.errors import ApiError, NotFound, is_refusal
from rljob_operator.kube.apiserver.resources import WORKLOADS, Object
from rljob_operator.kube.job import workload_state as state
from rljob_operator.kube.job.keys import NameConflict, create
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.job.workload_state import Block, PriorityUnknown, QueuePlaces, waiting
from rljob_operator.kube.render import others
from rljob_operator.kube.render.rendering import settings_for
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.kept import JobKey, Workloads

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
        self._now, self._objects = now, state.ClusterObjects(client)

    async def seen(
        self, stored: StoredJob, observed: Observation, pods: Sequence[Pod]
    ) -> tuple[Observation, QueuePlaces]:
        """What is observed of a job, with what its queue says, and what that gives its new pods: the queue is asked for the quota
        that the job lacks, and given back what the job no longer needs. A job whose pods are refused asks for nothing."""
        members, given, settings = observed.members, QueuePlaces(), settings_for(stored.status, self._settings)
        if self._workloads is None or not settings.kueue:
            return replace(observed, admission=state.ignored(stored.document)), given  # as it was started: without
        queue, mine = others.queue_of(stored.document), self._workloads.of(stored.key[0], stored.uid)
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
            said = await self._create(stored, stored.key[1], queue, others.core_sets(stored.owned(), settings))
            admission = waiting(queue, said or "asked for")
        return replace(observed, members=members, admission=admission), given

    async def _spec(self, stored: StoredJob, queue: str, sets: list[dict[str, Any]]) -> dict[str, Any]:
        """What a Workload asks for. Raises `PriorityUnknown`."""
        priority = await state.priority_of(stored.document["metadata"].get("labels") or {}, sets, self._objects)
        return {"queueName": queue, "podSets": sets, **priority}

    async def _not_admitted(
        self, stored: StoredJob, mine: Mapping[str, Object], core: Object, queue: str, *, idle: bool
    ) -> Admission:
        evicted, reserved = state.holds(core, "Evicted"), state.holds(core, "QuotaReserved")
        if idle:
            await self._delete(*(each for each in mine.values() if each is not core))
        if idle and reserved and evicted:
            await self._write(core, state.without_quota(core, self._now()))
        elif idle and not reserved and not stored.desired.blocked:
            # One that waits asks for what the job wants now, in the queue that it names now.
            wanted = ""
            with contextlib.suppress(PriorityUnknown):
                sets = others.core_sets(stored.owned(), settings_for(stored.status, self._settings))
                wanted = others.digest(await self._spec(stored, queue, sets))
            if (core["metadata"].get("annotations") or {}).get(others.ASKED_FOR_ANNOTATION) != wanted:
                await self._delete(core)  # the watch tells when it is gone, and then the next one is made
        reason = Reason.EVICTED if evicted else Reason.WAITING_FOR_QUOTA
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
        owned, spec, first = stored.owned(), stored.desired.job.spec, state.count(core, Role.ACTOR)
        numbered = {others.block_number(owned.name, name): each for name, each in mine.items()}
        blocks = {number: each for number, each in numbered.items() if number is not None}
        known = [
            Block(number, state.count(each, Role.ACTOR), state.is_admitted(each), state.holds(each, "QuotaReserved"))
            for number, each in blocks.items()
        ]
        alive = sum(member.alive for member in members if member.role is Role.ACTOR)
        if alive <= first + sum(each.actors for each in known if each.admitted):
            for block in known:
                found = blocks[block.number]
                if block.reserved and not block.admitted and state.holds(found, "Evicted"):
                    await self._write(found, state.without_quota(found, self._now()))
        todo = state.change(spec, first, known, state.wanted_actors(spec, stored.status), alive)
        await self._delete(*(blocks[number] for number in todo.give_back))
        said = ""
        for number, actors in todo.ask_for:
            sets = [others.pod_set(owned, Role.ACTOR, actors, settings_for(stored.status, self._settings))]
            said = said or await self._create(stored, others.block_name(owned.name, number), queue, sets)
        kept = sorted((each for each in known if each.number not in todo.give_back), key=lambda each: each.number)
        admitted = [each for each in kept if each.admitted]
        running = [core, *(blocks[each.number] for each in admitted)]
        await self._tell_ready(stored, running, members, pods)
        admission = Admission(
            True,
            Reason.QUOTA_RESERVED,
            f"queue {queue}: {said}" if said else f"queue {queue}",
            workload=core["metadata"]["name"],
            actor_blocks=len(admitted),
            pending_blocks=len(kept) - len(admitted) + len(todo.ask_for),
            max_actors=first + sum(each.actors for each in admitted),
        )
        return admission, await state.places(self._objects, running, pods)

    async def _tell_ready(
        self, stored: StoredJob, running: Sequence[Object], members: Sequence[Member], pods: Sequence[Pod]
    ) -> None:
        """Tell Kueue that pods are up, since it takes the quota away otherwise: all pods of the core, and one of a block, since
        actors are of use one by one, and those that are up must not go because another one never comes up."""
        used, up = state.users(pods), stored.status.controller.started is not None
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
            return state.as_it_runs(members, f"queue {queue}", core["metadata"]["name"])
        over, outcome = stored.status.finished, stored.status.controller.outcome
        await self._delete(*(each for each in mine.values() if not (over and each is core)))
        if over and core is not None and not state.holds(core, "Finished"):
            succeeded = outcome is not None and outcome.state == "Complete"
            message = f"{outcome.reason}: {outcome.message}" if outcome is not None else "the job is over"
            await self._write(core, state.finished(core, succeeded, message, self._now()))
        return waiting(queue, "asked for again when the job is resumed") if queue else None

    async def _create(self, stored: StoredJob, name: str, queue: str, sets: list[dict[str, Any]]) -> str:
        """Make a Workload; empty, or why it can't be made."""
        try:
            made = others.workload(stored.owned(), name, await self._spec(stored, queue, sets))
            await create(self._client, stored.owned(), made)
            return ""
        except (PriorityUnknown, NameConflict, ApiError) as problem:
            if not is_refusal(problem):
                raise
            self._later(stored.key, AGAIN_SECONDS)
            return f"the Workload {name} is refused: {problem}"

    async def _delete(self, *given: Object) -> None:
        assert self._workloads is not None, "there are some"
        for each in given:
            about = each["metadata"]
            with contextlib.suppress(NotFound):
                await self._client.delete(WORKLOADS, about["namespace"], about["name"], uid=about["uid"])
            self._workloads.change("DELETED", each)  # nothing is to be read from it any more

    async def _write(self, found: Object, change: Mapping[str, Any]) -> None:
        """Change the status of one as it was read; what Kueue has changed since is read first."""
        about = found["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.patch(
                WORKLOADS, about["namespace"], about["name"], {"status": change},
                resource_version=about["resourceVersion"], subresource="status",
            )  # fmt: skip
