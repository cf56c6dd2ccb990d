"""What it costs a job on a cluster that its learner's pod is deleted: the way back by stages, and half an hour with a deletion a
minute.

Needs what tests/e2e need (docs/testing-on-kubernetes.md). No job says where its checkpoints go.

    python -m benchmarks.learner_deleted stages --rounds 3
    python -m benchmarks.learner_deleted often --minutes 30 --every 60

``stages``: seconds from the request to delete a learner's pod to the first update after it, for IMPALA and for Ape-X, and the
updates before and after. ``often``: three jobs side by side whose learners are held at one pace, so that none wants more than
there is: one is left alone, one has its learner deleted, one has it deleted by force, half a period later. Learner-seconds are
lost from each deletion until the learner is beyond the updates that it had then: what it waited, and what it did again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster_start import api
from tests.e2e.cluster import LONG_SECONDS, KubectlFailed, Namespace, endless, made_namespace, requests
from tests.e2e.operator_process import OperatorProcess
from tests.support.slowed import sitecustomize
from tests.support.slowed.sitecustomize import LEARNER_DELAY_FILE
from tests.support.waiting import eventually

LOOK_SECONDS = 0.1
WATCH_SECONDS = 0.5
Read = Callable[[str], Any]

SLOWER = Path(sitecustomize.__file__).read_text()
PACE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "pace"},
    "data": {"seconds": "0.2", "sitecustomize.py": SLOWER},
}
PACED_LEARNER = {
    **requests(),
    "env": [{"name": LEARNER_DELAY_FILE, "value": "/pace/seconds"}, {"name": "PYTHONPATH", "value": "/pace"}],
    "podTemplate": {
        "spec": {
            "volumes": [{"name": "pace", "configMap": {"name": "pace"}}],
            "containers": [{"name": "worker", "volumeMounts": [{"name": "pace", "mountPath": "/pace"}]}],
        }
    },
}


def kinds() -> dict[str, dict[str, Any]]:
    """An endless job of each algorithm, by its name."""
    replay = {"redis": {**requests("20m", "64Mi"), "persistence": {"storage": "1Gi"}}, **requests()}
    return {
        "IMPALA": endless("impala"),
        "Ape-X": endless("apex", preset="CartPoleApeX", replay=replay),
    }


def pod_of(read: Read, job: str) -> dict[str, Any]:
    """The learner's pod that nothing has asked to go; empty where there is none."""
    selector = f"pods?labelSelector=rljob.dev/job%3D{job},rljob.dev/role%3Dlearner"
    found = (read(selector) or {"items": ()})["items"]
    return next((each for each in found if "deletionTimestamp" not in each["metadata"]), {})


def updates_of(read: Read, job: str) -> int | None:
    """What the learner says; None while it does not answer."""
    pod = pod_of(read, job)
    return (read(f"pods/{pod['metadata']['name']}:9090/proxy/status") or {}).get("updates") if pod else None


# ---------------------------------------------------------------------------------------------------------------- stages


def stages(namespace: Namespace, read: Read, job: str) -> dict[str, float]:
    """Seconds of each stage of one gentle deletion, and the updates before and after."""
    name = pod_of(read, job)["metadata"]["name"]
    before = updates_of(read, job) or 0
    began = time.time()
    namespace.kubectl("delete", "pod", name, "--wait=false")
    marks: dict[str, float] = {}

    def seen(what: str, condition: Callable[[], object]) -> None:
        eventually(
            condition,
            lambda: f"{job}: no {what}: {namespace.job_status(job)}",
            LONG_SECONDS,
            lambda: time.sleep(LOOK_SECONDS),
        )
        marks[what] = time.time()

    def another() -> bool:
        return bool(pod_of(read, job).get("metadata", {}).get("name", name) != name)

    def runs() -> bool:
        states = (pod_of(read, job).get("status") or {}).get("containerStatuses") or ()
        return any(each["name"] == "worker" and "running" in each["state"] for each in states)

    seen("saved, and another pod made", another)
    seen("node, volume and image", runs)
    seen("answers", lambda: updates_of(read, job) is not None)
    first = updates_of(read, job) or 0
    seen("first update", lambda: (updates_of(read, job) or 0) > first)
    found, last = {"before": float(before), "after": float(first)}, began
    log = lines(namespace, pod_of(read, job)["metadata"]["name"])
    print("\n".join(f"    {at - began:6.2f} {words[:110]}" for at, words in log[:12]))
    for what, at in marks.items():
        found[what], last = at - last, at
    return {**found, "in all": last - began}


def lines(namespace: Namespace, pod: str) -> list[tuple[float, str]]:
    """(Unix seconds, words) of what the worker has printed, by the clock of its node."""
    found = []
    for line in namespace.kubectl("logs", pod, "-c", "worker", "--timestamps").splitlines():
        stamp, _, words = line.partition(" ")
        found.append((datetime.fromisoformat(stamp[:26] + "+00:00").timestamp(), words))
    return found


