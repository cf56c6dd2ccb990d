"""What an operator is about when it is killed: scenes of a job's life, each with what must be true afterwards.

A scene is set, an operator that takes turns on it is killed at a moment, and the next operator takes over. Then everything must
be as in the same scene where no operator was killed.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from rljob.api.exit_codes import EXIT_CONFIGURATION
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Conflict, Unavailable
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.render import names

from tests.cluster.control_plane import ControlPlane, connected
from tests.cluster.killing import Life, killed_at
from tests.cluster.kubelet import Kubelet, stamped
from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, OneJob, Run, children_of, status_of, written

NEVER = 10**9
SETTLED_TURNS = 12
LONGEST_SECONDS = 20.0
FEWEST_OPERATORS = 10


class Stage:
    """One job at a time in a namespace, an administrator who looks, and a kubelet; every operator is the next one."""

    def __init__(self, cluster: ControlPlane, namespace: str, runner: asyncio.Runner, viewer: Client) -> None:
        self._cluster, self._runner = cluster, runner
        self.namespace, self.viewer, self.kubelet = namespace, viewer, Kubelet(viewer, namespace)
        self.job = ""
        self.kills, self._jobs = 0, 0

    def run(self, story: Coroutine[Any, Any, Any]) -> Any:
        """Have something done, to its end."""
        return self._runner.run(story)

    def create(self, **spec: Any) -> None:
        """A new job, which the scenes from now on are about."""
        self._jobs += 1
        self.job = f"job-{self._jobs}"
        wanted = written(self.namespace, self.job, backoffLimit=10_000, **TWO_ACTORS, **spec)
        self.run(self.viewer.create(RLJOBS, wanted))

    def clear(self) -> None:
        """The job goes, and what a garbage collector would take with it."""
        self.run(self.viewer.delete(RLJOBS, self.namespace, self.job))
        self.settle()
        for pod in [pod for pods in self.pods().values() for pod in pods]:
            self.run(self.viewer.delete(PODS, self.namespace, pod["metadata"]["name"], grace_seconds=0))

    def change(self, **spec: Any) -> None:
        """What its user changes."""
        self.run(self.viewer.patch(RLJOBS, self.namespace, self.job, {"spec": spec}))

    def killed(self, moment: int) -> bool:
        """An operator works on the job until this moment; whether it came to that."""

        async def live(life: Life) -> None:
            async with connected(self._cluster, kind=BreakingClient) as client:
                run = Run(client, self.namespace)
                for _ in range(SETTLED_TURNS):
                    await run.look(client)
                    client.reset()
                    life.counts = True
                    try:
                        await run.reconciler.reconcile((self.namespace, self.job))
                    except (Conflict, Unavailable):
                        continue
                    finally:
                        life.counts = False
                    if not client.writes:
                        break

        killed = killed_at(moment, live)
        self.kills += killed
        return killed

    def settle(self) -> None:
        """The next operator works on it until there is nothing to do."""
        self._with_operator(OneJob.settle)

    def bring_up(self) -> None:
        """All its roles run."""
        self._with_operator(OneJob.bring_up)

    def settle_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Operators, and the kubelet with pods that are to go, until it is so. On a machine with much else to do the turns of one
        operator take seconds, so a number of them is waited for in any case."""
        end, operators = time.monotonic() + LONGEST_SECONDS, 0
        while True:
            self.settle()
            operators += 1
            if holds():
                return
            asked_too_often = time.monotonic() >= end and operators >= FEWEST_OPERATORS
            assert not asked_too_often, f"{what}, after {operators} operators: {self.marks()} {self.status()}"
            time.sleep(0.1)

    def pods(self) -> dict[str, list[Object]]:
        """Pods by member."""
        return self.run(self.kubelet.pods(self.job))  # type: ignore[no-any-return]

    def members(self) -> dict[str, int]:
        """How many pods every member has."""
        return {member: len(pods) for member, pods in self.pods().items()}

    def marks(self) -> dict[str, Object]:
        """What is noted on every pod of how it goes."""
        pods = [pod for pods in self.pods().values() for pod in pods]
        return {
            pod["metadata"]["name"]: {
                **{name: pod["metadata"].get(name) for name in ("deletionTimestamp", "annotations")},
                "phase": (pod.get("status") or {}).get("phase"),
            }
            for pod in pods
        }

    def status(self) -> Object:
        """The status of the job, as it is stored."""
        return dict(self.run(status_of(self.viewer, self.namespace, self.job)))

    def ends_of(self, pod: str) -> int:
        """How often the status tells of the end of a pod."""
        return sum(each["podName"] == pod for each in self.status().get("failures", ()))

    def told(self) -> Object:
        """What the status says, without times and names that differ from one job to the next."""
        status = self.status()
        conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
        actors = {name: count for name, count in status["actors"].items() if name != "selector"}
        return {"conditions": conditions, "actors": actors, "restarts": status["restarts"]}

    def children(self) -> dict[str, Object]:
        """Kind and name of everything that belongs to the job, with its name taken out; each is checked to be its own."""
        stored = self.run(self.viewer.get(RLJOBS, self.namespace, self.job))
        found = self.run(children_of(self.viewer, self.namespace, self.job))
        for each in found:
            (owner,) = each["metadata"]["ownerReferences"]
            assert owner["uid"] == stored["metadata"]["uid"], each
        own = [each for each in found if each["kind"] != PODS.kind]
        return {f"{each['kind']}/{each['metadata']['name'].removeprefix(self.job)}": each for each in own}

    def _with_operator(self, story: Callable[[OneJob], Coroutine[Any, Any, None]]) -> None:
        async def told() -> None:
            async with connected(self._cluster, kind=BreakingClient) as client:
                await story(OneJob(self.viewer, client, Run(client, self.namespace), self.job))

        self.run(told())


