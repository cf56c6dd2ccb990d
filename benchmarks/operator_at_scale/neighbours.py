"""What other jobs notice of one that grows by five hundred actors: how long a new job waits for its first pod meanwhile."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from rljob_operator.kube.apiserver.resources import PODS, RLJOBS

from benchmarks.operator_at_scale.bench import Bench, Figures, load, spread
from benchmarks.operator_at_scale.cluster import Seen, deleted, followed, pod_ready, until
from benchmarks.operator_at_scale.jobs import PODS_BESIDE_ACTORS, job

GROWTH = 500
PAUSE_SECONDS = 0.25
"""Between two new jobs."""
LONGEST_SECONDS = 300.0


async def first_pods(bench: Bench, at_least: int) -> Figures:
    """As many rounds of growth as bring that many new jobs that were sent while it went on, one after the other.

    They start in waves of 32, which is the worst that one job can do to others.
    """
    pods = Seen(pod_ready)
    waits: list[float] = []
    rounds: list[float] = []
    async with followed(bench.client, bench.namespace, (PODS, pods)):
        quiet = [await _first_pod(bench, pods, f"alone-{number}") for number in range(20)]
        while len(waits) < at_least:
            big = f"big-{len(rounds)}"
            await bench.client.create(RLJOBS, job(bench.namespace, big, 1))
            await until("the first actor", partial(_is_up, pods, big), LONGEST_SECONDS)
            began = time.monotonic()
            change = {"spec": {"actors": {"replicas": 1 + GROWTH}}}
            await bench.client.patch(RLJOBS, bench.namespace, big, change)
            while _there(pods, big) < PODS_BESIDE_ACTORS + 1 + GROWTH:
                name = f"small-{len(rounds)}-{len(waits)}"
                waits.append(await _first_pod(bench, pods, name))
                await asyncio.sleep(PAUSE_SECONDS)
                assert time.monotonic() - began < LONGEST_SECONDS, "it does not grow"
            rounds.append(time.monotonic() - began)
            await deleted(bench.client, bench.namespace, [big])
            await until("their pods going", lambda: not pods.there, LONGEST_SECONDS)
    return {
        "actors_added": GROWTH,
        "rounds": len(rounds),
        "seconds_to_add_them": max(rounds),
        "new_jobs_meanwhile": len(waits),
        "first_pod": spread(waits),
        "first_pod_without_growth": spread(quiet),
        "load": load(),
    }


async def _first_pod(bench: Bench, pods: Seen, name: str) -> float:
    """Seconds from the moment that a job is sent to its first pod."""
    began = time.monotonic()
    await bench.client.create(RLJOBS, job(bench.namespace, name, 1))
    await until("the first pod of a job", lambda: name in pods.job_of.values(), LONGEST_SECONDS)
    waited = min(moment for each, moment in pods.created.items() if pods.job_of[each] == name) - began
    await deleted(bench.client, bench.namespace, [name])
    return waited


def _there(pods: Seen, name: str) -> int:
    return sum(job == name for job in pods.job_of.values())


def _is_up(pods: Seen, name: str) -> bool:
    return sum(pods.job_of[each] == name for each in pods.ready) == PODS_BESIDE_ACTORS + 1
