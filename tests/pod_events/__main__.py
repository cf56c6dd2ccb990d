"""Does the events of the table on the cluster that the tests of tests/e2e use (docs/testing-on-kubernetes.md), one line a cell.

    python -m tests.pod_events                          # all of them
    python -m tests.pod_events --cells 20 --seed 7      # twenty that are drawn
    python -m tests.pod_events --only delete,evict --role learner --phase Running

Exit code 1 where a cell was not as the table says.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.cluster import KubectlFailed, made_namespace
from tests.e2e.operator_process import operator_of
from tests.pod_events.on_cluster import PodEvents
from tests.pod_events.table import cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=0, help="how many to draw; 0 takes all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of events, with commas between them")
    parser.add_argument("--role", default="")
    parser.add_argument("--phase", default="")
    wanted = parser.parse_args()
    names = [name for name in wanted.only.split(",") if name]
    chosen = [
        (event, role, phase)
        for event, role, phase in cells()
        if (not names or event.name in names) and wanted.role in ("", role) and wanted.phase in ("", phase)
    ]
    if wanted.cells:
        chosen = random.Random(wanted.seed).sample(chosen, min(wanted.cells, len(chosen)))
    kubeconfig, image = Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute(), os.environ["RLJOB_E2E_IMAGE"]
    failed, began = 0, time.monotonic()
    with (
        made_namespace(kubeconfig) as namespace,
        tempfile.TemporaryDirectory() as scratch,
        operator_of(namespace, Path(scratch) / "log"),
    ):
        events = PodEvents(namespace, image)
        events.start()
        for event, role, phase in chosen:
            cell = f"{phase:10} {event.name:22} {role:10}"
            try:
                print(f"ok    {cell} {events.check(event, role, phase)}", flush=True)
            except (AssertionError, KubectlFailed, LookupError, TimeoutError) as problem:
                failed += 1
                print(f"WRONG {cell} {str(problem)[:600]}", flush=True)
                events.recover()
    print(f"{len(chosen)} cells, {failed} not as the table says, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
