"""The cluster that tests are given, with a namespace of their own; and jobs for a small one, whose pods share cores."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

LONG_SECONDS = 240.0
"""For what a busy machine of two cores still does in time. What is asserted is order, cause and count, never how long."""
OURS = "app.kubernetes.io/managed-by=rljob"
CHILDREN = "pods,services,secrets,configmaps,persistentvolumeclaims,networkpolicies"
SIGNAL_WORKER = (
    "import os, signal, sys\n"
    "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
    "    if open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1] == '1':\n"
    "        os.kill(int(pid), signal.Signals[sys.argv[1]])\n"
)
"""Run in a worker's container: signals what its first process has started. The first one itself takes no SIGKILL from inside."""

Object = dict[str, Any]

CHECKPOINTS = "checkpoints"
"""The claim that `checkpoint_claim` makes and `apex` writes to."""
SHARED = os.environ.get("RLJOB_E2E_SHARED_CLASS", "shared")
"""The StorageClass whose volumes are not bound to a node."""


class KubectlFailed(Exception):
    """``str()`` is what kubectl said."""


class Namespace:
    """One namespace of the cluster."""

    def __init__(self, kubeconfig: Path, name: str) -> None:
        self.kubeconfig, self.name = kubeconfig, name

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = LONG_SECONDS) -> str:
        """What it prints. Raises `KubectlFailed`."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", f"--namespace={self.name}", *words]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds)
        if ended.returncode:
            raise KubectlFailed(f"{' '.join(words)}: {ended.stderr.strip()}")
        return ended.stdout

    def apply(self, *documents: Mapping[str, Any]) -> None:
        for document in documents:
            self.kubectl("apply", "-f", "-", stdin=json.dumps(document))

    def get(self, kind: str, name: str) -> Object | None:
        """The object; None where there is none."""
        text = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text else None

    def list(self, kinds: str, selector: str = "") -> list[Object]:
        """In the order of names."""
        return list(json.loads(self.kubectl("get", kinds, "-o", "json", f"--selector={selector}"))["items"])

    def job_status(self, job: str) -> Object:
        return dict((self.get("rljob", job) or {}).get("status") or {})

    def condition(self, job: str, type: str) -> Object:
        """The condition of a type; empty while nothing was said about it."""
        return next((each for each in self.job_status(job).get("conditions", ()) if each["type"] == type), {})

    def wait_for(self, job: str, type: str, status: str, reason: str = "") -> Object:
        """The condition, once it has this status and reason."""

        def found() -> Object | None:
            known = self.condition(job, type)
            return known if known.get("status") == status and reason in ("", known.get("reason")) else None

        return eventually(
            found,
            lambda: f"{job} {type} is {self.condition(job, type)}, not {status} {reason}",
            LONG_SECONDS,
            pause,
        )

    def train(self, *documents: Mapping[str, Any]) -> None:
        """Apply them, and wait until the last one, a job, is up and its learner makes updates."""
        self.apply(*documents)
        job = str(documents[-1]["metadata"]["name"])
        self.wait_for(job, "Ready", "True")
        self.wait_updates(job)

    def suspend(self, job: str, **spec: Any) -> None:
        """Suspend it, with other changes of its spec, and wait until it is."""
        self.patch(job, {"suspend": True, **spec})
        self.wait_for(job, "Suspended", "True", "UserRequested")

    def resume(self, job: str) -> None:
        """Resume it, and wait until it is up."""
        self.patch(job, {"suspend": False})
        self.wait_for(job, "Ready", "True")

    def wait_actors(self, job: str, count: int) -> None:
        """Until so many actors are ready."""
        eventually(
            lambda: self.job_status(job)["actors"]["ready"] == count,
            lambda: f"{job}: actors are {self.job_status(job)['actors']}, wanted {count}",
            LONG_SECONDS,
            pause,
        )

    def wait_updates(self, job: str, more_than: int = 0) -> None:
        """Until the learner has made more updates than these, as the learner itself says."""
        eventually(
            lambda: self.learner_figures(job).get("updates", 0) > more_than,
            lambda: f"{job}: learner says {self.learner_figures(job)}, wanted more than {more_than} updates",
            LONG_SECONDS,
            pause,
        )

    def learner_figures(self, job: str) -> Object:
        """What the learner says of itself on its port; empty while it does not answer."""
        learner = self.pods(job).get("learner")
        if learner is None:
            return {}
        code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9090/status', timeout=5).read().decode())"
        try:
            text = self.kubectl("exec", learner["metadata"]["name"], "-c", "worker", "--", "python3", "-c", code)
        except KubectlFailed:
            return {}
        return dict(json.loads(text))

    def pods(self, job: str, role: str = "") -> dict[str, Object]:
        """Member -> its pod, of those that have not been asked to go."""
        selector = f"rljob.dev/job={job}" + (f",rljob.dev/role={role}" if role else "")
        return {
            pod["metadata"]["labels"]["rljob.dev/member"]: pod
            for pod in self.list("pods", selector)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def uids(self, job: str) -> dict[str, str]:
        """Member -> uid of its pod."""
        return {member: pod["metadata"]["uid"] for member, pod in self.pods(job).items()}

    def all_pods(self, job: str) -> list[Object]:
        return self.list("pods", f"rljob.dev/job={job}")

    def log(self, job: str, member: str) -> str:
        """What the member's worker has printed so far."""
        pod = self.pods(job).get(member)
        if pod is None:
            return ""
        try:
            return self.kubectl("logs", pod["metadata"]["name"], "-c", "worker")
        except KubectlFailed:
            return ""  # its container has not started

    def signal_worker(self, job: str, member: str, name: str) -> None:
        """Send the member's process a signal by its name."""
        pod = self.pods(job)[member]["metadata"]["name"]
        try:
            self.kubectl("exec", pod, "-c", "worker", "--", "python3", "-c", SIGNAL_WORKER, name)
        except KubectlFailed as failed:  # the container's end was faster, and took this program along
            if not str(failed).endswith("exit code 137"):
                raise

    def patch(self, job: str, spec: Mapping[str, Any]) -> None:
        self.kubectl("patch", "rljob", job, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete_jobs(self) -> None:
        """All of them, until nothing is left of any; experiments first, which would make theirs again."""
        self.kubectl("delete", "rlexperiments", "--all", "--wait=false")
        self.kubectl("delete", "rljobs", "--all", "--wait=false")
        self.wait_empty()

    def wait_empty(self) -> None:
        """Until nothing that the operator makes is there."""
        eventually(
            lambda: not self.list(f"rljobs,{CHILDREN}", OURS) and not self.list("rljobs"),
            lambda: f"left: {self.names(f'rljobs,{CHILDREN}')}",
            LONG_SECONDS,
            pause,
        )

    def names(self, kinds: str) -> list[str]:
        """``Kind/name`` of what the operator made."""
        return [f"{each['kind']}/{each['metadata']['name']}" for each in self.list(kinds, OURS)]

    def describe(self) -> str:
        """What is there, for a reader who asks why a test failed."""
        words = []
        for command in (
            ("get", "rlexperiments,rljobs,pods,pvc", "-o", "wide"),
            ("get", "rljobs", "-o", "yaml"),
            ("get", "events"),
        ):
            try:
                words.append(self.kubectl(*command)[-6000:])
            except KubectlFailed as problem:
                words.append(str(problem))
        return "\n".join(words)


def pause() -> None:
    """Between two looks at the cluster."""
    time.sleep(0.5)


@contextmanager
def made_namespace(kubeconfig: Path) -> Iterator[Namespace]:
    """A new namespace that admits what Pod Security calls restricted and nothing else."""
    namespace = Namespace(kubeconfig, f"rljob-e2e-{secrets.token_hex(3)}")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace.kubectl(
        "create", "-f", "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name, "labels": labels}}),
    )  # fmt: skip
    try:
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", namespace.name, "--wait=false", "--ignore-not-found")


def job(name: str, **spec: Any) -> Object:
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": spec}


def requests(cpu: str = "50m", memory: str = "256Mi") -> Object:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


def example(name: str, **spec: Any) -> Object:
    """One of ``manifests/examples``, with requests that a small cluster has room for, and what else is given."""
    found = dict(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()))
    for role in ("actors", "learner", "evaluator"):
        found["spec"][role] = {**found["spec"].get(role, {}), **requests(), **spec.pop(role, {})}
    found["spec"] |= spec
    return found


