"""The operator: a turn of the core, the calls that it leads to in their order, and each call by itself.

It does what `kube.job.reconcile` and `kube.job.apply` do; `test_search` compares the two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

from rljob.api.conditions import Reason
from rljob.api.learner_status import CheckpointStatement, LearnerStatus, Verdict
from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.core.turn import StatusWrite, turn
from rljob_operator.kube.job import refusals
from rljob_operator.kube.job.members import current, former, members
from rljob_operator.kube.job.observe import checkpoints, unseen_end
from rljob_operator.polls.poll import Answer as Polled

from tests.search.jobs import TARGET, SmallJob
from tests.search.pods import GRACE_SECONDS, Cause, Pod, Pods, Stage, checkpoint_words, document, new_pod
from tests.search.statuses import NOW, Statuses
from tests.search.world import Answer, Op, Refused, World

FIRST_PAUSE, LONGEST_PAUSE = 5, 60
PASSED_OVER = 400_000
"""Turns that are remembered at once."""


@dataclass(frozen=True, slots=True)
class Turned:
    """One turn: what it was given, its decision, the number of its status, and what follows from it."""

    decision: Decision
    members: tuple[Member, ...]
    before: int
    after: int
    write: StatusWrite
    calls: tuple[Op, ...]
    dealt_with: frozenset[str]
    were_up: tuple[str, ...]
    asks: int


class Operator:
    """The operator of one search: turns are pure, so each is taken once."""

    def __init__(self, job: SmallJob, statuses: Statuses) -> None:
        self.job, self.statuses = job, statuses
        self._taken: dict[Any, Turned] = {}
        self.turns = 0

    def seen(self, world: World) -> Pods:
        """The pods as the operator's cache has them, without what only the truth knows."""
        up = world.memory.were_up
        return tuple([shown_as(pod, pod.uid in up) for pod in view(world)])

    def turn(self, world: World) -> Turned:
        """What the operator makes of what it sees."""
        memory = world.memory
        place = world.status, self.seen(world), memory.were_up, memory.answer, world.spec, memory.refused, world.going
        if (found := self._taken.get(place)) is None:
            if len(self._taken) >= PASSED_OVER:
                self._taken.clear()
            found = self._taken[place] = self._turn(*place)
        return found

    def _turn(
        self,
        number: int,
        pods: Pods,
        were_up: tuple[str, ...],
        answer: Answer | None,
        spec: int,
        refused: tuple[Refused, ...],
        going: bool,
    ) -> Turned:
        self.turns += 1
        status, desired = self.statuses[number], self.job.specs[spec]
        documents = [document(pod) for pod in pods]
        lost = {pod.uid for pod in pods if pod.lost}
        there = members(documents, NOW, were_up)
        seen = tuple(replace(m, node_lost=True) if m.incarnation in lost and m.alive else m for m in there)
        seen = _with_refused((*seen, *unseen_end(status, seen, NOW)), refused)
        polled = _polled(answer)
        learner, where = next((m for m in seen if m.role is Role.LEARNER), None), "on a claim" if self.job.claim else ""
        newest, where = checkpoints(status, polled.status, documents, learner, where, going=going)
        observed = Observation(
            members=seen,
            learner=polled.status,
            missing=polled.missing,
            checkpoint=newest,
            checkpoints_are=where,
            keeps_remains=True,
            ends_silent_members=False,
            selector="actors",
        )
        found = turn(desired, status, observed, NOW)
        decision = found.decision
        before = {each.name: each.incarnation for each in status.controller.members}
        after = {each.name: each.incarnation for each in decision.status.controller.members}
        here = {pod.uid for pod in pods}
        up = {m.incarnation for m in seen if m.phase is Phase.READY}.union(were_up) & here
        asks = -1 if decision.checkpoint_seconds is None else int(NOW - decision.checkpoint_seconds)
        return Turned(
            decision,
            seen,
            number,
            self.statuses.number(decision.status),
            found.write,
            _calls(decision, documents, {each.member for each in refused if each.again > 0}),
            frozenset(life for name, life in after.items() if before.get(name) != life),
            tuple(sorted(up)),
            asks,
        )


@lru_cache(maxsize=PASSED_OVER)
def shown_as(pod: Pod, was_up: bool) -> Pod:
    """The pod with what only the truth knows left out, and what nothing asks for. A lost node is told of by its cluster."""
    began = pod.began if pod.stage == Stage.RUNNING or was_up else min(pod.began, 0)
    return pod._replace(cause=Cause.NONE, work=0, began=began)


