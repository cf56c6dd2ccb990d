"""What spot costs: a job whose actors are on spot nodes that are taken away by a script, beside the same job left alone.

Needs what tests/e2e need (docs/testing-on-kubernetes.md), and two spot nodes or more, so that what is taken from one finds a
place: `kube up --nodes cpu,spot,spot`.

    python -m benchmarks.spot_trace --minutes 4 --rounds 2 --taken-at 30 90 150 --away 40 \\
        --prices spot=0.0067 on-demand=0.0316

One job, IMPALA on CartPole with ``--actors`` on spot nodes only and the rest on others. Rounds of ``--minutes``: left alone, then
with the trace: at each ``--taken-at`` the spot nodes are drained in turn, as a cloud's notice does (25 s for its pods to leave),
and come back ``--away`` seconds later. Each round reports steps a second, unrolls that the learner has received and neither
learned from, nor dropped by its own rules, nor holds (``lost``, to be 0), and those that came twice, which it does not count
again (``sent_again``). ``--prices`` are of a core and hour; cores are those that pods ask for, whether they run or not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster_start import api
from benchmarks.common import report
from benchmarks.learner_deleted import Read, pod_of, wait_beyond
from tests.e2e.cluster import Namespace, endless, made_namespace, requests
from tests.e2e.operator_process import OperatorProcess

JOB, SPOT = "spot", "rljob.dev/spot=true"
NOTICE_SECONDS = 25
CORES = {"actors": 0.2, "learner": 0.5}


def job(actors: int) -> dict[str, Any]:
    on_spot = {"replicas": actors, "spot": True, "nodeSelector": {"rljob.dev/spot": "true"}}
    return endless(
        JOB,
        actors={**on_spot, "topologySpread": "Preferred", **requests(f"{CORES['actors']}")},
        learner=requests(f"{CORES['learner']}"),
    )


def figures(read: Read) -> dict[str, Any]:
    """What the learner says, asked until it answers."""
    while True:
        pod = pod_of(read, JOB)
        said = read(f"pods/{pod['metadata']['name']}:9090/proxy/status") if pod else None
        if said:
            return dict(said)
        time.sleep(0.5)


def unaccounted(said: dict[str, Any]) -> int:
    """Unrolls received and not to be found again."""
    queue = said["queue"]
    return int(queue["received"] - queue["learned"] - sum(queue["dropped"].values()) - queue["in_flight"])


def drain(namespace: Namespace, node: str) -> None:
    words = ("--pod-selector=rljob.dev/role=actor", "--delete-emptydir-data", "--force", "--ignore-daemonsets")
    namespace.kubectl("drain", node, f"--grace-period={NOTICE_SECONDS}", "--timeout=60s", *words)


def played(namespace: Namespace, read: Read, seconds: float, taken_at: Sequence[float], away: float) -> dict[str, Any]:
    """One round: what came of it."""
    nodes = namespace.kubectl("get", "nodes", "-l", SPOT, "-o", "name").split()
    events = [(at, "drain", nodes[number % len(nodes)]) for number, at in enumerate(taken_at)]
    events += [(at + away, "uncordon", node) for at, _, node in events]
    before, began = figures(read), time.monotonic()
    ignored = namespace.job_status(JOB)["restarts"]["ignored"]
    for at, what, node in sorted(events):
        time.sleep(max(0.0, began + at - time.monotonic()))
        print(f"{time.monotonic() - began:6.0f} s {what} {node}", flush=True)
        drain(namespace, node) if what == "drain" else namespace.kubectl("uncordon", node)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    after, passed = figures(read), time.monotonic() - began
    return {
        "seconds": passed,
        "steps_per_second": (after["steps_total"] - before["steps_total"]) / passed,
        "updates_per_second": (after["updates"] - before["updates"]) / passed,
        "taken": namespace.job_status(JOB)["restarts"]["ignored"] - ignored,
        "lost": unaccounted(after) - unaccounted(before),
        "sent_again": (after["queue"]["duplicates"] or 0) - (before["queue"]["duplicates"] or 0),
    }


def cost_per_million_steps(steps_per_second: float, actors: int, of_actors: float, of_learner: float) -> float:
    """At prices of a core and hour."""
    hourly = actors * CORES["actors"] * of_actors + CORES["learner"] * of_learner
    return hourly / 3600 / steps_per_second * 1e6


def show(namespace: Namespace, read: Read, options: argparse.Namespace, prices: dict[str, float]) -> None:
    namespace.apply(job(options.actors))
    wait_beyond(read, JOB, 200)
    rounds: dict[str, list[dict[str, Any]]] = {"alone": [], "taken": []}
    for _ in range(options.rounds):
        for name, taken_at in (("alone", ()), ("taken", options.taken_at)):
            found = played(namespace, read, 60 * options.minutes, taken_at, options.away)
            rounds[name].append(found)
            report("spot_trace_round", trace=name, **found)
    speeds = {name: statistics.median(each["steps_per_second"] for each in found) for name, found in rounds.items()}
    shares = [
        taken["steps_per_second"] / alone["steps_per_second"]
        for alone, taken in zip(rounds["alone"], rounds["taken"], strict=True)
    ]
    report(
        "spot_trace",
        throughput_beside_undisturbed=statistics.median(shares),
        rounds=shares,
        lost=sum(each["lost"] for found in rounds.values() for each in found),
        sent_again=sum(each["sent_again"] for found in rounds.values() for each in found),
        cost_per_million_steps_spot=cost_per_million_steps(
            speeds["taken"], options.actors, prices["spot"], prices["on-demand"]
        ),
        cost_per_million_steps_on_demand=cost_per_million_steps(
            speeds["alone"], options.actors, prices["on-demand"], prices["on-demand"]
        ),
        prices=prices,
    )
    namespace.delete_jobs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--taken-at", type=float, nargs="+", default=[30.0, 90.0, 150.0], metavar="SECONDS")
    parser.add_argument("--away", type=float, default=40.0, metavar="SECONDS")
    parser.add_argument("--prices", nargs=2, required=True, metavar="KIND=PRICE", help="of a core and hour")
    options = parser.parse_args()
    prices = {name: float(value) for name, _, value in (each.partition("=") for each in options.prices)}
    if prices.keys() != {"spot", "on-demand"}:
        parser.error(f"--prices: spot=PRICE and on-demand=PRICE are needed, not {', '.join(options.prices)}")
    kubeconfig = Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute()
    with made_namespace(kubeconfig) as namespace, tempfile.TemporaryDirectory() as scratch:
        operator = OperatorProcess(namespace, Path(scratch) / "log")
        try:
            operator.start()
            with api(namespace) as read:
                show(namespace, read, options, prices)
            operator.stop()
        finally:
            namespace.kubectl("uncordon", "-l", SPOT)
            operator.end_all()


if __name__ == "__main__":
    main()
