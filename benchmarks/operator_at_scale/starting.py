"""How long jobs take to be there: a thousand at once, and one after the other."""

from __future__ import annotations

import asyncio
import itertools
import time

from rljob_operator.kube.apiserver.resources import PODS, RLJOBS

from benchmarks.operator_at_scale.bench import AT_ONCE, Bench, Figures, control_plane_seconds, load, memory_mb, spread
from benchmarks.operator_at_scale.cluster import (
    CHILDREN,
    Seen,
    children,
    condition,
    created,
    deleted,
    followed,
    pod_ready,
    until,
)
from benchmarks.operator_at_scale.jobs import PODS_BESIDE_ACTORS, job
from benchmarks.operator_at_scale.process import calls_between

LONGEST_SECONDS = 900.0
ACTORS = 2
_CHILDREN_OF_ONE = {
    "serviceaccounts": 1,
    "configmaps": 1,
    "services": 1,
    "networkpolicies": 1,
    "persistentvolumeclaims": 1,
}


async def all_at_once(bench: Bench) -> Figures:
    """All jobs are created as fast as the API server takes them; they stay."""
    pods, jobs = Seen(pod_ready), Seen(lambda each: condition(each, "Ready") == "True")
    wanted = bench.jobs * (PODS_BESIDE_ACTORS + ACTORS)
    async with followed(bench.client, bench.scope, (PODS, pods), (RLJOBS, jobs)):
        before, others, began = bench.operator.figures(), control_plane_seconds(), time.monotonic()
        places = itertools.cycle(bench.namespaces)
        named = zip(places, range(bench.jobs), strict=False)
        await created(bench.client, (job(place, f"job-{number}", ACTORS) for place, number in named), AT_ONCE)
        stored = time.monotonic() - began
        await until(
            f"{wanted} pods and {bench.jobs} jobs being ready",
            lambda: len(pods.ready) >= wanted and len(jobs.ready) >= bench.jobs,
            LONGEST_SECONDS,
        )
        figures, others_now = await asyncio.to_thread(bench.operator.figures), control_plane_seconds()
    made = await children(bench.client, bench.scope)
    _check(made, bench.jobs, wanted)
    calls = calls_between(before, figures)
    return {
        "jobs": bench.jobs,
        "namespaces": len(bench.namespaces),
        "pods": wanted,
        "seconds_until_jobs_stored": stored,
        "seconds_until_pods_created": max(pods.created.values()) - began,
        "seconds_until_pods_ready": max(pods.ready.values()) - began,
        "seconds_until_jobs_say_ready": max(jobs.ready.values()) - began,
        "seconds": max(*pods.ready.values(), *jobs.ready.values()) - began,
        "objects": made,
        "calls_a_job": sum(calls.values()) / bench.jobs,
        "calls": calls,
        "pods_tried_by_dry_run": calls.get("create pods", 0) - wanted,
        "turns_a_job": (_reconciles(figures) - _reconciles(before)) / bench.jobs,
        "operator_cpu_seconds": figures["process_cpu_seconds_total"] - before["process_cpu_seconds_total"],
        "control_plane_cpu_seconds": {name: now - others.get(name, 0.0) for name, now in others_now.items()},
        "operator_memory_mb": memory_mb(figures),
        "load": load(),
    }


async def one_by_one(bench: Bench, rounds: int, actors: int = 4) -> Figures:
    """From the moment that a job is sent to the last of its objects, and of its pods, on an otherwise idle operator."""
    pods, others = Seen(), {resource: Seen() for resource in CHILDREN}
    objects, all_pods = [], []
    async with followed(bench.client, bench.namespace, (PODS, pods), *others.items()):
        for number in range(rounds):
            name = f"single-{number}"
            began = time.monotonic()
            await bench.client.create(RLJOBS, job(bench.namespace, name, actors))

            def times(seen: Seen, wanted: str = name) -> list[float]:
                return [moment for each, moment in seen.created.items() if seen.job_of[each] == wanted]

            await until("all pods of one job", lambda: len(times(pods)) == PODS_BESIDE_ACTORS + actors, LONGEST_SECONDS)
            found = {resource.plural: times(seen) for resource, seen in others.items()}
            assert all(len(found[kind]) == count for kind, count in _CHILDREN_OF_ONE.items()), found
            objects.append(max(moment for moments in found.values() for moment in moments) - began)
            all_pods.append(max(times(pods)) - began)
            await deleted(bench.client, bench.namespace, [name])
            await until("its pods going", lambda: not pods.there, LONGEST_SECONDS)
    return {
        "rounds": rounds,
        "actors": actors,
        "all_objects_but_pods": spread(objects),
        "all_pods_too": spread(all_pods),
        "load": load(),
    }


def _check(made: dict[str, int], jobs: int, pods: int) -> None:
    """Nothing is missing and nothing doubled."""
    expected = {kind: count * jobs for kind, count in _CHILDREN_OF_ONE.items()} | {"pods": pods}
    wrong = {kind: made[kind] for kind, count in expected.items() if made[kind] != count}
    assert not wrong, f"expected {expected}, found {wrong}"
    assert made["secrets"] % jobs == 0, made


def _reconciles(figures: dict[str, float]) -> float:
    return sum(value for name, value in figures.items() if name.startswith("rljob_operator_reconciles_total{"))
