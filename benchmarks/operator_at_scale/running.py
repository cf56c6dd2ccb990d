"""What a thousand running jobs cost: writes of the status, processor time and memory, with learners that answer and without."""

from __future__ import annotations

import asyncio
import statistics
import time
import tracemalloc

from rljob_operator.kube.apiserver.resources import PODS
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import PodCache

from benchmarks.operator_at_scale.bench import Bench, Figures, load, memory_mb

STATUS_WRITES = 'rljob_operator_api_calls_total{code="200",resource="rljobs/status",verb="patch"}'
SETTLING_SECONDS = 60.0
"""After every learner was started, or fell silent, until what is written of it has been."""


async def status_writes(bench: Bench, seconds: float) -> Figures:
    """A stretch with answers, the stretch in which all learners fall silent, and one with none answering."""
    found: Figures = {"jobs": bench.jobs}
    await asyncio.sleep(SETTLING_SECONDS)
    found["answering"] = await _stretch(bench, seconds)
    if bench.learners is not None:
        bench.learners.be_silent()
        found["falling_silent"] = await _stretch(bench, SETTLING_SECONDS)
        found["silent"] = await _stretch(bench, seconds)
    found["load"] = load()
    return found


async def memory(bench: Bench, seconds: float, look_seconds: float = 10.0) -> Figures:
    """The operator's resident memory over time, and what a pod in its cache takes."""
    looks: list[tuple[float, float]] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds or len(looks) < 2:
        looks.append((passed / 60.0, memory_mb(await asyncio.to_thread(bench.operator.figures))))
        await asyncio.sleep(look_seconds)
    page = await bench.client.list(PODS, bench.scope, label_selector=names.SELECTOR)
    return {
        "minutes": passed / 60.0,
        "memory_mb_first": looks[0][1],
        "memory_mb_last": looks[-1][1],
        "memory_mb_most": max(each for _, each in looks),
        "memory_mb_a_minute": _slope(looks),
        "kib_a_cached_pod": _bytes_a_pod(page.items) / 1024,
        "cached_pods": len(page.items),
        "load": load(),
    }


async def _stretch(bench: Bench, seconds: float) -> Figures:
    before, began = await asyncio.to_thread(bench.operator.figures), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = await asyncio.to_thread(bench.operator.figures), time.monotonic() - began

    def rate(name: str) -> float:
        return (after.get(name, 0.0) - before.get(name, 0.0)) / passed

    def rates(prefix: str) -> float:
        return sum(rate(name) for name in after if name.startswith(prefix))

    return {
        "seconds": passed,
        "status_writes_a_second": rate(STATUS_WRITES),
        "api_calls_a_second": rates("rljob_operator_api_calls_total{"),
        "turns_a_second": rates("rljob_operator_reconciles_total{"),
        "operator_cores": rate("process_cpu_seconds_total"),
        "queue_depth_at_the_end": after["rljob_operator_jobs_waiting"],
        "memory_mb": memory_mb(after),
    }


def _slope(looks: list[tuple[float, float]]) -> float:
    """The slope of the straight line through them, by least squares."""
    return statistics.linear_regression(*zip(*looks, strict=True)).slope


def _bytes_a_pod(pods: list[dict[str, object]]) -> float:
    """What the operator's cache takes for each of these pods, in a cache of this process."""
    cache = PodCache(lambda *_: None)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache.replace(None, [cache.keep(pod) for pod in pods])
        return (tracemalloc.get_traced_memory()[0] - before) / max(1, len(cache))
    finally:
        tracemalloc.stop()
