"""Everything that can happen next in a state, each with its name and the state after it."""

from collections.abc import Callable, Iterator

from rljob_operator.core.turn import StatusWrite

from tests.search.jobs import BUDGET, RUNS, SUSPENDED, SmallJob
from tests.search.pods import GRACE_SECONDS, Cause, End, Pod, Stage, older
from tests.search.statuses import Statuses
from tests.search.turns import (
    Operator,
    Turned,
    called,
    caught_up,
    changed,
    deleted,
    refused_again,
    vanished,
    with_pods,
)
from tests.search.world import Answer, Checkpoint, Memory, Op, World

TICKS = SHORTLY, LATER = (1, 50)
"""Seconds that pass at once: between events that are not of one second; and beyond the waits before a start, half a deadline."""
OLDEST_ANSWER = 130
MANY = 3
"""Failures that matter: more than every job's limit."""

Event = tuple[str, World]
Judge = Callable[[World, Turned], bool]
"""Looks at a turn before anything of it is done; False where it breaks a rule, from where nothing is followed any further."""


class Events:
    """The events of one job. ``judge`` sees each turn that is taken."""

    def __init__(self, job: SmallJob, statuses: Statuses, operator: Operator, judge: Judge) -> None:
        self.job, self.statuses, self.operator, self.judge = job, statuses, operator, judge

    def after(self, world: World) -> Iterator[Event]:
        """Every event, in an order that is the same each time."""
        yield from self.of_the_operator(world)
        for pod in world.pods:
            tormented = pod.member in self.job.tormented
            yield from self.of_a_kubelet(world, pod)
            if tormented:
                for name, next in self._torments(world, pod):
                    yield f"{pod.uid} {name}", next
                    if world.seen is None and not world.pending:
                        yield f"{pod.uid} {name}, unseen", next._replace(seen=world.pods, memory=world.memory)
        yield from self._learner(world)
        yield from self._user(world)
        for seconds in TICKS:
            yield self.ticked(world, seconds)

    # ---------------------------------------------------------------------------------------------------- operator

    def of_the_operator(self, world: World) -> Iterator[Event]:
        """Its turns, its calls, and what goes wrong with them."""
        if world.pending:
            yield from self._call(world, world.pending[0])
        else:
            if world.seen is not None:
                yield "the watch catches up", caught_up(world)
            yield from self.turned(world)
            if world.memory.status >= 0:
                yield "the operator stores its status", self.stored(world)
            if (polled := self.polled(world)) is not None:
                yield "the learner is asked how it is", polled
        if world.pending or world.memory != Memory():
            yield "the operator is killed, another begins", self.killed(world)

    def turned(self, world: World) -> Iterator[Event]:
        """A turn that changes something: its calls are still to be made."""
        found = self.operator.turn(world)
        if not self.judge(world, found):
            return
        counted = world.memory.counted if world.memory.status >= 0 else world.counted
        here = {pod.uid for pod in (*world.pods, *(world.seen or ()), *world.memory.gone)}
        counted = tuple(sorted({*counted, *(found.dealt_with & here)}))
        memory = world.memory._replace(were_up=found.were_up, asks=found.asks)
        if memory.refused:
            wanted = found.decision.start
            memory = memory._replace(refused=tuple(each for each in memory.refused if each.member in wanted))
        calls = tuple(op for op in found.calls if op.verb != "settle" or op.uid not in memory.settled)
        store = Op("store", "", found.after, counted)
        waits = memory._replace(status=found.after, counted=counted)
        if found.after == world.stored and counted == world.counted:
            waits = memory._replace(status=-1, counted=())
        if found.write is StatusWrite.BEFORE_ACTING and waits.status >= 0:
            after = world._replace(memory=memory, pending=(store, *calls))
        else:
            after = world._replace(memory=waits, pending=calls)
        if after != world:
            yield "the operator takes a turn", after

    def stored(self, world: World) -> World:
        """What waited to be stored is."""
        op = Op("store", "", world.memory.status, world.memory.counted)
        return called(world, op, self.statuses)

    def _call(self, world: World, op: Op) -> Iterator[Event]:
        name = f"{op.verb} {op.uid}".strip()
        done = called(world, op, self.statuses)._replace(pending=world.pending[1:])
        if op.verb == "create" and done.memory.refused:
            refused = tuple(each for each in done.memory.refused if each.member != op.uid)
            done = done._replace(memory=done.memory._replace(refused=refused))
        yield f"call: {name}", done
        if op.verb == "settle":
            return
        if op.verb == "store":
            yield "call: store, refused (409)", world._replace(pending=())
            lost = done.memory._replace(status=-1, counted=())
            yield "call: store, its answer is lost", done._replace(pending=(), memory=lost)
            return
        yield f"call: {name}, fails", world._replace(pending=())
        if op.verb == "create":
            memory = world.memory._replace(refused=refused_again(world.memory.refused, op.uid))
            yield f"call: {name}, no quota", world._replace(pending=world.pending[1:], memory=memory)
        if done.pods != world.pods:
            stale = self.killed(done)._replace(seen=world.pods)
            yield f"call: {name}; the operator is killed, another begins with a list from before", stale

    def killed(self, world: World) -> World:
        """Another process begins, with the list that this one had."""
        return with_pods(world._replace(memory=Memory(), pending=()), world.pods)

    def polled(self, world: World) -> World | None:
        """The learner's answer, where that is another one than before."""
        asked = next((p for p in world.pods if p.member == "learner" and p.stage == Stage.RUNNING and not p.lost), None)
        if asked is None or asked.uid not in world.memory.were_up:
            return None
        answer = Answer(asked.work, world.won, 0, world.saved)
        return None if answer == world.memory.answer else world._replace(memory=world.memory._replace(answer=answer))

    # ------------------------------------------------------------------------------------------------------- pods

    def of_a_kubelet(self, world: World, pod: Pod) -> Iterator[Event]:
        """A pod goes on in its life, as all do in good weather."""
        if pod.lost:
            return
        if pod.deleted >= 0:
            if pod.stage == Stage.PLACED:
                yield f"{pod.uid} is ended before it ran", self._ended(world, pod, End.NEVER_RAN)
            if pod.stage == Stage.RUNNING:
                yield f"{pod.uid} leaves in good order", self._left(world, pod, End.SIGTERM)
            return
        if pod.stage == Stage.WAITING:
            yield f"{pod.uid} is placed", changed(world, pod, pod._replace(stage=Stage.PLACED, trouble=""))
        if pod.stage == Stage.PLACED:
            yield f"{pod.uid} comes up", self._came_up(world, pod)

    def _came_up(self, world: World, pod: Pod) -> World:
        work = 0
        if pod.member == "learner":
            if not self.job.claim:
                world = world._replace(saved=None)
            work = world.saved.step if world.saved is not None else 0
        return changed(world, pod, pod._replace(stage=Stage.RUNNING, began=0, trouble="", work=work))

    def _left(self, world: World, pod: Pod, end: End) -> World:
        """A role was told to leave; a learner saves itself before."""
        if pod.member != "learner":
            return self._ended(world, pod, end)
        world = world._replace(saved=Checkpoint(pod.work, 0, world.memory.asks))
        return self._ended(world, pod, end, said=pod.work)

    def _ended(self, world: World, pod: Pod, end: End, said: int = -1) -> World:
        own = pod.deleted < 0 and end not in (End.REFUSED, End.DEADLINE)
        cause = pod.cause if pod.cause else (Cause.OWN if own else Cause.DISRUPTION)
        counts = own and pod.member in self.job.counting
        after = pod._replace(stage=Stage.ENDED, end=end, ended=0, cause=cause, trouble="", work=0, said=said)
        if pod.deleted >= 0:
            after = after._replace(deleted=0, grace=0)  # its kubelet moves the time of the deletion
        world = world._replace(real=min(MANY, world.real + counts), fatal=world.fatal or (own and end == End.EXIT_78))
        return changed(world, pod, after)

    def _torments(self, world: World, pod: Pod) -> Iterator[Event]:
        """What happens to a pod besides."""
        core = pod.member in self.job.core
        if pod.stage == Stage.ENDED:
            if pod.deleted < 0 and pod.ended == 0:
                yield "is deleted in the second of its end", self._deleted(world, pod)
            return
        if pod.lost:
            yield "has its node back", changed(world, pod, pod._replace(lost=False))
            if pod.deleted < 0:
                yield "is evicted by the taint of its node", self.evicted(world, pod)
            yield "goes with its node", self._forced(world, pod, "DeletionByPodGC")
            return
        if pod.deleted < 0:
            yield "is deleted", self._deleted(world, pod)
            yield "is evicted", self._deleted(world, pod, "EvictionByEvictionAPI")
            if core:
                yield "is preempted", self._deleted(world, pod, "PreemptionByScheduler")
            if not pod.bare:
                yield "has its labels taken off", changed(world, pod, pod._replace(bare=True))
        yield "has its owner reference taken off", self._forced(world, pod)
        if core:
            yield "is deleted by force", self._forced(world, pod)
        if pod.stage == Stage.WAITING and not pod.trouble:
            yield "finds no place", changed(world, pod, pod._replace(trouble="no place"))
        if pod.stage == Stage.PLACED and pod.deleted < 0:
            yield "is refused by its kubelet", self._ended(world, pod, End.REFUSED)
            if core:
                yield "fails in its init container", self._ended(world, pod, End.INIT_FAILED)
            if not pod.trouble:
                gone = changed(world, pod, pod._replace(trouble="no image"))
                yield "has no image any more", gone._replace(stood=100)
        if pod.stage == Stage.RUNNING:
            yield "loses its node", changed(world, pod, pod._replace(lost=True))
            yield "ends with 1", self._ended(world, pod, End.EXIT_1)
            if pod.deleted >= 0:
                yield "is killed as its time is over", self._ended(world, pod, End.SIGKILL)
                yield "leaves with 0", self._left(world, pod, End.LEFT_WITH_0)
            elif core:
                yield "ends with 0", self._ended(world, pod, End.EXIT_0)
                yield "is out of memory", self._ended(world, pod, End.OOM)
                yield "refuses its job (78)", self._ended(world, pod, End.EXIT_78)
                yield "is told to leave from inside", self._left(world, pod, End.SIGTERM)
                yield "is killed from inside", self._ended(world, pod, End.SIGKILL)
                yield "comes to its own deadline", self._left(world, pod, End.DEADLINE)

    def evicted(self, world: World, pod: Pod) -> World:
        """A node is not heard of for long."""
        return self._deleted(world, pod, "DeletionByTaintManager")

    def _deleted(self, world: World, pod: Pod, disruption: str = "") -> World:
        cause = Cause.DISRUPTION if pod.cause == Cause.NONE else pod.cause
        if pod.stage == Stage.ENDED and pod.cause in (Cause.OWN, Cause.ASKED):
            cause = Cause.EITHER
        return deleted(world, pod._replace(cause=cause), GRACE_SECONDS, disruption)

    def _forced(self, world: World, pod: Pod, disruption: str = "") -> World:
        """It goes from the API server at once, whatever still runs of it."""
        cause = Cause.DISRUPTION if pod.cause == Cause.NONE else pod.cause
        pod = pod._replace(cause=cause, deleted=max(pod.deleted, 0), grace=0, disruption=disruption or pod.disruption)
        return vanished(world, pod)

    # ------------------------------------------------------------------------------------------- learner, user, time

    def _learner(self, world: World) -> Iterator[Event]:
        if (advanced := self.advanced(world)) is not None:
            yield "the learner advances", advanced
        if (saved := self.saved(world)) is not None:
            yield "the learner writes a checkpoint", saved
        judge = next((p for p in world.pods if p.member == "evaluator" and p.works), None)
        learner = world.learner()
        if judge is not None and learner is not None and learner.work > 0 and not world.won:
            yield "an evaluation reaches the target", world._replace(won=2)

    def advanced(self, world: World) -> World | None:
        """After ten updates more."""
        learner = world.learner()
        if learner is None or learner.work >= BUDGET or not self._plays(world):
            return None
        work = learner.work + 1
        won = world.won or int(work >= BUDGET)
        return changed(world._replace(won=won, stood=0), learner, learner._replace(work=work))

    def _plays(self, world: World) -> bool:
        up = {pod.member for pod in world.pods if pod.works}
        return all(name in up for name in self.job.core) and any(name.startswith("actor") for name in up)

    def saved(self, world: World) -> World | None:
        """After a checkpoint that says something new."""
        learner = world.learner()
        if learner is None or (learner.work == 0 and world.memory.asks < 0):
            return None
        found = Checkpoint(learner.work, 0, world.memory.asks)
        before = world.saved
        if before is not None and (before.step, before.requested) == (found.step, found.requested):
            return None
        return world._replace(saved=found)

    def _user(self, world: World) -> Iterator[Event]:
        if self.job.claim and not world.going and world.saved is not None:
            yield "the user deletes the claim", with_pods(world._replace(going=True), world.pods)
        for number in range(len(self.job.specs)):
            if number != world.spec:
                name = {RUNS: "the user runs it as it was", SUSPENDED: "the user suspends it"}
                yield name.get(number, f"the user makes edit {number - 1}"), self.edited(world, number)

    def edited(self, world: World, number: int) -> World:
        """The job was changed, so what the operator has not stored gives way to what is."""
        return world._replace(spec=number, memory=world.memory._replace(status=-1, counted=()))

    def ticked(self, world: World, seconds: int) -> Event:
        return f"{seconds} s pass", self.later(world, seconds)

    def later(self, world: World, seconds: int) -> World:
        """The same so much later."""
        older_status = self.statuses.older
        memory, saved = world.memory, world.saved
        answer = memory.answer
        if answer is not None:
            answer = answer._replace(
                age=min(answer.age + seconds, OLDEST_ANSWER), checkpoint=_later(answer.checkpoint, seconds)
            )
        memory = memory._replace(
            status=memory.status if memory.status < 0 else older_status(memory.status, seconds),
            answer=answer,
            asks=_age(memory.asks, seconds),
            gone=tuple(older(pod, seconds) for pod in memory.gone),
            refused=tuple(
                each._replace(since=min(each.since + seconds, OLDEST_ANSWER), again=max(0, each.again - seconds))
                for each in memory.refused
            ),
        )
        pending = tuple(
            op._replace(number=older_status(op.number, seconds)) if op.verb == "store" else op for op in world.pending
        )
        return world._replace(
            stored=older_status(world.stored, seconds),
            memory=memory,
            pods=tuple(older(pod, seconds) for pod in world.pods),
            seen=None if world.seen is None else tuple(older(pod, seconds) for pod in world.seen),
            pending=pending,
            saved=_later(saved, seconds),
            stood=min(100, world.stood + seconds) if self._all_placed(world) else world.stood,
        )

    def _all_placed(self, world: World) -> bool:
        placed = {
            pod.member
            for pod in world.pods
            if pod.alive and pod.stage > Stage.WAITING and pod.deleted < 0 and not pod.lost
        }
        return all(name in placed for name in self.job.core) and any(name.startswith("actor") for name in placed)


def _later(found: Checkpoint | None, seconds: int) -> Checkpoint | None:
    if found is None:
        return None
    return Checkpoint(found.step, min(found.age + seconds, OLDEST_ANSWER), _age(found.requested, seconds))


def _age(age: int, seconds: int) -> int:
    return age if age < 0 else min(age + seconds, OLDEST_ANSWER)
