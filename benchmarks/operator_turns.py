"""What the operator's own turns cost until a job runs: processor time of one process, without an API server or a network.

    python -m benchmarks.operator_turns --jobs 60 --profile 40

Objects are kept in memory; every request and answer is made JSON and read again, as on a connection. Beside what this counts, the
operator's process has its connections and its watches. Prints one JSON line, and with ``--profile`` the functions that took most.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import time
from collections import Counter
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, NotFound
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.apiserver.transport import Call
from rljob_operator.kube.job.status_writer import SEEN_SECONDS
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.kopf_watch import kept
from rljob_operator.kube.watch.pods import trim

from benchmarks.common import machine, report
from benchmarks.operator_at_scale.jobs import job
from tests.cluster.reconciling import Run

NAMESPACE = "jobs"
ACTORS = 2
LOOK_SECONDS = 1.0
LOOKS = 12
"""At every second one the pods that wait have come up: a shard, a learner, the actors; then what may wait is written."""


class InMemory(Client):
    """An API server as far as a job's start needs one: it stores what it is sent, and judges nothing."""

    def __init__(self) -> None:
        super().__init__(Access(Configuration(host="http://nowhere"), NAMESPACE, None, None))
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: Counter[str] = Counter()
        self._version = 0

    async def _ask(self, call: Call, timeout_seconds: float | None = None) -> Object:
        body = json.loads(json.dumps(call.body)) if call.body is not None else None
        self.calls[f"{call.verb} {call.counted_as}{' (dry run)' if 'dryRun' in call.query else ''}"] += 1
        return dict(json.loads(json.dumps(self._answer(call, body))))

    def of(self, plural: str) -> list[Object]:
        return [each for (kind, _), each in self.objects.items() if kind == plural]

    def _answer(self, call: Call, body: Any) -> Object:
        plural = call.counted_as.split("/")[0]
        if call.verb == "create":
            place = plural, body["metadata"].get("name", "")
            if place in self.objects:
                raise AlreadyExists(place[1], code=409)
            return body if "dryRun" in call.query else self._stored(place, body)
        place = plural, call.path.removesuffix("/status").rpartition("/")[2]
        if place not in self.objects:
            raise NotFound(place[1], code=404)
        before = self.objects[place]
        if call.verb == "get":
            return before
        assert call.verb == "patch", call.verb
        return self._stored(place, {**before, "status": _patched(before.get("status") or {}, body["status"])})

    def _stored(self, place: tuple[str, str], document: Object) -> Object:
        self._version += 1
        about = {"uid": f"uid-{self._version}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        about |= {**document["metadata"], "resourceVersion": str(self._version)}
        self.objects[place] = {**document, "metadata": {**about, "generation": 1}}
        return self.objects[place]


def _patched(before: Object, change: Object) -> Object:
    """What a JSON merge patch makes of it."""
    found = {**before, **change}
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            found[name] = _patched(before[name], value)
    return {name: value for name, value in found.items() if value is not None}


def watched(server: InMemory, run: Run) -> None:
    """What the operator's watches would have brought by now."""
    run.jobs = {each["metadata"]["name"]: kept(each) for each in server.of(RLJOBS.plural)}
    run.pods.replace(NAMESPACE, [trim(each) for each in server.of(PODS.plural)])


def run_pods(server: InMemory) -> None:
    """What kubelets would say of pods that are there."""
    for pod in server.of(PODS.plural):
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        worker = {"name": names.WORKER, "ready": True, "started": True, "state": state, "restartCount": 0}
        pod["spec"]["nodeName"] = "node-1"
        pod["status"] = {"phase": "Running", "podIP": "10.1.0.7", "containerStatuses": [worker]}


async def brought_up(server: InMemory, jobs: int) -> float:
    """Processor time of the turns until all jobs run, in seconds."""
    began, passed = time.time(), 0.0
    run = Run(server, NAMESPACE, now=lambda: began + passed, monotonic=lambda: passed, seen_seconds=SEEN_SECONDS)
    for number in range(jobs):
        await server.create(RLJOBS, job(NAMESPACE, f"job-{number}", ACTORS))
    server.calls.clear()
    spent = 0.0
    for look in range(LOOKS):
        watched(server, run)
        before = time.process_time()
        for number in range(jobs):
            await run.reconciler.reconcile((NAMESPACE, f"job-{number}"))
        spent += time.process_time() - before
        passed += LOOK_SECONDS
        if look % 2:  # before, a turn that merely sees the new pods
            run_pods(server)
    running = [each for each in server.of(RLJOBS.plural) if each["status"]["actors"]["ready"] == ACTORS]
    assert len(running) == jobs, f"{len(running)} of {jobs} jobs run"
    return spent


async def measured(jobs: int, profiled: cProfile.Profile | None) -> dict[str, Any]:
    server = InMemory()
    try:
        await brought_up(server, 1)  # whatever is made once a process
        server.objects.clear()
        if profiled is not None:
            profiled.enable()
        spent = await brought_up(server, jobs)
        if profiled is not None:
            profiled.disable()
    finally:
        await server.close()
    status = json.dumps(server.of(RLJOBS.plural)[0]["status"])
    calls = {what: round(count / jobs, 2) for what, count in sorted(server.calls.items())}
    return {
        "jobs": jobs,
        "milliseconds_a_job": 1e3 * spent / jobs,
        "calls_a_job": sum(server.calls.values()) / jobs,
        "calls": calls,
        "bytes_of_a_status": len(status),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--profile", type=int, default=0, metavar="LINES", help="so many functions, and dearer figures")
    options = parser.parse_args()
    profiled = cProfile.Profile() if options.profile else None
    report("operator_turns", **asyncio.run(measured(options.jobs, profiled)), machine=machine())
    if profiled is not None:
        pstats.Stats(profiled).sort_stats("tottime").print_stats(options.profile)


if __name__ == "__main__":
    main()
