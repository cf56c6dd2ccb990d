"""How long a job on a cluster takes from `kubectl apply` to its objects, its pods, and the learner's first update.

Needs what tests/e2e need (docs/testing-on-kubernetes.md): a cluster whose nodes have pulled the worker image already.

    python -m benchmarks.cluster_start --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster import LONG_SECONDS, Namespace, endless, made_namespace
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

JOB = "started"
PODS = {"learner", "actor-0"}
CHILDREN = {
    "services": [JOB],
    "configmaps": [f"{JOB}-job"],
    "secrets": [f"{JOB}-keys-core", f"{JOB}-keys-actors"],
}
LOOK_SECONDS = 0.05


@contextmanager
def api(namespace: Namespace) -> Iterator[Callable[[str], Any]]:
    """A function that reads a path of the namespace through `kubectl proxy`; None where nothing answers."""
    command = ["kubectl", f"--kubeconfig={namespace.kubeconfig}", "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = re.search(r":(\d+)$", proxy.stdout.readline().strip())
            assert port is not None, "kubectl proxy says no port"

            def read(path: str) -> Any:
                url = f"http://127.0.0.1:{port[1]}/api/v1/namespaces/{namespace.name}/{path}"
                try:
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        return json.load(answer)
                except (OSError, ValueError):  # nothing answers, or not in time
                    return None

            yield read
        finally:
            proxy.terminate()


def measured(namespace: Namespace, read: Callable[[str], Any]) -> tuple[float, float, float]:
    """Seconds from the start of `kubectl apply` to (every object besides pods, every pod, the first update)."""

    def has_children() -> bool:
        return all(
            set(wanted) <= {each["metadata"]["name"] for each in (read(kind) or {"items": ()})["items"]}
            for kind, wanted in CHILDREN.items()
        )

    def pods() -> dict[str, str]:
        found = (read("pods") or {"items": ()})["items"]
        return {each["metadata"]["labels"]["rljob.dev/member"]: each["metadata"]["name"] for each in found}

    def updated() -> bool:
        learner = pods().get("learner")
        return bool(learner and ((read(f"pods/{learner}:9090/proxy/status") or {}).get("updates") or 0) > 0)

    def seconds(condition: Callable[[], object]) -> float:
        eventually(condition, "the job does not start", LONG_SECONDS, lambda: time.sleep(LOOK_SECONDS))
        return time.monotonic() - began

    began = time.monotonic()
    namespace.apply(endless(JOB))
    return seconds(has_children), seconds(lambda: set(pods()) == PODS), seconds(updated)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    kubeconfig = Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute()
    found = []
    with made_namespace(kubeconfig) as namespace, tempfile.TemporaryDirectory() as scratch:
        operator = OperatorProcess(namespace, Path(scratch) / "log")
        try:
            operator.start()
            with api(namespace) as read:
                for _ in range(rounds):
                    found.append(measured(namespace, read))
                    words = ", ".join(f"{each:.1f}" for each in found[-1])
                    print(f"objects, pods, first update: {words} s; load {os.getloadavg()[0]:.1f}", flush=True)
                    namespace.delete_jobs()
            operator.stop()
        finally:
            operator.end_all()
    medians = ", ".join(f"{statistics.median(each):.1f}" for each in zip(*found, strict=True))
    print(f"median of {rounds}: {medians} s")


if __name__ == "__main__":
    main()
