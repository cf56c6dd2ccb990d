"""The reconciler on a real API server, turn by turn: the test is the watch, and it is the kubelet, too.

Nothing runs beside it, so that what a turn does can be counted, and a turn can be cut off at each of its calls.
"""

import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

from rljob.api.learner_status import LearnerStatus
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Conflict, Unavailable
from rljob_operator.kube.apiserver.resources import ALL, EVENTS, LEASES, PODS, RLJOBS, VOLUME_CLAIMS, Object
from rljob_operator.kube.apiserver.transport import Call
from rljob_operator.kube.job.reconcile import Reconciler
from rljob_operator.kube.reach import PodNetwork
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.events import EventRecorder
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.kept import ChildrenOfOneKind, NodeCache
from rljob_operator.kube.watch.pods import JobKey, PodCache, owner_of, trim
from rljob_operator.polls.poll import Alive, Answer, LearnerPoll, Silence

from tests.cluster.kubelet import Kubelet
from tests.unit.api.bad_manifests import BASE, document

SETTINGS = Settings(image="rl:1")
TWO_ACTORS = {"actors": {"replicas": 2}}


class BreakingClient(Client):
    """Counts its calls, and breaks at the one that it is told to.

    Attributes:
        calls: (verb, resource) -> how often, since the last `reset`; ``order``: one after the other. A dry run is a ``try``.
        breaks_at: the number of the call that is not sent, which says so; 0 for none.
        loses: (verb, resource) of calls none of which is sent.
    """

    def __init__(self, access: Access, **options: Any) -> None:
        super().__init__(access, **options)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.order: list[tuple[str, str]] = []
        self.made, self.breaks_at = 0, 0
        self.loses: tuple[str, str] | None = None

    def reset(self, breaks_at: int = 0) -> None:
        self.calls.clear()
        self.order.clear()
        self.made, self.breaks_at = 0, breaks_at

    @property
    def writes(self) -> dict[tuple[str, str], int]:
        return {call: count for call, count in self.calls.items() if call[0] not in ("get", "list")}

    async def _ask(self, call: Call, timeout_seconds: float | None = None) -> Object:
        self.made += 1
        counted = "try" if "dryRun" in call.query else call.verb, call.counted_as
        self.calls[counted] += 1
        self.order.append(counted)
        if self.made == self.breaks_at or (call.verb, call.counted_as) == self.loses:
            raise Unavailable("the connection was refused")
        return await super()._ask(call, timeout_seconds)