def view(world: World) -> Pods:
    """The pods as the operator's cache has them."""
    pods, gone = world.pods if world.seen is None else world.seen, world.memory.gone
    if not gone:
        return pods
    here = {pod.uid for pod in pods}
    return tuple(sorted([*pods, *(pod for pod in gone if pod.uid not in here)]))


def _polled(answer: Answer | None) -> Polled:
    if answer is None:
        return Polled()
    verdicts = (Verdict(mean=TARGET, episodes=20, version=1, seed=0),) if answer.won == 2 else ()
    found = answer.checkpoint
    said = CheckpointStatement.lenient({"state": "Missing"} if found is None else checkpoint_words(*found))
    status = LearnerStatus(
        taken_seconds=NOW - answer.age,
        updates=10 * answer.work,
        raw_frames_total=100 * answer.work,
        evaluations=verdicts,
        checkpoint=said,
    )
    return Polled(status, "")


def _with_refused(seen: tuple[Member, ...], refused: Iterable[Refused]) -> tuple[Member, ...]:
    words = "exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2"
    known = {
        each.member: refusals.Refused(Reason.QUOTA_EXCEEDED, words, NOW - each.since, each.pause, float(each.again))
        for each in refused
    }
    return tuple(refusals.Refusals(known).told(seen, 0, 0.0))


def refused_again(refused: tuple[Refused, ...], member: str) -> tuple[Refused, ...]:
    """After one more refusal to make a member."""
    before = next((each for each in refused if each.member == member), None)
    pause = FIRST_PAUSE if before is None else min(2 * before.pause, LONGEST_PAUSE)
    after = Refused(member, 0 if before is None else before.since, pause, pause)
    return tuple(sorted([*(each for each in refused if each.member != member), after]))


def _calls(decision: Decision, documents: Sequence[dict[str, Any]], waiting: set[str]) -> tuple[Op, ...]:
    """The calls about pods, as `PodWriter.carry_out` makes them; ``waiting`` are members that it is too early to try again."""
    found = {name: pod["metadata"] for name, pod in current(documents).items()}
    calls = [
        Op("unask", about["uid"])
        for name, about in found.items()
        if name not in decision.drain and _asked_in_vain(about, documents)
    ]
    calls += [
        Op("label", about["uid"])
        for about in found.values()
        if not about["labels"] and "deletionTimestamp" not in about
    ]
    for name in decision.drain:
        about = found.get(name)
        if about is not None and "deletionTimestamp" not in about:
            if "annotations" not in about:
                calls.append(Op("ask", about["uid"]))
            calls.append(Op("delete", about["uid"], GRACE_SECONDS))
    start = [name for name in decision.start if name not in waiting]
    replaced = [name for name in start if name in found]
    let_go = [found[name] for name in (*decision.remove, *replaced) if name in found]
    for about in (*let_go, *(pod["metadata"] for pod in former(documents))):
        calls.append(Op("settle", about["uid"]))
        if "deletionTimestamp" not in about:
            calls.append(Op("delete", about["uid"]))
    for name in start:
        follows = int(found[name]["uid"].partition(":")[2]) if name in found else -1
        calls.append(Op("create", name, follows))
    if decision.delete_job:
        calls.append(Op("delete job"))
    return tuple(calls)


def _asked_in_vain(about: dict[str, Any], documents: Sequence[dict[str, Any]]) -> bool:
    status = next(pod["status"] for pod in documents if pod["metadata"] is about)
    lives = status["phase"] not in ("Failed", "Succeeded")
    return lives and "annotations" in about and "deletionTimestamp" not in about


# ------------------------------------------------------------------------------------------------------------- calls


def called(world: World, op: Op, statuses: Statuses) -> World:
    """The cluster after one call, which succeeds where it can."""
    if op.verb == "store":
        return world._replace(stored=op.number, counted=op.counted, memory=world.memory._replace(status=-1, counted=()))
    if op.verb == "create":
        if any(pod.member == op.uid and pod.follows == op.number for pod in world.pods):
            return world._replace(seen=None)  # it was made before: AlreadyExists
        return with_pods(
            world._replace(seen=None), (*world.pods, new_pod(op.uid, _unused_life(world, op, statuses), op.number))
        )
    if op.verb == "settle":
        return _settled(world, op.uid)
    pod = world.pod(op.uid)
    if pod is None:
        return world
    if op.verb == "label":
        return changed(world, pod, pod._replace(bare=False))
    if op.verb in ("ask", "unask"):
        return changed(world, pod, pod._replace(asked=op.verb == "ask"))
    cause = Cause.ASKED if pod.cause == Cause.NONE else pod.cause
    return deleted(world._replace(seen=None), pod._replace(cause=cause), max(op.number, 0) or GRACE_SECONDS)


