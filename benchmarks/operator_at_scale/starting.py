"""How long jobs take to be there: a thousand at once, one after the other, and those of an experiment."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping

from rljob.api import parse_job
from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.resources import PODS, RLEXPERIMENTS, RLJOBS, resource_of
from rljob_operator.kube.job.observe import settings_of_start
from rljob_operator.kube.render.children import Secrets, children as rendered
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings

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
from benchmarks.operator_at_scale.jobs import PODS_BESIDE_ACTORS, experiment, job
from benchmarks.operator_at_scale.process import calls_between

LONGEST_SECONDS = 900.0
ACTORS = 2


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
    of_one = await _children_of_one(bench)
    _check(made, {kind: count * bench.jobs for kind, count in of_one.items()} | {"pods": wanted})
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
    objects, all_pods, wanted_children = [], [], await _children_of_one(bench)
    async with followed(bench.client, bench.namespace, (PODS, pods), *others.items()):
        for number in range(rounds):
            name = f"single-{number}"
            began = time.monotonic()
            await bench.client.create(RLJOBS, job(bench.namespace, name, actors))

            def times(seen: Seen, wanted: str = name) -> list[float]:
                return [moment for each, moment in seen.created.items() if seen.job_of[each] == wanted]

            await until("all pods of one job", lambda: len(times(pods)) == PODS_BESIDE_ACTORS + actors, LONGEST_SECONDS)
            found = {resource.plural: times(seen) for resource, seen in others.items()}
            assert all(len(found[kind]) == count for kind, count in wanted_children.items()), found
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


async def of_an_experiment(bench: Bench, runs: int = 100) -> Figures:
    """From the moment that an experiment is sent, which has all its runs play at the same time, until every pod of them is ready;
    then it is deleted."""
    name, wanted = "many", runs * (PODS_BESIDE_ACTORS + ACTORS)
    jobs, pods = Seen(), Seen(pod_ready)

    def times(of: dict[str, float]) -> list[float]:
        return [moment for each, moment in of.items() if each.startswith(f"{name}-")]

    async with followed(bench.client, bench.namespace, (RLJOBS, jobs), (PODS, pods)):
        before, began = bench.operator.figures(), time.monotonic()
        await bench.client.create(RLEXPERIMENTS, experiment(bench.namespace, name, runs, ACTORS))
        await until(f"{wanted} pods being ready", lambda: len(times(pods.ready)) >= wanted, LONGEST_SECONDS)
        figures = await asyncio.to_thread(bench.operator.figures)
        await bench.client.delete(RLEXPERIMENTS, bench.namespace, name, propagation="Background")
        await until("its runs going", lambda: not any(each.startswith(name) for each in jobs.there), LONGEST_SECONDS)
    assert len(times(jobs.created)) == runs, "one was made twice, or another in its place"
    return {
        "runs": runs,
        "pods": wanted,
        "seconds_until_runs_created": max(times(jobs.created)) - began,
        "seconds_until_pods_created": max(times(pods.created)) - began,
        "seconds_until_pods_ready": max(times(pods.ready)) - began,
        "operator_cpu_seconds": figures["process_cpu_seconds_total"] - before["process_cpu_seconds_total"],
        "operator_memory_mb": memory_mb(figures),
        "load": load(),
    }


async def _children_of_one(bench: Bench) -> Counter[str]:
    """The objects that a job has besides its pods, by kind. Whether there is a claim for checkpoints depends on the cluster: the
    operator makes one where a claim gets a StorageClass."""
    owned = Owned(parse_job(job(bench.namespace, "rendered", ACTORS)), "of-no-object")
    settings = await settings_of_start(bench.client, owned, Settings(image="of-no-matter"), {}, 0.0)
    secrets = Secrets(dict.fromkeys(Role, ""), "")
    return Counter(resource_of(each).plural for each in rendered(owned, secrets, settings))


def _check(made: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Nothing is missing and nothing doubled."""
    wrong = {kind: made[kind] for kind, count in expected.items() if made[kind] != count}
    assert not wrong, f"expected {expected}, found {wrong}"


def _reconciles(figures: dict[str, float]) -> float:
    return sum(value for name, value in figures.items() if name.startswith("rljob_operator_reconciles_total{"))
