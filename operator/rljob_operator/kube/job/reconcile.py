"""Reconcile one job: gather what is stored and found, decide (`core.turn`), store the status, carry the decision out."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import RLJobStatus

from rljob_operator.core.conditions.update import false, merged
from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import Session
from rljob_operator.core.member import LEADERS, Phase, Role, leader
from rljob_operator.core.observed import Observation
from rljob_operator.core.turn import turn
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, is_refusal
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.job import children
from rljob_operator.kube.job.apply import PodWriter
from rljob_operator.kube.job.keys import token_of
from rljob_operator.kube.job.kueue import JobQueue
from rljob_operator.kube.job.members import Pod, current, members
from rljob_operator.kube.job.observe import (
    Waits,
    checkpoints,
    held_up,
    recommendation,
    seen,
    settings_of_start,
    unseen_end,
    with_rivals,
)
from rljob_operator.kube.job.refusals import in_words
from rljob_operator.kube.job.status_writer import (
    NEVER,
    PROGRESS_SECONDS,
    SEEN_SECONDS,
    RememberedJob,
    StatusWriter,
    WriteTimes,
)
from rljob_operator.kube.job.stored import Interner, ReadBefore, StoredJob, is_ours, read, status_of
from rljob_operator.kube.job.workload_state import QueuePlaces
from rljob_operator.kube.reach import has_address
from rljob_operator.kube.render import names
from rljob_operator.kube.render.others import note
from rljob_operator.kube.render.rendering import offered, settings_for
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoint_claim, checkpoints_are
from rljob_operator.kube.reporting.events import EventRecorder, reference
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.kept import NodeCache
from rljob_operator.kube.watch.pods import JobKey, PodCache, is_gone, owner_of
from rljob_operator.polls.poll import Alive, LearnerPoll, Poll


class Reconciler:
    """Reconciles every job of one operator. A key is in work only once at a time; `kube.watch.queue` sees to that.

    Args:
        job_of: the stored object of a key as it is known; None where it is gone.
        pods: the cache of pods.
        url_of: where a pod that has an address is asked, at a port, as the poll's `Reach` names it.
        shards: asks replay shards whether they are alive.
        nodes: the cache of nodes.
        claim: what is kept of the claim of that namespace and name; see `ChildWatch.claim`.
        queue: asks Kueue for quota; None asks for none.
        recommended: told after each reconciliation how many actors are recommended for the job; None for nothing to recommend.
        now: Unix seconds; ``monotonic``: seconds that only go forward.
        seen_seconds: see `status_writer.SEEN_SECONDS`.
    """

    def __init__(
        self,
        client: Client,
        job_of: Callable[[str, str], Object | None],
        pods: PodCache,
        poll: Poll[JobKey],
        url_of: Callable[[Pod, int], str],
        events: EventRecorder,
        expectations: Expectations,
        settings: Settings,
        *,
        nodes: NodeCache,
        claim: Callable[[str, str], Object | None] = lambda namespace, name: None,
        queue: JobQueue | None = None,
        recommended: Callable[[str, str, int | None], None] = lambda namespace, name, actors: None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        seen_seconds: float = SEEN_SECONDS,
    ) -> None:
        self._client, self._job_of, self._pods, self._poll, self._url_of = client, job_of, pods, poll, url_of
        self._events, self._expectations, self._settings = events, expectations, settings
        self._writer = PodWriter(client, pods, expectations, settings, now=now)
        self._nodes, self._recommended, self._claim = nodes, recommended, claim
        self._queue = queue or JobQueue(client, None, settings)
        self._now, self._monotonic = now, monotonic
        self._known: dict[JobKey, RememberedJob] = {}
        self._interner = Interner()
        self._given_until: dict[str, float] = {}
        self._statuses = StatusWriter(client, WriteTimes(seen_seconds), monotonic)

    async def reconcile(self, key: JobKey) -> float | None:
        """Reconcile the job; in how many seconds to do it again, None where only a change matters.

        Raises `ApiError` where the API server keeps it from doing what was decided: try again, later each time, and `tell` it.
        """
        document = self._job_of(*key)
        uid = document["metadata"]["uid"] if document is not None else ""
        known = self._known.get(key)
        if known is not None and known.uid != uid:
            self._forget(key, known)
            known = None
        await self._writer.remove_logs(pod for pod in self._pods.of_key(key) if (owner_of(pod) or {}).get("uid") != uid)
        if document is None or not is_ours(document):
            for pod in self._pods.of_key(key):
                self._pods.settle(pod)
            return None
        if known is None:
            known = RememberedJob(uid, read=ReadBefore(interner=self._interner))
            known.children.kept = await children.recalled(self._client, document, known.read)
            self._known[key] = known
        known.note_version(document["metadata"]["resourceVersion"])
        stored = read(document, known.status, known.read)
        self._pods.check(key[0])
        waits = self._expectations.waits_seconds(uid)
        if waits:
            return waits
        pods = self._pods.of(key[0], uid) if waits is None else await self._listed(stored)
        if stored.leaving:
            await self._leave(key, stored, pods)
            return None
        return await self._turn(key, stored, known, pods)

    def status(self, key: JobKey, uid: str) -> RLJobStatus | None:
        """The newest status of a job, stored or not; None before it was reconciled."""
        return known.status if (known := self._known.get(key)) is not None and known.uid == uid else None

    def patience(self, key: JobKey) -> float:
        """For how many seconds after a reconciliation figures of the job's learner alone are no reason for another: while roles
        come up, and then of one that runs, whose actors follow from no figures, and that is not about to end. One turn for each
        time that its progress is written is enough."""
        status = self._known[key].status if key in self._known else None
        if status is None or recommendation(status) is not None:
            return 0.0
        if (up := status.controller.started) is None or not status.is_true(ConditionType.READY):
            return PROGRESS_SECONDS if up is None else 0.0
        percent = status.progress.percent or 0
        at_its_pace = (self._now() - up) * (100 - percent) / max(1, percent)
        return min(PROGRESS_SECONDS, (status.progress.estimated_seconds_remaining or at_its_pace) / 4)

    def child_gone(self, key: JobKey, uid: str) -> None:
        """Something of the job, or of a former one of its name, is not there any more: make what is missing next time."""
        known = self._known.get(key)
        if known is not None:
            known.children.forget(uid)
            known.refusals.try_now(self._monotonic())

    async def tell(self, key: JobKey, problem: Exception) -> None:
        """Say on the job that it can't be reconciled, and why; the next success takes that back. Raises what `Client.patch`
        raises; an event says it all the same."""
        document, known = self._job_of(*key), self._known.get(key)
        if document is None or known is None:
            return
        known.note_version(document["metadata"]["resourceVersion"])
        words = in_words(problem)
        self._events.record(
            reference(RLJOBS, dict(document)), "Warning", Reason.TURN_FAILED, words, action="Reconciling"
        )
        before = known.stored or status_of(document, RLJobStatus)
        told = false(ConditionType.READY, Reason.TURN_FAILED, words)
        conditions = merged(before.conditions, [told], int(document["metadata"].get("generation", 1)), self._now())
        await self._statuses.write(document, known, before.model_copy(update={"conditions": conditions}))

    async def _turn(self, key: JobKey, stored: StoredJob, known: RememberedJob, pods: Sequence[Pod]) -> float | None:
        base = await self._settings_of(stored, known, not any(each.alive for each in members(pods, self._now())))
        desired = replace(stored.desired, rendering=offered(stored.status, base))
        used = settings_for(stored.status, base)
        observed = self._observe(key, stored, known, pods, used)
        slow = held_up(observed.members, pods, self._now())
        with suppress(ApiError):  # it only completes the message
            waits = Waits(self._client, stored.owned(), used, self._nodes, self._claim)
            observed = await waits.told(observed, slow, self._now())
        beside = (each for each in self._pods.jobs() if each != key and each[0] == key[0])
        observed = with_rivals(observed, ((each[1], self._pods.of_key(each)) for each in beside), self._now())
        observed, places = await self._queue.seen(stored, observed, pods)
        session = Session(interrupted=True) if stored.stopped else None
        found = turn(desired, stored.status, observed, self._now(), session)
        decision = found.decision
        await self._statuses.store(stored, known, decision.status, found.write)
        self._recommended(*key, recommendation(decision.status))
        about = reference(RLJOBS, dict(stored.document))
        reason, plain = decision.state or "Pending", [note.text for note in decision.notes if not note.warning]
        warnings = [("Warning", note.text) for note in decision.notes if note.warning]
        for kind, text in (*warnings, *([("Normal", "; ".join(plain))] if plain else [])):
            self._events.record(about, kind, reason, text, action="Reconciling")
        await self._follow(key, stored, known, observed, pods, decision)
        await self._note(stored, known, decision)
        lacking = [
            each.name
            for each in observed.members
            if each.phase is Phase.STARTING and not each.held and (each.name in slow or each.name in known.refusals.of)
        ]
        news = await self._carry_out(stored, known, observed, pods, decision, places, lacking)
        now = self._monotonic()
        again = NEVER if decision.requeue_seconds is None else decision.requeue_seconds
        soonest = min(again, known.refusals.due_in(now), max(0.0, known.due - now), 0.0 if news else NEVER)
        return None if soonest == NEVER else soonest

    async def _note(self, stored: StoredJob, known: RememberedJob, decision: Decision) -> None:
        """Note for later where the job's recording is, and how the job ends."""
        if not {*LEADERS}.isdisjoint(decision.start) or (decision.outcome is not None and not stored.status.finished):
            settings = settings_for(decision.status, self._settings)
            with suppress(ApiError, names.PodProblem):  # no reason to hold up a job
                found = note(stored.document, stored.owned(), settings, decision.status)
                if found["outlives"] and found != known.noted:
                    await children.keep_note(self._client, stored.owned(), found)
                    known.noted = found

    async def _carry_out(
        self,
        stored: StoredJob,
        known: RememberedJob,
        observed: Observation,
        pods: Sequence[Pod],
        decision: Decision,
        places: QueuePlaces,
        lacking: Sequence[str],
    ) -> bool:
        """Make, ask to leave and end what was decided; answers whether the refusals have changed.

        Members for which the job lacks a Secret, a claim or another child wait for that, like those whose pods are refused; so
        may those pods that are ``lacking`` something, as far as is known.
        """
        idle, owned = not any(member.alive for member in observed.members), stored.owned()
        blocked = stored.desired.blocked  # then children stay as what its pods were started with
        before = {name: each.words for name, each in known.refusals.of.items()}
        tried = (*decision.start, *lacking)
        unseen = not known.children_seen and any(member.phase is Phase.STARTING for member in observed.members)
        problems: dict[str, Exception] = {}
        failure: Exception | None = None
        try:
            if not blocked and (tried or unseen or (known.children.lost and not idle)):
                await children.ensure(
                    self._client, owned, settings_for(decision.status, self._settings), known.children,
                    self._monotonic(), new=stored.status.start_time is None, idle=idle, held_up=bool(lacking),
                )  # fmt: skip
            elif not (blocked or known.children_seen or idle):
                await children.renew_policy(self._client, stored.owned(), self._settings)
            if not (blocked or idle):
                await children.keep(self._client, owned, known.children)
            known.children_seen = not blocked
        except Exception as problem:  # noqa: BLE001  members that are to leave or to be replaced need not wait for this
            problems = dict.fromkeys(tried, problem)
            self._given_until.pop(stored.key[0], None)  # a quota may be full by now: the next job tries its claim
            failure = None if tried and is_refusal(problem) else problem
        start = tuple(name for name in decision.start if name not in problems)
        refused = await self._writer.carry_out(stored, replace(decision, start=start), pods, places)
        if failure is not None:
            raise failure
        known.refusals.note({**problems, **refused}, self._monotonic(), self._now())
        return before != {name: each.words for name, each in known.refusals.of.items()}

    async def _settings_of(self, stored: StoredJob, known: RememberedJob, idle: bool) -> Settings:
        """The operator's settings; of a job that is to start with what its cluster has volumes for, once for each start."""
        if not idle:
            known.at_start = None
        elif known.at_start is None and not (stored.desired.suspends or stored.status.finished):
            known.at_start = await settings_of_start(
                self._client, stored.owned(), self._settings, self._given_until, self._monotonic()
            )
        return known.at_start or self._settings

    def _observe(
        self, key: JobKey, stored: StoredJob, known: RememberedJob, pods: Sequence[Pod], settings: Settings
    ) -> Observation:
        now, answer = self._now(), self._poll.answer(key)
        found = []
        for member in members(pods, now, known.were_up):
            if member.phase is Phase.READY:
                known.were_up.add(member.incarnation)
            silence = self._poll.silence(key, member.incarnation)
            found.append(seen(member, now, self._nodes.lost(member.node_name), silence))
        known.were_up &= {pod["metadata"]["uid"] for pod in pods}
        found += unseen_end(stored.status, found, now)
        job, learner = stored.desired.job, leader({each.name: each for each in found})
        claim, where = checkpoint_claim(job, settings), checkpoints_are(job, settings)
        going = claim is not None and bool((self._claim(key[0], claim.claim_name) or {}).get("going"))
        newest, where = checkpoints(stored.status, answer.status, pods, learner, where, going=going)
        return Observation(
            members=known.refusals.told(found, stored.desired.generation, self._monotonic()),
            learner=answer.status,
            untracked=answer.status.untracked if answer.status is not None else None,
            missing=answer.missing,
            checkpoint=newest,
            checkpoints_are=where,
            keeps_remains=True,
            ends_silent_members=False,  # its kubelet does, by the liveness probe
            selector=names.selector(names.role_labels(key[1], Role.ACTOR)),
        )

    async def _listed(self, stored: StoredJob) -> list[Object]:
        """The job's pods as the API server has them, where changes of our own have not come back through the watch."""
        namespace, labels = stored.key[0], names.labels(stored.key[1])
        listed = await self._client.list(PODS, namespace, label_selector=names.selector(labels))
        self._expectations.forget(stored.uid)
        there = {pod["metadata"]["uid"]: pod for pod in listed.items if (owner_of(pod) or {}).get("uid") == stored.uid}
        for pod in self._pods.of(namespace, stored.uid):
            bare = not labels.items() <= pod["metadata"].get("labels", {}).items()  # such a list says nothing of it
            if bare and not is_gone(pod):
                there.setdefault(pod["metadata"]["uid"], pod)
            elif not is_gone(pod) and pod["metadata"]["uid"] not in there:
                self._pods.change("DELETED", pod)
        return [*there.values(), *filter(is_gone, self._pods.of(namespace, stored.uid))]

    async def _follow(
        self,
        key: JobKey,
        stored: StoredJob,
        known: RememberedJob,
        observed: Observation,
        pods: Sequence[Pod],
        decision: Decision,
    ) -> None:
        """Have the replay shards that are up asked whether they are alive, and the learner for its status and a wanted
        checkpoint; it is told how the job ends where its trackers are to tell that.

        A learner that has ended is asked no more: its pod still shows an address, which may be another pod's by now.
        """
        by_member, port = current(pods), stored.desired.job.spec.monitoring.metrics_port
        asked: list[Alive | LearnerPoll] = []
        for member in observed.members:
            pod = by_member.get(member.name)
            if pod is None or not has_address(pod):
                continue
            incarnation, url = pod["metadata"]["uid"], self._url_of(pod, port)
            if member.role is Role.REPLAY and member.phase is Phase.READY:
                asked.append(Alive(incarnation, url))
            ends = member.phase is Phase.DRAINING and incarnation in known.were_up
            if member.name in LEADERS and (member.phase is Phase.READY or ends):
                if not known.children.token:
                    known.children.token = await token_of(self._client, stored.owned())
                asked.append(LearnerPoll(incarnation, url, known.children.token))
        ending = str(decision.outcome.end) if decision.outcome and stored.desired.job.spec.tracking else None
        self._poll.follow(key, asked, decision.checkpoint_seconds, ending, decision.changes)

    async def _leave(self, key: JobKey, stored: StoredJob, pods: Sequence[Pod]) -> None:
        """The job is being deleted: nothing is made any more, and its pods go, unless its user wants them to stay."""
        self._poll.follow(key, ())
        self._recommended(*key, None)
        if "orphan" not in stored.document["metadata"].get("finalizers", ()):
            await self._writer.leave(stored.owned(), pods)

    def _forget(self, key: JobKey, known: RememberedJob) -> None:
        self._poll.forget(key)
        self._recommended(*key, None)
        self._expectations.forget(known.uid)
        del self._known[key]