@contextmanager
def stage(cluster: ControlPlane, namespace: str) -> Iterator[Stage]:
    """An empty one."""
    with asyncio.Runner() as runner:
        connection = connected(cluster)
        viewer = runner.run(connection.__aenter__())
        try:
            yield Stage(cluster, namespace, runner, viewer)
        finally:
            runner.run(connection.__aexit__(None, None, None))


Scene = Callable[[Stage, int], tuple[bool, Object]]
"""Plays it with an operator that is killed at this moment: whether it came to that, and what is true afterwards."""


def makes_children(at: Stage, moment: int) -> tuple[bool, Object]:
    """The first turns on a new job."""
    at.create()
    killed = at.killed(moment)
    at.settle()
    children = at.children()
    core, actors = (children[f"Secret/-keys-{part}"]["data"] for part in ("core", "actors"))
    assert actors == {"actor.json": core["actor.json"]}, "all keys are of one making"
    found = {"children": sorted(children), "pods": at.members(), **at.told()}
    at.clear()
    return killed, found


def counts_an_end(member: str) -> Scene:
    """A member fails; the scenes before have brought its job up."""

    def scene(at: Stage, moment: int) -> tuple[bool, Object]:
        before = at.status()["restarts"]
        (failed,) = at.pods()[member]
        about = failed["metadata"]
        # It had worked, so that it starts again at once: an operator that waits has no moments to be killed at.
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": stamped(time.time() - 30.0)}
        at.run(at.kubelet.end(failed, 1, message=f"end at {moment}", conditions=[ready]))
        killed = at.killed(moment)
        if not [pod for pods in at.pods().values() for pod in pods if pod["metadata"]["uid"] == about["uid"]]:
            assert at.ends_of(about["name"]) == 1, "let go before its end was counted"
        at.settle_until(
            "another one", lambda: [p["metadata"]["uid"] == about["uid"] for p in at.pods().get(member, ())] == [False]
        )
        assert at.ends_of(about["name"]) == 1
        at.run(at.kubelet.start(at.job))
        at.settle()
        found = {"pods": at.members(), **at.told()}
        found["restarts"] = {kind: count - before[kind] for kind, count in found["restarts"].items()}
        return killed, found

    return scene


