"""The reconciler on a real API server, turn by turn: the test is the watch, and it is the kubelet, too.

Nothing runs beside it, so that what a turn does can be counted, and a turn can be cut off at each of its calls.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rljob.api.learner_status import LearnerStatus
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Conflict, NotFound, Unavailable
from rljob_operator.kube.apiserver.resources import ALL, EVENTS, LEASES, PODS, RLJOBS, Object
from rljob_operator.kube.apiserver.transport import Call
from rljob_operator.kube.job.reconcile import Reconciler
from rljob_operator.kube.reach import PodNetwork
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.events import EventRecorder
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.kept import NodeCache
from rljob_operator.kube.watch.pods import JobKey, PodCache, owner_of, trim
from rljob_operator.polls.poll import Alive, Answer, LearnerPoll, Silence

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

    async def turn(self, viewer: Client, name: str) -> float | None:
        await self.look(viewer)
        return await self.reconciler.reconcile((self.namespace, name))

    async def begin(self, viewer: Client, document: Object) -> Object:
        """Its user creates a job, and turns follow; the job as it was created."""
        created = await viewer.create(RLJOBS, document)
        await self.settle(viewer, created["metadata"]["name"])
        return created

    async def change(self, viewer: Client, name: str, **spec: Any) -> None:
        """Its user changes fields of a job's spec, and turns follow."""
        await viewer.patch(RLJOBS, self.namespace, name, {"spec": spec})
        await self.settle(viewer, name)

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


def written(namespace: str, name: str, **spec: Any) -> Object:
    found = document(BASE)
    return {
        **found,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**found["spec"], "evaluator": {"enabled": False}, **spec},
    }


def stamped(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    """Says of pods what a kubelet would."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def pods(self, job: str) -> dict[str, list[Object]]:
        """The job's pods by member."""
        selector = f"{names.JOB_LABEL}={job}"
        found: dict[str, list[Object]] = {}
        for pod in (await self._client.list(PODS, self._namespace, label_selector=selector)).items:
            found.setdefault(pod["metadata"]["labels"][names.MEMBER_LABEL], []).append(pod)
        return found

    async def play(self, jobs: Sequence[str]) -> None:
        """For ever: start what is made, and let go what is deleted."""
        while True:
            for name in jobs:
                with suppress(ApiError):  # another client has changed it, or the server is away
                    await self.start(name)
                    await self.finish_deleted(name)
            await asyncio.sleep(0.1)

    async def pod(self, job: str, member: str) -> Object:
        """The member's pod, of which there is one."""
        (found,) = (await self.pods(job))[member]
        return found

    async def start(self, job: str, *members: str) -> None:
        """Bind and run all pods of the job that have not been started, or those of ``members``."""
        for member, pods in (await self.pods(job)).items():
            for pod in pods:
                fresh = (
                    not (pod.get("status") or {}).get("containerStatuses")
                    and "deletionTimestamp" not in pod["metadata"]
                )
                if fresh and (not members or member in members):
                    await self._run(pod)

    async def bind(self, pod: Object) -> None:
        """Give the pod a node, on which nothing happens."""
        about = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": about["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/{about['name']}/binding"
        await self._client._transport.ask(Call("create", "POST", path, "bindings", {}, binding), None)

    async def _run(self, pod: Object) -> None:
        if not pod["spec"].get("nodeName"):  # it has one where the answer to an earlier look was lost
            await self.bind(pod)
        state = {"running": {"startedAt": stamped(datetime.now(UTC).timestamp() - 60)}}
        await self._say(
            pod,
            {
                "phase": "Running",
                "podIP": "10.1.0.7",
                "podIPs": [{"ip": "10.1.0.7"}],
                "containerStatuses": [self._worker(state)],
            },
        )

    async def end(self, pod: Object, code: int = 1, reason: str = "Error", message: str = "", **status: Any) -> None:
        now = datetime.now(UTC).timestamp()
        terminated = {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": stamped(now - 60),
            "finishedAt": stamped(now),
        }
        phase = "Succeeded" if code == 0 else "Failed"
        await self._say(
            pod, {"phase": phase, "containerStatuses": [self._worker({"terminated": terminated})], **status}
        )

    async def finish_deleted(self, job: str, but: Container[str] = ()) -> None:
        """End every pod that is being deleted, in good order, and let it go where nothing keeps it; the members ``but`` take
        longer."""
        for pod in [each for name, pods in (await self.pods(job)).items() if name not in but for each in pods]:
            if "deletionTimestamp" not in pod["metadata"]:
                continue
            if (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
                await self.end(pod, 143)
            try:
                await self._client.delete(PODS, self._namespace, pod["metadata"]["name"], grace_seconds=0)
            except NotFound:
                continue

    @staticmethod
    def _worker(state: Object) -> Object:
        running = "running" in state
        about = {"image": "rl:1", "imageID": "", "restartCount": 0}
        return {"name": names.WORKER, "ready": running, "started": running, "state": state, **about}

    async def _say(self, pod: Object, status: Object) -> None:
        await self._client.patch(
            PODS, self._namespace, pod["metadata"]["name"], {"status": status}, subresource="status"
        )


async def bring_up(run: Run, viewer: Client, kubelet: Kubelet, name: str) -> None:
    """Turn after turn until all roles are up."""
    for _ in range(6):
        await run.settle(viewer, name)
        await kubelet.start(name)
    await run.settle(viewer, name)


async def started(run: Run, viewer: Client, kubelet: Kubelet, document: Object) -> Object:
    """Its user creates a job, and it comes up; the job as it was created."""
    created = await viewer.create(RLJOBS, document)
    await bring_up(run, viewer, kubelet, created["metadata"]["name"])
    return created


async def take_down(run: Run, viewer: Client, kubelet: Kubelet, name: str) -> None:
    """Turn after turn until all pods that are to leave have left."""
    for _ in range(5):
        await run.settle(viewer, name)
        await kubelet.finish_deleted(name)
    await run.settle(viewer, name)


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


def condition(status: Object, kind: str) -> tuple[str, str]:
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return found["status"], found["reason"]


def message(status: Object, kind: str) -> str:
    (found,) = [each.get("message", "") for each in status["conditions"] if each["type"] == kind]
    return str(found)


def conditions(status: Object, *kinds: str) -> list[tuple[str, str]]:
    return [condition(status, kind) for kind in kinds]


async def children_of(viewer: Client, namespace: str, name: str) -> list[Object]:
    found: list[Object] = []
    for resource in ALL:
        if resource not in (RLJOBS, EVENTS, LEASES):
            page = await viewer.list(resource, namespace, label_selector=f"{names.JOB_LABEL}={name}")
            found += [{**each, "kind": resource.kind} for each in page.items]
    return found
