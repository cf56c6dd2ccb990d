"""The operator with a thousand jobs, on nodes that kwok plays: how fast they are there, what they cost, who waits for whom.

    KUBECONFIG=... python -m benchmarks.operator_scale --parts children neighbours start running memory --json figures.json

Needs a cluster with the CRD and nodes as kwok plays them, with the label ``type: kwok`` and the taint ``kwok.x-k8s.io/node``, and
whose kwok says ``started: true`` of a container that runs, as a kubelet does (its own stages leave it out). The operator is a
process of its own, as the command ``rljob operator``.

Fake pods have addresses at which nothing answers. ``--pod-addresses 10.240.0.0/16`` (root, Linux) makes all of them addresses of
the machine that the benchmark runs on, where one server answers for all learners: the operator asks as it always does.

What fake nodes leave out: images, containers, their processes and probes, the CNI, nodes' own load on the API server. So this is
what the operator and a control plane do, and nothing of how long training takes to begin.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client

from benchmarks.common import machine, report
from benchmarks.operator_at_scale import neighbours, running, starting
from benchmarks.operator_at_scale.bench import Bench, Figures
from benchmarks.operator_at_scale.jobs import METRICS_PORT
from benchmarks.operator_at_scale.process import learners, operator
from tests.e2e.cluster import made_namespace

PARTS = ("children", "neighbours", "experiment", "start", "memory", "running")
"""In this order: the later ones work on the jobs that ``start`` leaves."""


def parts_of(options: argparse.Namespace, bench: Bench) -> dict[str, Callable[[], Awaitable[Figures]]]:
    """Every part by its name."""
    return {
        "children": lambda: starting.one_by_one(bench, options.rounds),
        "neighbours": lambda: neighbours.first_pods(bench, options.rounds),
        "experiment": lambda: starting.of_an_experiment(bench),
        "start": lambda: starting.all_at_once(bench),
        "memory": lambda: running.memory(bench, options.minutes * 60.0),
        "running": lambda: running.status_writes(bench, options.seconds),
    }


async def measured(options: argparse.Namespace, namespaces: tuple[str, ...]) -> dict[str, Any]:
    """The figures of every part that was asked for."""
    found: dict[str, Any] = {"machine": machine()}
    client = Client(await load_access())
    stand_in = learners(METRICS_PORT, options.pod_addresses) if options.pod_addresses else nullcontext()
    log_file = Path(options.operator_log or Path(tempfile.mkdtemp()) / "operator.log")
    try:
        with stand_in as answering, operator(namespaces, log_file, options.workers) as process:
            bench = Bench(client, namespaces, process, answering, options.jobs)
            parts = parts_of(options, bench)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(process.watch())
                for name in [each for each in PARTS if each in options.parts]:
                    began = time.monotonic()
                    found[name] = await parts[name]()
                    report(f"operator_scale_{name}", **found[name], took_seconds=time.monotonic() - began)
                watching.cancel()
            problems = [line for line in process.log().splitlines() if " ERROR " in line or "Traceback" in line]
            found["errors_in_the_operators_log"] = problems[:10]
    finally:
        await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs at once, of four pods each")
    parser.add_argument("--namespaces", type=int, default=1, help="that the jobs are spread over")
    parser.add_argument(
        "--rounds", type=int, default=50, help="jobs one after the other, and new jobs beside one that grows"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of each stretch in which writes are counted")
    parser.add_argument("--minutes", type=float, default=10.0, help="in which the memory is looked at")
    parser.add_argument("--workers", type=int, default=16, help="the operator's option")
    parser.add_argument("--pod-addresses", metavar="CIDR", help="addresses of fake pods, to be answered for")
    parser.add_argument("--operator-log", help="file for what the operator says")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    kubeconfig = Path(os.environ["KUBECONFIG"]).absolute()
    with ExitStack() as made:
        namespaces = tuple(made.enter_context(made_namespace(kubeconfig)).name for _ in range(options.namespaces))
        found = asyncio.run(measured(options, namespaces))
    print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def table(found: dict[str, Any]) -> str:
    """Every figure on a line of its own, as Markdown."""
    rows = [f"| {name} | {value} |" for name, value in _flat(found)]
    return "\n".join(["| figure | value |", "|---|---|", *rows])


def _flat(value: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [row for key, each in value.items() for row in _flat(each, f"{path}.{key}" if path else str(key))]
    return [(path, f"{value:.4g}" if isinstance(value, float) else str(value))]


if __name__ == "__main__":
    main()