class SilentPoll:
    """Asks no member; ``answers`` and ``silences``, by incarnation, are what it would know."""

    def __init__(self) -> None:
        self.answers: dict[JobKey, Answer] = {}
        self.silences: dict[str, Silence] = {}
        self.followed: dict[JobKey, list[Alive | LearnerPoll]] = {}
        self.endings: dict[JobKey, str | None] = {}

    def answer(self, key: JobKey) -> Answer:
        return self.answers.get(key, Answer())

    def silence(self, key: JobKey, incarnation: str) -> Silence | None:
        return self.silences.get(incarnation)

    def follow(
        self,
        key: JobKey,
        members: Iterable[Alive | LearnerPoll],
        checkpoint_seconds: float | None = None,
        ending: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.followed[key] = list(members)
        self.endings[key] = ending

    def learner(self, *key: str) -> LearnerPoll | None:
        """The one that is asked."""
        return next((each for each in self.followed[key] if isinstance(each, LearnerPoll)), None)  # type: ignore[index]

    def forget(self, key: JobKey) -> None:
        self.answers.pop(key, None)


class Run:
    """One life of an operator: its caches are those that `look` fills."""

    def __init__(self, client: Client, namespace: str, settings: Settings = SETTINGS, **options: Any) -> None:
        self.client, self.namespace = client, namespace
        self.jobs: dict[str, Object] = {}
        self.expectations = Expectations(lapse_seconds=0.0)
        self.pods = PodCache(self._seen)
        self.poll = SilentPoll()
        self.nodes = NodeCache(lambda name: None)
        self.claims = ChildrenOfOneKind(lambda key, uid: None, as_made=False)
        self.recommended: dict[JobKey, int | None] = {}
        self.events = EventRecorder(client, "operator-1")
        self.reconciler = Reconciler(
            client,
            lambda _, name: self.jobs.get(name),
            self.pods,
            self.poll,  # type: ignore[arg-type]
            PodNetwork().url,
            self.events,
            self.expectations,
            settings,
            nodes=self.nodes,
            claim=self.claims.get,
            recommended=lambda namespace, name, actors: self.recommended.update({(namespace, name): actors}),
            **{"seen_seconds": 0.0, **options},
        )

    def _seen(self, key: JobKey, kind: str, pod: Object) -> None:
        owner = owner_of(pod)
        assert owner is not None
        self.expectations.observe(owner["uid"], kind, pod)

    async def look(self, viewer: Client) -> None:
        """What the watches would have brought by now."""
        self.jobs = {each["metadata"]["name"]: each for each in (await viewer.list(RLJOBS, self.namespace)).items}
        found = await viewer.list(PODS, self.namespace, label_selector=names.SELECTOR)
        self.pods.replace(self.namespace, [trim(each) for each in found.items])
        claims = await viewer.list(VOLUME_CLAIMS, self.namespace)
        self.claims.replace(self.namespace, [self.claims.keep(each) for each in claims.items])

    async def turn(self, viewer: Client, name: str) -> float | None:
        await self.look(viewer)
        return await self.reconciler.reconcile((self.namespace, name))

    async def settle(self, viewer: Client, name: str, turns: int = 12) -> None:
        """Turns until one writes nothing, as the queue would give them. Fails where none is."""
        for _ in range(turns):
            assert isinstance(self.client, BreakingClient)
            self.client.reset()
            try:
                await self.turn(viewer, name)
            except (Conflict, Unavailable):
                continue
            if not self.client.writes:
                return
        raise AssertionError(f"still at work after {turns} turns: {self.client.writes}")


def written(namespace: str, name: str, labels: Mapping[str, str] | None = None, /, **spec: Any) -> Object:
    found = document(BASE)
    return {
        **found,
        "metadata": {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})},
        "spec": {**found["spec"], "evaluator": {"enabled": False}, **spec},
    }


class Clock:
    """A time that the test moves on, and a learner that learns by it."""

    def __init__(self) -> None:
        self.began, self.seconds, self.updates = time.time(), 0.0, 0

    def now(self) -> float:
        return self.began + self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def answer(self) -> Answer:
        said = LearnerStatus(taken_seconds=self.now(), updates=self.updates, raw_frames_total=self.updates * 4)
        return Answer(said, "")


async def status_of(viewer: Client, namespace: str, name: str) -> Object:
    return dict((await viewer.get(RLJOBS, namespace, name)).get("status") or {})


def said_in(status: Object) -> dict[str, tuple[str, str, str]]:
    """(status, reason, message) of every condition, by its type."""
    return {each["type"]: (each["status"], each["reason"], each.get("message", "")) for each in status["conditions"]}


