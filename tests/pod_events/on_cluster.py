"""The table's events on a real cluster: each is done as a person would do it, and what comes of it is compared with the table."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rljob.api.status_model import rfc3339
from rljob_operator.kube.render import names

from tests.e2e import nodes
from tests.e2e.cluster import (
    CHECKPOINTS,
    LONG_SECONDS,
    SHARED,
    KubectlFailed,
    Namespace,
    job as of_spec,
    pause,
    requests,
    shared_claim,
)
from tests.pod_events import trouble
from tests.pod_events.table import CORE, COUNTED, ROLES, Event, Outcome, Phase
from tests.support.waiting import eventually

JOB = "events"
PRIORITY = "rljob-pod-events"
QUIET_SECONDS = 6.0
"""So long nothing happens to a pod that stays."""
KUBELET_HEARS_SECONDS = 3.0
"""After so long a kubelet gives pods what a ConfigMap has become."""
LABELS = tuple(names.member_labels(JOB, "learner"))
MEMBERS = {"learner": "learner", "replay": "replay-0", "inference": "inference-0", "evaluator": "evaluator"}
FROM_INSIDE = (
    "out of memory",
    "SIGTERM inside",
    "SIGKILL inside",
    "exit 0",
    "exit 1",
    "ended and deleted",
    "sidecar fails",
)
"""What is done by a command in the pod."""
_ANYWHERE = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}


def job(image: str) -> dict[str, Any]:
    """A job with a pod of every role, which has no end of its own. Its volumes are bound to no node."""
    own = {**requests(), **_ANYWHERE, "podTemplate": trouble.template(image)}
    own["resources"] = {**own["resources"], "limits": {"memory": "1500Mi"}}
    kept = {"storage": "1Gi", "storageClassName": SHARED}
    return of_spec(
        JOB,
        preset="CartPoleApeX",
        actors={"replicas": 1, "inference": "Central", **own},
        inference={"replicas": 1, **own},
        learner=own,
        replay={"shards": 1, "redis": {**requests("20m", "64Mi"), "persistence": kept}, **own},
        evaluator=own,
        activeDeadlineSeconds=86_400,
        successPolicy={"rawFrames": 10_000_000_000, "targetReturn": {"value": 1_000}},  # no game has more than 500
        backoffLimit=1000,
        checkpoint={"intervalSeconds": 5, "storage": {"persistentVolumeClaim": {"claimName": CHECKPOINTS}}},
    )


@dataclass(frozen=True, slots=True)
class Before:
    """What was so before the event."""

    uid: str
    node: str
    counted: int
    ignored: int
    step: int


class PodEvents:
    """One job in a namespace that an operator looks after."""

    def __init__(self, namespace: Namespace, image: str) -> None:
        self.namespace, self._image = namespace, image
        self._doing: dict[str, Callable[[str, str], None]] = {
            "delete": lambda member, pod: self._delete(pod),
            "force delete": lambda member, pod: self._delete(pod, "--force", "--grace-period=0"),
            "evict": lambda member, pod: self._evict(pod),
            "labels off": lambda member, pod: namespace.kubectl("label", "pod", pod, *(f"{each}-" for each in LABELS)),
            "out of memory": lambda member, pod: self._tell(member, "hog"),
            "SIGTERM inside": lambda member, pod: namespace.signal_worker(JOB, member, "SIGTERM"),
            "SIGKILL inside": lambda member, pod: namespace.signal_worker(JOB, member, "SIGKILL"),
            "exit 0": lambda member, pod: self._tell(member, "exit 0"),
            "exit 1": lambda member, pod: self._tell(member, "exit 1"),
            "deadline of the pod": lambda member, pod: self._deadline(pod),
            "ended and deleted": self._ended_and_deleted,
            "sidecar fails": lambda member, pod: self._end_beside(pod),
        }

    def start(self) -> None:
        """Make the job and wait until it trains and has a checkpoint."""
        self.namespace.apply(trouble.config_map(), shared_claim(), job(self._image))
        self.wait_trains()
        eventually(
            lambda: self.namespace.job_status(JOB).get("checkpoint", {}).get("step", 0) > 0,
            lambda: f"no checkpoint: {self.namespace.job_status(JOB)}",
            LONG_SECONDS,
            pause,
        )

    def wait_trains(self) -> None:
        """Until all roles are up, no pod is still leaving, and the learner makes updates."""
        eventually(
            lambda: (
                {pod["metadata"]["labels"]["rljob.dev/role"] for pod in self._started()} == set(ROLES)
                and len(self.namespace.all_pods(JOB)) == len(self.namespace.pods(JOB))
            ),
            lambda: f"pods are {sorted(self.namespace.uids(JOB))}; {self.namespace.condition(JOB, 'Ready')}",
            LONG_SECONDS,
            pause,
        )
        self.namespace.wait_for(JOB, "Ready", "True", "Running")
        self.namespace.wait_updates(JOB, more_than=self.namespace.learner_figures(JOB).get("updates", 0))

    def recover(self) -> None:
        """After a cell that was not as it should be: the next one begins with a job that trains, a new one if need be."""
        self.namespace.patch(JOB, {"suspend": False})
        try:
            self.wait_trains()
        except AssertionError:
            self.namespace.kubectl("delete", "rljob", JOB, "--wait=false")
            self.namespace.wait_empty()
            self.start()

    def member(self, role: str) -> str:
        """The role's member that the event is done to."""
        return MEMBERS.get(role) or min(self.namespace.pods(JOB, role), default="actor-0")

    def check(self, event: Event, role: str, phase: Phase) -> str:
        """Do it, and raise AssertionError where something else comes of it than the table says; what was seen, in a line."""
        began = time.monotonic()
        found = self._running(event, role) if phase is Phase.RUNNING else self._suspending(event, role)
        return f"{found}; {time.monotonic() - began:.0f} s"

    def _started(self) -> list[dict[str, Any]]:
        """The pods whose program is up."""
        return [
            pod
            for pod in self.namespace.pods(JOB).values()
            if any(
                each["name"] == "worker" and each.get("started") and "running" in each["state"]
                for each in pod["status"].get("containerStatuses", ())
            )
        ]

    # ------------------------------------------------------------------------------------------------------ the phases

    def _running(self, event: Event, role: str) -> str:
        member, before, began = self.member(role), self._before(role), rfc3339(time.time())
        with self._done(event, member, before) as lasting:
            if event.outcome is Outcome.STAYS:
                time.sleep(QUIET_SECONDS)
                assert self.namespace.uids(JOB).get(member) == before.uid, "the pod did not stay"
                lasting.close()
                now = self._before(role)
                assert (now.counted, now.ignored) == (before.counted, before.ignored), f"counted: {before} -> {now}"
                return "stays"
            if event.name == "init container fails":
                self._wait_failure(role, 3, began)
                lasting.close()
            self._wait_replaced(role, before)
            lasting.close()
            self.wait_trains()
        self._compare(event, role, before)
        return f"replaced; {self._last_failure(role)}"

    def _suspending(self, event: Event, role: str) -> str:
        member, before = self.member(role), self._before(role)
        leaves_at_once = role not in CORE or event.name in FROM_INSIDE
        if not leaves_at_once:
            self.namespace.patch(JOB, {"suspend": True})
        with self._done(event, member, before) as lasting:
            if leaves_at_once:  # asked to leave first, there would be no program to do it to
                self.namespace.patch(JOB, {"suspend": True})
            self.namespace.wait_for(JOB, "Suspended", "True")
            lasting.close()
        said = self.namespace.condition(JOB, "Suspended")
        step = self.namespace.job_status(JOB)["checkpoint"]["step"]
        assert step >= before.step
        self.namespace.patch(JOB, {"suspend": False})
        self.wait_trains()
        assert self.namespace.learner_figures(JOB)["updates"] >= step, "the learner began before its checkpoint"
        self._no_end()
        return f"suspended at {step:,} ({said['reason']}), resumed"

    # ------------------------------------------------------------------------------------------------------ what is seen

    def _before(self, role: str) -> Before:
        status, pod = self.namespace.job_status(JOB), self._pod(role)
        restarts = status["restarts"]
        return Before(
            pod["metadata"]["uid"],
            pod["spec"]["nodeName"],
            restarts["counted"],
            restarts["ignored"],
            status["checkpoint"]["step"],
        )

    def _pod(self, role: str) -> dict[str, Any]:
        """The pod of the member that the event is done to; one that has just ended by itself is waited for."""
        return eventually(
            lambda: self.namespace.pods(JOB, role).get(self.member(role)), f"no pod of {role}", LONG_SECONDS, pause
        )

    def _compare(self, event: Event, role: str, before: Before) -> None:
        self._no_end()
        restarts = self.namespace.job_status(JOB)["restarts"]
        counted, ignored = restarts["counted"] - before.counted, restarts["ignored"] - before.ignored
        words = f"counted +{counted}, ignored +{ignored}"
        if event.outcome is Outcome.FAILED and role in COUNTED:
            assert counted >= 1, words
        elif event.outcome is Outcome.EITHER:
            assert counted + ignored == 1, words
        elif event.outcome is Outcome.FAILED or event.whole_node:
            assert counted == 0 < ignored, words
        else:
            assert (counted, ignored) == (0, 1), words
        if role == "learner":
            figures = self.namespace.learner_figures(JOB)
            assert figures["updates"] >= before.step, f"the learner began before its checkpoint: {figures['updates']}"

    def _no_end(self) -> None:
        found = [
            c
            for c in self.namespace.job_status(JOB)["conditions"]
            if c["type"] in ("Complete", "Failed", "FailureTarget")
        ]
        assert not found, found

    def _last_failure(self, role: str) -> str:
        failures = self.namespace.job_status(JOB).get("failures") or ()
        last = next((each for each in reversed(failures) if each["role"].lower() == role), {})
        return f"{last.get('reason')} {last.get('exitCode', '')} {last.get('message', '')[:100]!r}"

    def _wait_replaced(self, role: str, before: Before) -> None:
        def replaced() -> bool:
            found = self.namespace.pods(JOB, role).values()
            return bool(found) and all(pod["metadata"]["uid"] != before.uid for pod in found)

        eventually(replaced, lambda: f"{role} was not replaced: {self.namespace.uids(JOB)}", LONG_SECONDS, pause)

    def _wait_failure(self, role: str, code: int, began: str) -> None:
        def failed() -> bool:
            found = self.namespace.job_status(JOB).get("failures") or ()
            return any((f["role"].lower(), f.get("exitCode")) == (role, code) and f["time"] > began for f in found)

        eventually(failed, lambda: f"failures: {self.namespace.job_status(JOB).get('failures')}", LONG_SECONDS, pause)

    # ------------------------------------------------------------------------------------------------------- what is done

    @contextmanager
    def _done(self, event: Event, member: str, before: Before) -> Iterator[ExitStack]:
        """The event, done; to close what is given undoes what of it lasts, which the end does at the latest."""
        pod = self.namespace.pods(JOB)[member]["metadata"]["name"]
        with ExitStack() as lasting:
            if event.name in self._doing:
                self._doing[event.name](member, pod)
            else:
                getattr(self, "_" + event.name.replace(" ", "_"))(member, pod, before, lasting)
            yield lasting

    def _delete(self, pod: str, *words: str) -> None:
        self.namespace.kubectl("delete", "pod", pod, "--wait=false", *words)

    def _evict(self, pod: str) -> None:
        about = {"name": pod, "namespace": self.namespace.name}
        path = f"/api/v1/namespaces/{self.namespace.name}/pods/{pod}/eviction"
        wanted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        self.namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(wanted))

    def _tell(self, member: str, words: str) -> None:
        """Have the member's program end itself."""
        pod = self.namespace.pods(JOB)[member]["metadata"]["name"]
        self._exec(pod, "worker", "sh", "-c", f"echo {words} > /tmp/trouble")
        self.namespace.signal_worker(JOB, member, "SIGUSR1")

    def _exec(self, pod: str, container: str, *words: str) -> None:
        self.namespace.kubectl("exec", pod, "-c", container, "--", *words)

    def _end_beside(self, pod: str) -> None:
        try:
            self._exec(pod, "beside", "touch", "/tmp/stop")
        except KubectlFailed as problem:
            if "exit code 137" not in str(problem):  # the container was faster, and `touch` ended with it
                raise

    def _deadline(self, pod: str) -> None:
        self.namespace.kubectl("patch", "pod", pod, "-p", '{"spec": {"activeDeadlineSeconds": 1}}')

    def _ended_and_deleted(self, member: str, pod: str) -> None:
        self._tell(member, "exit 0")
        self._delete(pod)

    def _preempt(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        """A pod of a higher class that can't be where this member is: the scheduler makes room for it."""
        kind = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": PRIORITY},
            "value": 1000,
        }
        labels = {"rljob.dev/job": JOB, "rljob.dev/member": member}
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        container = trouble.template(self._image)["spec"]["containers"][1]
        spec = {
            "priorityClassName": PRIORITY,
            "nodeSelector": {"kubernetes.io/hostname": before.node},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        lasting.callback(self._delete_by_force, "preemptor")
        self.namespace.apply(kind, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "preemptor"}, "spec": spec})

    def _init_container_fails(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        """The pod goes, and the one that follows it never comes to its program."""
        self.namespace.apply(trouble.config_map(init_fails=True))
        time.sleep(KUBELET_HEARS_SECONDS)
        lasting.callback(self.namespace.apply, trouble.config_map())
        self._delete(pod)

    def _owner_reference_off(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        """It has the labels still, and would be taken for the other one."""
        self._patch_metadata(pod, {"ownerReferences": None})
        time.sleep(5.0)
        self._delete_by_force(pod)

    def _foreign_finalizer(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        self._patch_metadata(pod, {"finalizers": ["example.com/keep"]})
        lasting.callback(self._patch_metadata, pod, {"finalizers": None})
        self._delete(pod)

    def _patch_metadata(self, pod: str, change: dict[str, Any]) -> None:
        self.namespace.kubectl("patch", "pod", pod, "--type=merge", "-p", json.dumps({"metadata": change}))

    def _image_changed(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        """The kubelet ends the container, to start it with an image that it does not get."""
        self.namespace.kubectl("set", "image", f"pod/{pod}", "worker=rljob-worker:no-such-image")

    def _drain(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        lasting.callback(self.namespace.kubectl, "uncordon", before.node)
        words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={nodes.DRAIN_SECONDS}s")
        selector = f"--pod-selector=rljob.dev/job={JOB}"
        self.namespace.kubectl("drain", before.node, selector, *words, seconds=nodes.DRAIN_SECONDS + 30)

    def _cordon(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        lasting.callback(self.namespace.kubectl, "uncordon", before.node)
        self.namespace.kubectl("cordon", before.node)

    def _node_gone(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        lasting.enter_context(nodes.gone(self.namespace, before.node))

    def _node_silent(self, member: str, pod: str, before: Before, lasting: ExitStack) -> None:
        """Long enough for the cluster to say so, and too short for it to move anything."""
        with nodes.without(self.namespace, before.node, "kubelet"):
            nodes.wait_ready(self.namespace, before.node, "Unknown")

    def _delete_by_force(self, pod: str) -> None:
        with suppress(KubectlFailed):
            self._delete(pod, "--force", "--grace-period=0", "--ignore-not-found")