def grows(at: Stage, moment: int) -> tuple[bool, Object]:
    """Two more actors, which are taken away again in good order."""
    at.change(actors={"replicas": 4})
    killed = at.killed(moment)
    at.settle()
    found = {"pods": at.members(), **at.told()}
    at.run(at.kubelet.start(at.job))
    at.settle()
    at.change(actors={"replicas": 2})
    _let_go(at, 4)
    return killed, _without_restarts(found)


def shrinks(at: Stage, moment: int) -> tuple[bool, Object]:
    """An actor less, which comes back."""
    counted = at.status()["restarts"]
    at.change(actors={"replicas": 1})
    killed = at.killed(moment)
    at.settle()
    asked = [pod["metadata"] for pods in at.pods().values() for pod in pods if "deletionTimestamp" in pod["metadata"]]
    assert len(asked) == 1, "one victim, the same one whichever operator asks"
    assert names.ASKED_ANNOTATION in asked[0]["annotations"], "or its end would count as a failure"
    _let_go(at, 3)
    assert at.status()["restarts"] == counted
    found = {"pods": sorted(at.members().values()), **at.told()}
    at.change(actors={"replicas": 2})
    at.bring_up()
    return killed, _without_restarts(found)


def suspends(at: Stage, moment: int) -> tuple[bool, Object]:
    """All leave, the actors first; then the job goes on."""
    at.change(suspend=True)
    killed = at.killed(moment)
    _let_go(at, 0)
    found = at.told()
    at.change(suspend=False)
    at.bring_up()
    assert at.members() == dict.fromkeys(("replay-0", "learner", "actor-0", "actor-1"), 1)
    return killed, _without_restarts(found)


def ends(at: Stage, moment: int) -> tuple[bool, Object]:
    """The learner refuses the job, for good."""
    at.create()
    at.bring_up()
    (learner,) = at.pods()["learner"]
    at.run(at.kubelet.end(learner, EXIT_CONFIGURATION))
    killed = at.killed(moment)
    _let_go(at, 1)  # the pod that failed is kept, with its log
    found = at.told()
    at.clear()
    return killed, found


def up(at: Stage) -> None:
    """A job for the scenes that go on with one."""
    at.create()
    at.bring_up()


SCENES: dict[str, Scene] = {
    "makes the children": makes_children,
    "counts the learner's end": counts_an_end("learner"),
    "counts an actor's end": counts_an_end("actor-0"),
    "grows": grows,
    "shrinks": shrinks,
    "suspends": suspends,
    "ends": ends,
}
ON_ONE_JOB = tuple(SCENES)[1:6]
"""Scenes that go on with one job that is `up`."""


def play(at: Stage, name: str, step: int = 1, most: int = NEVER) -> int:
    """The scene with no operator killed, then with one that is killed at every ``step``-th of its moments; how many were."""
    scene, before, moment = SCENES[name], at.kills, 0
    if name in ON_ONE_JOB:
        up(at)
    _, expected = scene(at, NEVER)
    while at.kills - before < most:
        moment += step
        killed, found = scene(at, moment)
        assert found == expected, f"{name}, killed at moment {moment}: {_differing(found, expected)}"
        if not killed:
            break
    if name in ON_ONE_JOB:
        at.clear()
    return at.kills - before


def _let_go(at: Stage, pods: int) -> None:
    """The kubelet ends what is asked to go, until so many pods are left."""

    def left() -> bool:
        at.run(at.kubelet.finish_deleted(at.job))
        return sum(at.members().values()) == pods

    at.settle_until(f"{pods} pods left", left)
    at.settle()


def _without_restarts(found: Object) -> Object:
    return {name: value for name, value in found.items() if name != "restarts"}


def _differing(found: Object, expected: Object) -> Object:
    return {name: (found.get(name), value) for name, value in expected.items() if found.get(name) != value}