class OneJob:
    """One job: what its user does and reads, the turns of its operator, its kubelet, and a learner that learns by ``clock``.

    ``run`` is the operator of the moment; ``times`` are options of it and of those that follow. It is created with ``labels``.
    """

    def __init__(
        self,
        viewer: Client,
        client: BreakingClient,
        run: Run,
        name: str = "pong",
        clock: Clock | None = None,
        **times: Any,
    ) -> None:
        self.viewer, self.client, self.run, self.clock = viewer, client, run, clock or Clock()
        self.namespace, self.name, self.key = run.namespace, name, (run.namespace, name)
        self.kubelet, self._times = Kubelet(viewer, run.namespace), times
        self.labels: dict[str, str] = {}

    async def create(self, **spec: Any) -> Object:
        return await self.viewer.create(RLJOBS, written(self.namespace, self.name, self.labels, **spec))

    async def begin(self, **spec: Any) -> Object:
        """It is created, and turns follow; the job as it was created."""
        created = await self.create(**spec)
        await self.settle()
        return created

    async def start(self, **spec: Any) -> Object:
        """It is created, and comes up; the job as it was created."""
        created = await self.create(**spec)
        await self.bring_up()
        return created

    async def patch(self, **spec: Any) -> None:
        """Its user changes fields of the spec, which no operator has seen yet."""
        await self.viewer.patch(RLJOBS, *self.key, {"spec": spec})

    async def change(self, **spec: Any) -> None:
        """Its user changes fields of the spec, and turns follow."""
        await self.patch(**spec)
        await self.settle()

    async def suspend(self, **spec: Any) -> None:
        """Its user suspends it, with other changes of the spec, and all that is to leave has left."""
        await self.patch(suspend=True, **spec)
        await self.take_down()

    async def resume(self) -> None:
        """Its user has it go on, and it comes up."""
        await self.patch(suspend=False)
        await self.bring_up()

    async def status(self) -> Object:
        return await status_of(self.viewer, *self.key)

    async def expect(self, **conditions: tuple[str, ...]) -> Object:
        """Compare status, reason and message of conditions, as many of them as are given; the status."""
        status = await self.status()
        said = said_in(status)
        assert {kind: said[kind][: len(wanted)] for kind, wanted in conditions.items()} == conditions
        return status

    async def message(self, kind: str) -> str:
        """What a condition says."""
        return said_in(await self.status())[kind][2]

    async def turn(self) -> float | None:
        return await self.run.turn(self.viewer, self.name)

    async def settle(self) -> None:
        """Turns until one writes nothing."""
        await self.run.settle(self.viewer, self.name)

    async def calls(self, look: bool = True) -> Counter[tuple[str, str]]:
        """What one turn asks of the API server, with a look before it, or on what was seen before."""
        if look:
            await self.run.look(self.viewer)
        self.client.reset()
        await self.run.reconciler.reconcile(self.key)
        return Counter(self.client.calls)

    def next_operator(self, **options: Any) -> None:
        """From now on it is another one, which has seen nothing yet."""
        self.run = type(self.run)(self.client, self.namespace, **{**self._times, **options})

    def learns(self, seconds: float = 0.0, updates: int = 0) -> None:
        """Time passes in which the learner makes so many updates, as it says when it is asked."""
        self.clock.seconds += seconds
        self.clock.updates += updates
        self.run.poll.answers[self.key] = self.clock.answer()

    async def pods(self) -> dict[str, list[Object]]:
        """By member."""
        return await self.kubelet.pods(self.name)

    async def pod(self, member: str) -> Object:
        return await self.kubelet.pod(self.name, member)

    async def end(self, member: str, code: int = 1, **said: Any) -> None:
        """The member's pod ends."""
        await self.kubelet.end(await self.pod(member), code, **said)

    async def start_pods(self, *members: str) -> None:
        """The kubelet runs all pods that have not been started, or those of ``members``."""
        await self.kubelet.start(self.name, *members)

    async def finish_deleted(self, but: Container[str] = ()) -> None:
        """The kubelet ends every pod that is being deleted, and lets it go."""
        await self.kubelet.finish_deleted(self.name, but)

    async def bring_up(self) -> None:
        """Turn after turn until all roles are up."""
        for _ in range(6):
            await self.settle()
            await self.start_pods()
        await self.settle()

    async def take_down(self) -> None:
        """Turn after turn until all pods that are to leave have left."""
        for _ in range(5):
            await self.settle()
            await self.finish_deleted()
        await self.settle()


async def children_of(viewer: Client, namespace: str, name: str) -> list[Object]:
    found: list[Object] = []
    for resource in ALL:
        if resource not in (RLJOBS, EVENTS, LEASES):
            page = await viewer.list(resource, namespace, label_selector=f"{names.JOB_LABEL}={name}")
            found += [{**each, "kind": resource.kind} for each in page.items]
    return found
