"""The autoscaler from 16 to 256 actors beside a learner whose speed changes by 4x: a real operator, real pods, a real clock.

The operator is a process of its own, as the command ``rljob operator``. Actors are pods without containers: one that is ready
delivers items to a simulated queue (`benchmarks.autoscaling.plant`), whose figures a page shows, served as a learner's
is. The simulator's figures for the same scenario stand beside it, with the shipped law and with one that knows the true rates.

    KUBEBUILDER_ASSETS=... python -m benchmarks.scale autoscale [--seconds 1260] [--picture FILE]
    KUBECONFIG=... python -m benchmarks.scale autoscale --pod-addresses 10.240.0.0/16

With ``KUBEBUILDER_ASSETS`` it starts an API server with etcd of its own, and plays the kubelets. With ``KUBECONFIG`` pods run
on a cluster's nodes that kwok plays, as `benchmarks.operator_scale` says.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from rljob.api.learner_status import LearnerStatus
from rljob.telemetry.server import TelemetryServer
from rljob_operator.core.autoscaling.model import ScalingSample
from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.render import names

from benchmarks.autoscaling.laws import run_law
from benchmarks.autoscaling.picture import draw
from benchmarks.autoscaling.plant import Plant, Scenario, Trace, simulate
from benchmarks.common import machine, report
from benchmarks.operator_at_scale.cluster import until
from benchmarks.operator_at_scale.jobs import METRICS_PORT, job as fake_job
from benchmarks.operator_at_scale.kubelet import Kubelets
from benchmarks.operator_at_scale.process import Operator, calls_between, operator, own_addresses
from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, ControlPlane
from tests.e2e.cluster import made_namespace

NAME, MOST, BATCH = "follows", 256, 4
OWN_ADDRESSES = "127.64.0.0/16"
"""Of the machine itself, so that pods with them need no route."""
START_SECONDS = 120.0
SEEDS = 5


def scenario(seconds: int, start_delay_seconds: float) -> Scenario:
    """16 actors where 60 are needed, then 240, then 60 again: a third of the time each. A tenth of them is evicted midway."""
    third = seconds // 3
    return Scenario(
        seconds=seconds,
        capacity=((0, 60.0), (third, 240.0), (2 * third, 60.0)),
        actor_rate=((0, 1.0),),
        evictions=((third + third // 2, 0.1),),
        start_delay_seconds=start_delay_seconds,
        start_spread_seconds=start_delay_seconds / 4,
        initial_actors=16,
        max_replicas=((0, MOST),),
    )


def job(namespace: str, most: Scenario) -> Object:
    """IMPALA with that queue. The law begins at its actors."""
    found = fake_job(namespace, NAME, most.initial_actors)
    place = found["spec"]["learner"]
    found["spec"] = {
        "environment": {"id": "CartPole-v1"},
        "algorithm": {
            "type": "IMPALA",
            "batchSize": BATCH,
            "impala": {"unrollQueue": {"capacity": int(most.queue_items), "maxPolicyLagUpdates": 100_000}},
        },
        "learner": place,
        "actors": {"replicas": most.initial_actors, **place},
        "evaluator": {"enabled": False},
        "autoscaling": {"mode": "Internal", "minReplicas": 4, "maxReplicas": MOST},
        "successPolicy": {"rawFrames": 1_000_000_000_000},
        "monitoring": {"metricsPort": METRICS_PORT},
    }
    return found


def is_ready(pod: Object) -> bool:
    """Whether its container is."""
    return any(each.get("ready") for each in (pod.get("status") or {}).get("containerStatuses") or ())


class Actors:
    """Which actors there are, and whether each is ready, as the watch tells. ``starts``: how many there have been."""

    def __init__(self) -> None:
        self._there: dict[str, bool] = {}
        self._seen: set[str] = set()

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about = document["metadata"]
        return {
            "name": about["name"],
            "uid": about["uid"],
            "actor": about["labels"][names.MEMBER_LABEL].startswith("actor"),
            "ready": is_ready(document) and "deletionTimestamp" not in about,
        }

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        self._there.clear()
        for each in documents:
            self.change("ADDED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        if kind == "DELETED":
            self._there.pop(document["name"], None)
        elif document["actor"]:
            self._there[document["name"]] = document["ready"]
            self._seen.add(document["uid"])

    @property
    def existing(self) -> int:
        return len(self._there)

    @property
    def ready(self) -> list[str]:
        return [name for name, ready in self._there.items() if ready]

    @property
    def starts(self) -> int:
        return len(self._seen)


class SlowKubelets(Kubelets):
    """An actor is ready so long after it was made, as one that pulls its image and compiles its network."""

    def __init__(self, client: Client, namespace: str, addresses: str, delay_seconds: float) -> None:
        super().__init__(client, namespace, addresses)
        self._delay_seconds, self._starting = delay_seconds, set[asyncio.Task[None]]()

    async def _run(self, pod: Object) -> None:
        if not pod["metadata"]["labels"][names.MEMBER_LABEL].startswith("actor"):
            await super()._run(pod)
            return
        task = asyncio.ensure_future(self._later(pod))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _later(self, pod: Object) -> None:
        await asyncio.sleep(self._delay_seconds)
        with suppress(ApiError):  # it was taken away meanwhile
            await super()._run(pod)


class Page:
    """The learner's `/status`: the figures of the second, until there are others."""

    def __init__(self) -> None:
        self.sample: ScalingSample | None = None
        self.updates = 0.0

    def document(self) -> dict[str, Any]:
        """See `TelemetryServer`."""
        found, told = self.sample, LearnerStatus(state="Training", updates=int(self.updates))
        if found is not None:
            told = LearnerStatus(
                state="Training",
                updates=int(self.updates),
                batch_size=BATCH,
                raw_frames_total=int(self.updates) * BATCH,
                learner_wait_fraction=found.wait_fraction,
                actors_blocked_fraction=found.blocked_fraction,
                consumption_per_second=found.consumption_per_second,
                production_per_second=found.production_per_second,
                queue_depth_batches=found.depth_batches / BATCH,
                queue_bound_batches=found.bound_batches / BATCH,
            )
        return told.to_document()


