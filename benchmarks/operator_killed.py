"""Kills the operator at every await of its turns, until it was killed a thousand times, on a real API server.

    KUBEBUILDER_ASSETS=... python -m benchmarks.operator_killed --kills 1000

What must be true after each is in `tests/cluster/killed_operators.py`; the first time that it is not ends it with an error.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.common import machine, report
from tests.cluster.conftest import made_namespace
from tests.cluster.control_plane import CRD_FILE, ControlPlane
from tests.cluster.killed_operators import SCENES, Stage, play, stage


def killed(at: Stage, wanted: int, step: int) -> Counter[str]:
    """How often it was killed in which scene."""
    found: Counter[str] = Counter()
    while found.total() < wanted:
        for name in SCENES:
            began = time.monotonic()
            found[name] += play(at, name, step, wanted - found.total())
            report(
                "operator_killed", scene=name, killed=found[name], all=found.total(), seconds=time.monotonic() - began
            )
            if found.total() >= wanted:
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--step", type=int, default=1, help="kill at every so many moments")
    options = parser.parse_args()
    report("machine", **machine())
    with tempfile.TemporaryDirectory() as scratch:
        servers = ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]).absolute(), Path(scratch))
        try:
            servers.start()
            servers.kubectl("apply", "-f", str(CRD_FILE))
            servers.kubectl("wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s")
            began = time.monotonic()
            with made_namespace(servers) as namespace, stage(servers, namespace) as at:
                found = killed(at, options.kills, options.step)
            report("operator_killed_all", **found, all=found.total(), seconds=time.monotonic() - began)
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
