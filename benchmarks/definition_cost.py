"""What the RLJob's definition costs an API server: applying it, applying a job, and a write of a job's status.

    KUBEBUILDER_ASSETS=FOLDER python -m benchmarks.definition_cost --beside CHECKOUT [--rounds 5]

Each checkout has an API server of its own with its own definition and its largest example, which also runs; both are asked in
rounds that alternate. Processor seconds of a status write are those of the API server. One JSON line a checkout: medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.common import machine, report
from tests.cluster.control_plane import ControlPlane
from tests.support.paths import ROOT

DEFINITION, EXAMPLE = "manifests/crds/rljobs.rljob.dev.yaml", "manifests/examples/pong-apex-cluster.yaml"
JOB = "/apis/rljob.dev/v1alpha1/namespaces/default/rljobs/pong-apex-cluster"
WRITES = 200
"""Of a status, in a round: enough for the server's clock, which counts hundredths of a second."""


class Server:
    """An API server that has a checkout's definition."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._checkout = checkout
        self.cluster = ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]), folder)
        self.cluster.start()
        began = time.monotonic()
        self.cluster.apply(checkout / DEFINITION)
        self.definition_seconds = time.monotonic() - began
        self.cluster.wait_until("serving RLJobs", lambda: self.cluster.request("GET", JOB.rpartition("/")[0])[0] == 200)

    def apply_seconds(self) -> float:
        """Of ``kubectl apply`` of the example, made anew."""
        self.cluster.kubectl("delete", "rljob", "--all", "--wait")
        began = time.monotonic()
        self.cluster.told("apply", "-f", str(self._checkout / EXAMPLE))
        return time.monotonic() - began

    def status_cpu_seconds(self) -> float:
        """Of the server, for one write of the job's status."""
        process = psutil.Process(self.cluster.pid())
        before = process.cpu_times()
        for updates in range(WRITES):
            self.cluster.change(f"{JOB}/status", {"status": {"progress": {"learnerUpdates": updates}}})
        after = process.cpu_times()
        return (after.user + after.system - before.user - before.system) / WRITES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    report("machine", **machine())
    checkouts = {"here": ROOT, "beside": options.beside.resolve()}
    taken: dict[str, dict[str, list[float]]] = {each: defaultdict(list) for each in checkouts}
    with ExitStack() as closing:
        servers = {}
        for name, checkout in checkouts.items():
            servers[name] = Server(checkout, Path(closing.enter_context(tempfile.TemporaryDirectory())))
            closing.callback(servers[name].cluster.stop)
        for number in range(options.rounds):
            for name in checkouts if number % 2 == 0 else reversed(checkouts):
                taken[name]["apply_seconds"].append(servers[name].apply_seconds())
                taken[name]["status_cpu_seconds"].append(servers[name].status_cpu_seconds())
        for name, figures in taken.items():
            medians = {figure: statistics.median(seconds) for figure, seconds in figures.items()}
            size = len((checkouts[name] / DEFINITION).read_bytes())
            report(
                "definition_cost",
                checkout=name,
                definition_bytes=size,
                definition_seconds=servers[name].definition_seconds,
                **medians,
            )


if __name__ == "__main__":
    main()