async def played(client: Client, namespace: str, ahead: Scenario, hands: SlowKubelets | None, seed: int) -> Trace:
    """The scenario, second by second of the real clock, with the job's own pods."""
    actors, plant, page = Actors(), Plant(ahead, seed), Page()
    follow = Reflector(client, PODS, actors, namespace=namespace, label_selector=names.SELECTOR)
    following = asyncio.ensure_future(follow.run())
    server = TelemetryServer("learner", METRICS_PORT, page.document, lambda: True, host="0.0.0.0")
    try:
        await client.create(RLJOBS, job(namespace, ahead))
        await until("the first actors", lambda: len(actors.ready) >= ahead.initial_actors, START_SECONDS)
        desired, began = ahead.initial_actors, time.monotonic()
        for second in range(ahead.seconds):
            ready = actors.ready
            plant.step(second, len(ready), actors.existing, desired)
            page.updates = plant.trace.consumed / BATCH
            page.sample = plant.sample(second, time.time())
            for at, share in ahead.evictions:
                if at == second and hands is not None:
                    await asyncio.gather(*(hands.fail(name) for name in ready[: round(share * len(ready))]))
            with suppress(ApiError):
                status = (await client.get(RLJOBS, namespace, NAME)).get("status") or {}
                desired = int((status.get("autoscaling") or {}).get("desiredReplicas") or desired)
            if second % 30 == 0:
                print(second, f"{desired} desired, {actors.existing} there, {len(ready)} ready,",
                      f"starved {plant.trace.starved[-1]:.2f}, blocked {plant.trace.blocked[-1]:.2f}:",
                      (status.get("autoscaling") or {}).get("lastDecision"), flush=True)  # fmt: skip
            await asyncio.sleep(max(0.0, began + second + 1 - time.monotonic()))
        plant.trace.starts = actors.starts
        return plant.trace
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        server.close()