def deleted(world: World, pod: Pod, grace: int, disruption: str = "") -> World:
    """After a deletion of the pod as it is given: what never ran, or has ended, goes at once."""
    before = world.pod(pod.uid)
    assert before is not None
    at_once = pod.stage in (Stage.WAITING, Stage.ENDED)
    pod = pod._replace(
        deleted=0 if pod.deleted < 0 else pod.deleted,
        grace=0 if at_once else grace,
        disruption=disruption or pod.disruption,
    )
    return changed(world, before, pod)


def changed(world: World, before: Pod, after: Pod) -> World:
    """With one pod as it is now; one that is being deleted and has come to its end is gone."""
    gone = after.deleted >= 0 and after.stage in (Stage.ENDED, Stage.WAITING)
    return vanished(world, after) if gone else with_pods(world, [*_others(world.pods, before.uid), after])


def vanished(world: World, pod: Pod) -> World:
    """After the API server no longer has the pod; what was seen of it at last is kept where its end is not dealt with."""
    memory = world.memory
    if pod.uid in memory.settled:
        memory = memory._replace(settled=tuple(uid for uid in memory.settled if uid != pod.uid))
    else:
        memory = memory._replace(gone=tuple(sorted([*_others(memory.gone, pod.uid), remains(pod)])))
    return with_pods(world._replace(memory=memory), _others(world.pods, pod.uid))


def remains(pod: Pod) -> Pod:
    """What is kept of a pod that is gone."""
    return pod._replace(gone=True, deleted=max(pod.deleted, 0), grace=0, lost=False)


def caught_up(world: World) -> World:
    """After the watch has told everything. An operator that began with an old list hears of the end of what stood in it."""
    memory, here = world.memory, {pod.uid for pod in world.pods}
    known = here.union(memory.settled, (pod.uid for pod in memory.gone))
    missed = [remains(pod) for pod in world.seen or () if pod.uid not in known]
    gone = tuple(sorted([*(pod for pod in memory.gone if pod.uid not in memory.settled), *missed]))
    memory = memory._replace(gone=gone, settled=tuple(uid for uid in memory.settled if uid in here))
    return with_pods(world._replace(seen=None, memory=memory), world.pods)


def _settled(world: World, uid: str) -> World:
    """What followed from a pod's end is stored."""
    memory, gone = world.memory, _others(world.memory.gone, uid)
    if any(pod.uid == uid for pod in (*world.pods, *(world.seen or ()))):
        memory = memory._replace(settled=tuple(sorted({*memory.settled, uid})))
    return with_pods(world._replace(memory=memory._replace(gone=tuple(gone))), world.pods)


def _others(pods: Iterable[Pod], uid: str) -> list[Pod]:
    return [pod for pod in pods if pod.uid != uid]


def with_pods(world: World, pods: Sequence[Pod]) -> World:
    """With these pods, and nothing remembered of those that are gone."""
    found = tuple(sorted(pods))
    if world.going and not any(is_used(pod) for pod in found):
        world = world._replace(going=False, saved=None)
    if world.counted or world.memory.counted:
        here = {pod.uid for pod in (*found, *(world.seen or ()), *world.memory.gone)}
        memory = world.memory._replace(counted=tuple(uid for uid in world.memory.counted if uid in here))
        world = world._replace(counted=tuple(uid for uid in world.counted if uid in here), memory=memory)
    return world._replace(pods=found)


def is_used(pod: Pod) -> bool:
    """Whether a pod keeps the claim of the checkpoints."""
    return pod.member == "learner" and Stage.WAITING < pod.stage < Stage.ENDED


def _unused_life(world: World, op: Op, statuses: Statuses) -> int:
    """The smallest number that nothing of the member's name has."""
    taken = {op.number}
    for pod in (*world.pods, *(world.seen or ()), *world.memory.gone):
        if pod.member == op.uid:
            taken |= {pod.life, pod.follows}
    memory, stored = world.memory, {each.number for each in world.pending if each.verb == "store"}
    known = {
        *world.counted, *memory.counted, *memory.were_up, *memory.settled, *(each.uid for each in world.pending),
        *(each.incarnation for number in {world.stored, world.status, *stored} for each in statuses[number].controller.members),
    }  # fmt: skip
    taken |= {int(each.partition(":")[2]) for each in known if each.startswith(f"{op.uid}:")}
    return next(life for life in count() if life not in taken)
