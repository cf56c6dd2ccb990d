"""The operator is upgraded beside twenty running jobs, and killed: pods restarted, seconds without a leader, what is written.

    KUBECONFIG=... python -m benchmarks.operator_upgrade --pod-addresses 10.240.0.0/16 --earlier CHECKOUT --json figures.json

Needs a cluster as `benchmarks.operator_scale` does, whose page says what nodes of kwok leave out, and `kubectl`. The CRD is
applied by this program. Replicas of the operator are processes, two at a time, and elect a leader; a round replaces both as a
Deployment rolls, with the leader first, which makes the longest time without one. After that the leader is killed, as often.

``--earlier``: a checkout of another commit, whose CRD and operator the jobs are started with. Without one both releases are this
commit's and differ in the image of the pods that they would make. A release that is newer for its image alone restarts what it
would make otherwise, if it does: so either way every pod is there to be restarted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client

from benchmarks.common import machine, report
from benchmarks.operator_at_scale.bench import Figures, load
from benchmarks.operator_at_scale.jobs import METRICS_PORT
from benchmarks.operator_at_scale.process import learners
from benchmarks.operator_at_scale.upgrading import Release, Upgrading, measured
from tests.e2e.cluster import made_namespace


async def figures(options: argparse.Namespace, namespace: str) -> list[dict[str, Any]]:
    """One entry for every handing over, in order."""
    found: list[dict[str, Any]] = []

    def say(what: str, said: Figures) -> None:
        found.append({"what": what, **said, "load": load()})
        report("operator_upgrade", **found[-1])

    client = Client(await load_access())
    stand_in = learners(METRICS_PORT, options.pod_addresses) if options.pod_addresses else nullcontext()
    folder = Path(options.logs or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with stand_in:
            bench = Upgrading(client, namespace, options.jobs, folder)
            await measured(bench, Release("rljob-worker:earlier", options.earlier), options.rounds, say)
    finally:
        await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20, help="that run, of four pods each")
    parser.add_argument("--rounds", type=int, default=3, help="upgrades of both replicas, and kills of the leader")
    parser.add_argument("--earlier", type=Path, metavar="CHECKOUT", help="another commit, to upgrade from")
    parser.add_argument("--pod-addresses", metavar="CIDR", help="addresses of fake pods, to be answered for")
    parser.add_argument("--logs", metavar="FOLDER", help="for what the operators say")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    report("machine", **machine())
    with made_namespace(Path(os.environ["KUBECONFIG"]).absolute()) as namespace:
        found = asyncio.run(figures(options, namespace.name))
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