@contextmanager
def own_cluster() -> Iterator[Path]:
    """The kubeconfig of an API server with our CRDs, of this process alone."""
    with tempfile.TemporaryDirectory() as folder:
        servers = ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]).absolute(), Path(folder))
        try:
            servers.start()
            servers.told("apply", "-f", str(CRD_FILE), "-f", str(EXPERIMENT_CRD_FILE))
            servers.told("wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s")
            yield servers.kubeconfig
        finally:
            servers.stop()


@asynccontextmanager
async def own_kubelets(client: Client, namespace: str, delay_seconds: float) -> AsyncIterator[SlowKubelets]:
    """At work for as long as this lasts."""
    hands = SlowKubelets(client, namespace, OWN_ADDRESSES, delay_seconds)
    reflector = Reflector(client, PODS, hands, namespace=namespace, label_selector=names.SELECTOR)
    running = [asyncio.ensure_future(each) for each in (reflector.run(), *(hands.work() for _ in range(8)))]
    try:
        yield hands
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def measured(
    options: argparse.Namespace, namespace: str, process: Operator, is_own: bool
) -> tuple[Trace, dict[str, Any]]:
    """The trace, and what the operator asked of the API server meanwhile."""
    ahead = scenario(options.seconds, options.start_seconds)
    async with AsyncExitStack() as during:
        client = Client(await load_access())
        during.push_async_callback(client.close)
        hands = None
        if is_own:
            hands = await during.enter_async_context(own_kubelets(client, namespace, options.start_seconds))
        before = process.figures()
        trace = await played(client, namespace, ahead, hands, options.seed)
        after = process.figures()
        spent = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
        return trace, {"operator_cpu_seconds": spent, "calls": calls_between(before, after)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=1260, help="of the real clock, a third at each speed")
    parser.add_argument("--start-seconds", type=float, default=20.0, help="from a pod's creation until it is ready")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--pod-addresses", metavar="CIDR", help="of a cluster's fake pods, to be answered for")
    parser.add_argument("--operator-log", help="file for what the operator says")
    parser.add_argument("--picture", type=Path, help="write both traces as SVG")
    options = parser.parse_args()
    report("machine", **machine())
    is_own = options.pod_addresses is None
    with ExitStack() as made:
        if is_own:
            os.environ["KUBECONFIG"] = str(made.enter_context(own_cluster()))
            namespace = "default"
        else:
            made.enter_context(own_addresses(options.pod_addresses))
            namespace = made.enter_context(made_namespace(Path(os.environ["KUBECONFIG"]).absolute())).name
        log_file = Path(
            options.operator_log or Path(made.enter_context(tempfile.TemporaryDirectory())) / "operator.log"
        )
        process = made.enter_context(operator((namespace,), log_file, workers=4))
        trace, spent = asyncio.run(measured(options, namespace, process, is_own))
    ahead = scenario(options.seconds, options.start_seconds)
    report("autoscale", way="operator and pods", **trace.figures(), **spent)
    simulated = {
        law: [simulated_by(law, ahead, options.seed + each) for each in range(SEEDS)] for law in ("shipped", "oracle")
    }
    for law, traces in simulated.items():
        rows = [each.figures() for each in traces]
        report(
            "autoscale",
            way=f"simulated, {law}",
            **{name: statistics.mean(row[name] for row in rows) for name in rows[0]},
        )
    if options.picture:
        traces = {"live": ("operator and pods", trace), "simulated": ("simulated", simulated["shipped"][0])}
        draw(options.picture, traces)


def simulated_by(law: str, ahead: Scenario, seed: int) -> Trace:
    """One run of the simulator."""
    changed, fresh = run_law(law, ahead)
    return simulate(changed, fresh, seed)


if __name__ == "__main__":
    main()