def show_stages(namespace: Namespace, read: Read, rounds: int) -> None:
    for kind, document in kinds().items():
        job, found = document["metadata"]["name"], []
        namespace.apply(document)
        for _ in range(rounds):
            wait_beyond(read, job, (updates_of(read, job) or 0) + 200)
            found.append(stages(namespace, read, job))
            print(kind, ", ".join(f"{name} {value:,.1f}" for name, value in found[-1].items()), flush=True)
        medians = {
            name: statistics.median(each[name] for each in found)
            for name in found[0]
            if name not in ("before", "after")
        }
        print(
            f"{kind}, median of {rounds}:",
            ", ".join(f"{name} {value:.1f} s" for name, value in medians.items()),
            flush=True,
        )
        namespace.delete_jobs()


def wait_beyond(read: Read, job: str, updates: int) -> None:
    eventually(
        lambda: (updates_of(read, job) or 0) > updates,
        lambda: f"{job} has {updates_of(read, job)} updates, not {updates}",
        LONG_SECONDS,
        lambda: time.sleep(LOOK_SECONDS),
    )


# ----------------------------------------------------------------------------------------------------------------- often


@dataclass
class Followed:
    """One job whose learner is deleted with ``words``; None leaves it alone."""

    job: str
    words: tuple[str, ...] | None
    begun: int = 0
    updates: int = 0
    deletions: int = 0
    lost: list[float] = field(default_factory=list)
    next_deletion: float = 0.0
    deleted: float | None = None
    to_reach: int = 0

    def look(self, read: Read, now: float) -> None:
        updates = updates_of(read, self.job)
        if updates is None:
            return
        self.updates = updates
        if self.deleted is not None and updates > self.to_reach:
            self.lost.append(now - self.deleted)
            self.deleted = None

    def delete(self, namespace: Namespace, read: Read, now: float) -> None:
        if self.words is None:
            return
        pod = pod_of(read, self.job)
        if not pod:
            return
        if self.deleted is None:
            self.deleted, self.to_reach = now, self.updates
        self.deletions += 1
        try:
            namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false", *self.words)
        except KubectlFailed as problem:
            print(problem)


def show_often(namespace: Namespace, read: Read, minutes: float, every: float) -> None:
    followed = [
        Followed("alone", None),
        Followed("gently", ()),
        Followed("by-force", ("--force", "--grace-period=0")),
    ]
    namespace.apply(PACE, *(endless(each.job, learner=PACED_LEARNER) for each in followed))
    for each in followed:
        wait_beyond(read, each.job, 200)
        each.begun = each.updates = updates_of(read, each.job) or 0
    began = time.monotonic()
    for number, each in enumerate(followed):
        each.next_deletion = began + every * (1 + number) / 2
    while (now := time.monotonic()) < began + 60 * minutes:
        for each in followed:
            each.look(read, now)
            if now >= each.next_deletion:
                each.next_deletion += every
                each.delete(namespace, read, now)
                print(f"{now - began:6.0f} s", {each.job: each.updates for each in followed}, flush=True)
        time.sleep(WATCH_SECONDS)
    seconds = time.monotonic() - began
    for each in followed:
        lost = sum(each.lost) + (0.0 if each.deleted is None else time.monotonic() - each.deleted)
        status = namespace.job_status(each.job)
        ends = [c["type"] for c in status["conditions"] if c["type"] in ("Complete", "Failed")]
        print(f"{each.job}: {each.deletions} deletions; {lost:.0f} of {seconds:.0f} learner-seconds lost,", end=" ")
        print(f"{100 * lost / seconds:.1f} %; seconds each: {', '.join(f'{one:.0f}' for one in each.lost)}")
        print(
            f"    updates {each.begun:,} -> {each.updates:,}, {(each.updates - each.begun) / seconds:.1f} a second;",
            end=" ",
        )
        print(f"restarts {status.get('restarts')}; ended: {ends}", flush=True)
    namespace.delete_jobs()


@contextmanager
def looked_after(kubeconfig: Path) -> Iterator[tuple[Namespace, Read]]:
    """A namespace with an operator, and what reads of it."""
    with made_namespace(kubeconfig) as namespace, tempfile.TemporaryDirectory() as scratch:
        operator = OperatorProcess(namespace, Path(scratch) / "log")
        try:
            operator.start()
            with api(namespace) as read:
                yield namespace, read
            operator.stop()
        finally:
            operator.end_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("stages").add_argument("--rounds", type=int, default=3)
    often = kinds.add_parser("often")
    often.add_argument("--minutes", type=float, default=30.0)
    often.add_argument("--every", type=float, default=60.0)
    wanted = parser.parse_args()
    with looked_after(Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute()) as (namespace, read):
        if wanted.kind == "stages":
            show_stages(namespace, read, wanted.rounds)
        else:
            show_often(namespace, read, wanted.minutes, wanted.every)


if __name__ == "__main__":
    main()
