"""The operator's memory over an hour with a hundred running jobs, of which some come and go, sampled every minute.

    KUBEBUILDER_ASSETS=... unshare --net python -m benchmarks.operator_hour --jobs 100 --minutes 60

It needs an API server and etcd alone, which it starts: pods are run by a stand-in for kubelets, and one server answers for all
learners with ever new samples, at addresses that are made this machine's own (Linux, as root; in a network namespace of its own
no other client sees them). The operator is a process, as the command ``rljob operator``. Every minute one job is deleted, another
one is made, and an actor of a third fails and is started again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS

from benchmarks.common import machine, report
from benchmarks.operator_at_scale.bench import control_plane_seconds, load, memory_mb
from benchmarks.operator_at_scale.cluster import condition
from benchmarks.operator_at_scale.jobs import METRICS_PORT, job
from benchmarks.operator_at_scale.kubelet import Kubelets, kubelets
from benchmarks.operator_at_scale.process import Operator, calls_between, learners, operator
from benchmarks.operator_at_scale.running import STATUS_WRITES
from tests.cluster.conftest import made_namespace
from tests.cluster.control_plane import CRD_FILE, ControlPlane

ACTORS = 2
ADDRESSES = "10.240.0.0/16"
WORKERS = 16
START_SECONDS = 0.5
"""Between one job and the next at the start: a job costs half of it as processor time of all programs."""
LOOK_SECONDS = 2.0
SETTLED_MINUTES = 5
"""Until then jobs come up, and whatever is made once a process."""


async def watched(client: Client, namespace: str, process: Operator, options: argparse.Namespace) -> None:
    """A line for the start, one each minute, and one for all at the end."""
    looks: list[tuple[float, float]] = []
    jobs, minutes = options.jobs, options.minutes
    async with kubelets(client, namespace, ADDRESSES) as nodes:
        first = before = await _started(client, namespace, process, jobs, options.apart)
        began = time.monotonic()
        for minute in range(1, minutes + 1):
            await asyncio.sleep(max(0.0, began + 60.0 * minute - time.monotonic()))
            now = await asyncio.to_thread(process.figures)
            found = (await client.list(RLJOBS, namespace)).items
            running = sum(condition(each, "Ready") == "True" for each in found)
            looks.append((minute / 60.0, memory_mb(now)))
            report(
                "operator_hour_minute",
                minute=minute,
                memory_mb=memory_mb(now),
                jobs=len(found),
                jobs_ready=running,
                pods=len(nodes.pods),
                operator_cores=_rate(before, now, "process_cpu_seconds_total"),
                status_writes_a_second=_rate(before, now, STATUS_WRITES),
                open_files=now["process_open_fds"],
                load=load(),
            )
            before = now
            if minute < minutes and not options.still:
                await _comes_and_goes(client, namespace, nodes, minute, jobs)
    settled = [look for look in looks if look[0] * 60.0 > SETTLED_MINUTES] or looks
    calls = calls_between(first, before)
    report(
        "operator_hour",
        jobs=jobs,
        minutes=minutes,
        memory_mb_at_first=settled[0][1],
        memory_mb_at_last=settled[-1][1],
        memory_mb_least=min(each for _, each in settled),
        memory_mb_most=max(each for _, each in settled),
        memory_mb_an_hour=statistics.linear_regression(*zip(*settled, strict=True)).slope,
        last_half_mb_an_hour=statistics.linear_regression(*zip(*settled[(len(settled) - 1) // 2 :], strict=True)).slope,
        calls=calls,
        errors_in_the_operators_log=[line for line in process.log().splitlines() if " ERROR " in line][:10],
    )


async def _started(client: Client, namespace: str, process: Operator, jobs: int, apart: float) -> dict[str, float]:
    """The operator's figures once all jobs are up; what that has cost is reported."""
    before, others = await asyncio.to_thread(process.figures), control_plane_seconds()
    began, ready = time.monotonic(), 0
    for number in range(jobs):
        await client.create(RLJOBS, job(namespace, f"job-{number}", ACTORS))
        await asyncio.sleep(apart)
    while ready < jobs:
        await asyncio.sleep(LOOK_SECONDS)
        found = (await client.list(RLJOBS, namespace)).items
        ready = sum(condition(each, "Ready") == "True" for each in found)
    now, others_now = await asyncio.to_thread(process.figures), control_plane_seconds()
    calls = calls_between(before, now)
    spent = now["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    report(
        "operator_hour_start",
        jobs=jobs,
        seconds=time.monotonic() - began,
        operator_cpu_milliseconds_a_job=1e3 * spent / jobs,
        others_cpu_milliseconds_a_job={
            name: round(1e3 * (seconds - others.get(name, 0.0)) / jobs, 1) for name, seconds in others_now.items()
        },
        calls_a_job=sum(calls.values()) / jobs,
        calls=calls,
        memory_mb=memory_mb(now),
        load=load(),
    )
    return now


async def _comes_and_goes(client: Client, namespace: str, nodes: Kubelets, minute: int, jobs: int) -> None:
    await nodes.delete_job(f"job-{minute - 1}")
    await client.create(RLJOBS, job(namespace, f"job-{jobs + minute - 1}", ACTORS))
    fails = f"job-{minute + jobs // 2}-actor-0-"
    for name in [each for each in nodes.pods if each.startswith(fails)]:
        await nodes.fail(name)


def _rate(before: dict[str, float], now: dict[str, float], name: str) -> float:
    """The rate of a counter, over about a minute."""
    return (now.get(name, 0.0) - before.get(name, 0.0)) / 60.0


async def measured(options: argparse.Namespace, servers: ControlPlane, namespace: str, log: Path) -> None:
    client: Any = Client(await load_access(str(servers.kubeconfig)))
    try:
        with learners(METRICS_PORT, ADDRESSES), operator((namespace,), log, WORKERS) as process:
            async with asyncio.TaskGroup() as group:
                ends = group.create_task(process.watch())
                await watched(client, namespace, process, options)
                ends.cancel()
    finally:
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--apart", type=float, default=START_SECONDS, help="seconds between two jobs at the start")
    parser.add_argument("--still", action="store_true", help="no job comes, goes or fails")
    parser.add_argument("--operator-log", type=Path, help="file for what the operator says")
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("--minutes: two at least, or there is no slope")
    report("machine", **machine())
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        servers = ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]).absolute(), Path(scratch))
        try:
            servers.start()
            servers.kubectl("apply", "-f", str(CRD_FILE))
            servers.kubectl("wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s")
            os.environ["KUBECONFIG"] = str(servers.kubeconfig)
            with made_namespace(servers) as namespace:
                log = options.operator_log or Path(scratch) / "operator.log"
                asyncio.run(measured(options, servers, namespace, log))
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