def cartpole(name: str = "cartpole", **spec: Any) -> Object:
    """IMPALA with one actor: solved within a minute."""
    roles = {"actors": {"replicas": 1, **requests()}, "learner": requests(), "evaluator": requests()}
    return job(name, **{"preset": "CartPoleIMPALA", **roles, **spec})


def endless(name: str, **spec: Any) -> Object:
    """IMPALA that has no end of its own."""
    forever = {
        "evaluator": {"enabled": False},
        "successPolicy": {"rawFrames": 1_000_000_000},
        "activeDeadlineSeconds": 86_400,  # the preset's is a quarter of an hour
    }
    return cartpole(name, **{**forever, **spec})


def apex(name: str = "apex", **spec: Any) -> Object:
    """Ape-X without an end: two shards with claims of their own, spot actors, and checkpoints on a claim that outlives pods."""
    return job(
        name,
        **{
            "preset": "CartPoleApeX",
            "actors": {"replicas": 2, "spot": True, **requests()},
            "learner": requests(),
            "replay": {
                "shards": 2,
                "redis": {**requests("20m", "64Mi"), "persistence": {"storage": "1Gi"}},
                **requests(),
            },
            "evaluator": {"enabled": False},
            "successPolicy": {"rawFrames": 1_000_000_000},
            "checkpoint": {"intervalSeconds": 5, "storage": {"persistentVolumeClaim": {"claimName": CHECKPOINTS}}},
            **spec,
        },
    )


def checkpoint_claim() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CHECKPOINTS},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def shared_claim(name: str = CHECKPOINTS) -> Object:
    """A claim that pods of several nodes may have at the same time; the cluster's class for such is named by `SHARED`."""
    found = checkpoint_claim()
    spec = {**found["spec"], "accessModes": ["ReadWriteMany"], "storageClassName": SHARED}
    return {**found, "metadata": {"name": name}, "spec": spec}
