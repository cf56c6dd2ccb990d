"""Two replicas of the operator are replaced by two of another release while jobs run; and a leader is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import LEASES, PODS, RLJOBS

from benchmarks.operator_at_scale.bench import AT_ONCE, Figures
from benchmarks.operator_at_scale.cluster import Seen, condition, created, followed, pod_ready, until
from benchmarks.operator_at_scale.jobs import PODS_BESIDE_ACTORS, job
from benchmarks.operator_at_scale.process import Operator, calls_between
from benchmarks.operator_at_scale.terms import Terms
from tests.cluster.control_plane import CRD_FILE
from tests.support.waiting import eventually

ACTORS = 2
LONGEST_SECONDS = 300.0
SETTLING_SECONDS = 45.0
"""After jobs are up, until what waits to be written of them has been."""
WRITES_SECONDS = 20.0
"""What a new leader writes is counted for so long after it has looked at every job: before the next writes of mere progress."""
_READS = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Release:
    """An operator's release: its image, and the checkout that it runs from (None: this one)."""

    image: str
    source: Path | None = None


@dataclass
class Upgrading:
    """The jobs of one namespace, and the replicas that look after them."""

    client: Client
    namespace: str
    jobs: int
    folder: Path
    replicas: list[Operator] = field(default_factory=list)
    releases: dict[Operator, Release] = field(default_factory=dict)
    terms: Terms = field(default_factory=Terms)
    pods: Seen = field(default_factory=lambda: Seen(pod_ready))
    started: int = 0

    async def start(self, release: Release) -> Operator:
        """One more replica, once it stands ready."""
        self.started += 1
        log_file = self.folder / f"operator-{self.started}.log"
        added = Operator((self.namespace,), log_file, 16, image=release.image, source=release.source)
        self.replicas.append(added)
        self.releases[added] = release
        await asyncio.to_thread(added.wait, added.stands)
        return added

    async def mended(self) -> int:
        """Start those again that have ended by themselves, as a kubelet would; how many. On a busy machine a leader loses its
        Lease now and then, and ends."""
        gone = [each for each in self.replicas if not each.runs]
        for each in gone:
            self.replicas.remove(each)
            await self.start(self.releases[each])
        await until(
            "a leader", lambda: any(each.identity == self.terms.holder for each in self.replicas), LONGEST_SECONDS
        )
        return len(gone)

    @property
    def leader(self) -> Operator:
        """The replica that holds the Lease."""
        return next(each for each in self.replicas if each.identity == self.terms.holder)

    async def handed_over(self, number: signal.Signals) -> Figures:
        """The leader is sent a signal; what passes until another one has looked at every job, and what that one writes."""
        leaving, pods = self.leader, await self.pods_now()
        before, made = self.terms.holder, set(self.pods.created)
        sent = time.monotonic()
        leaving.signal(number)
        await until("another leader", lambda: self.terms.taken_from(before) is not None, LONGEST_SECONDS)
        taken = self.terms.past[-1].began
        given_up = self.terms.given_up(before, sent)
        code = await asyncio.to_thread(leaving.ended)
        self.replicas.remove(leaving)
        holder = self.terms.holder
        await until("the new leader's saying so", lambda: any(each.identity == holder for each in self.replicas), 10.0)
        follower = self.leader
        await asyncio.to_thread(follower.wait, lambda: _turns(follower.figures()) >= self.jobs)
        looked = time.monotonic()
        await asyncio.sleep(WRITES_SECONDS)
        calls = calls_between({}, await asyncio.to_thread(follower.figures))
        tried = calls.pop("create pods", 0) - len(self.pods.created.keys() - made)
        now = await self.pods_now()
        return {
            "signal": number.name,
            "exit_code": code,
            "seconds_without_a_leader": taken - (given_up if given_up is not None else sent),
            "seconds_from_signal_to_leader": taken - sent,
            "seconds_from_signal_until_every_job_was_looked_at": looked - sent,
            "pods_ended": len(pods.keys() - now.keys()),
            "pods_made": len(self.pods.created.keys() - made),
            "containers_restarted": sum(now.values()),
            "dry_runs_of_the_new_leader": tried,
            "writes_of_the_new_leader": {
                what: count for what, count in calls.items() if not what.startswith(_READS) and "leases" not in what
            },
        }

    async def ended(self, replica: Operator) -> int:
        """A replica that only waits is ended; its exit code."""
        replica.signal(signal.SIGTERM)
        self.replicas.remove(replica)
        return await asyncio.to_thread(replica.ended)

    async def pods_now(self) -> dict[str, int]:
        """uid of every pod -> how often its containers were restarted."""
        page = await self.client.list(PODS, self.namespace)
        return {pod["metadata"]["uid"]: _restarts(pod) for pod in page.items}


@contextmanager
def stopped_at_the_end(replicas: list[Operator]) -> Iterator[None]:
    """Whatever happens, no replica outlives this."""
    try:
        yield
    finally:
        for each in replicas:
            each.stop()


async def measured(bench: Upgrading, earlier: Release, rounds: int, say: Callable[[str, Figures], None]) -> None:
    """Jobs come up under ``earlier``; then every round brings two replicas of a newer release, and kills a leader."""
    apply_definition(earlier.source)
    jobs, wanted = Seen(lambda each: condition(each, "Ready") == "True"), bench.jobs * (PODS_BESIDE_ACTORS + ACTORS)
    seen = (PODS, bench.pods), (RLJOBS, jobs), (LEASES, bench.terms)
    with stopped_at_the_end(bench.replicas):
        async with followed(bench.client, bench.namespace, *seen):
            first = await bench.start(earlier)
            await asyncio.to_thread(first.wait, first.leads)
            await bench.start(earlier)
            documents = (job(bench.namespace, f"job-{number}", ACTORS) for number in range(bench.jobs))
            await created(bench.client, documents, AT_ONCE)
            await until(
                "all jobs being up",
                lambda: len(bench.pods.ready) >= wanted and len(jobs.ready) >= bench.jobs,
                LONGEST_SECONDS,
            )
            await asyncio.sleep(SETTLING_SECONDS)
            for number in range(1, rounds + 1):
                apply_definition(None)
                await _rolled(bench, Release(f"rljob-worker:newer-{number}"), number, say)
            for number in range(1, rounds + 1):
                mended = await bench.mended()
                say("killed", {"round": number, "mended_before": mended, **await bench.handed_over(signal.SIGKILL)})
                await bench.start(Release(f"rljob-worker:newer-{rounds}"))


async def _rolled(bench: Upgrading, release: Release, number: int, say: Callable[[str, Figures], None]) -> None:
    """As a Deployment of two replicas rolls: one more comes, and once it is ready an old one goes, the leader first."""
    mended = await bench.mended()
    old = list(bench.replicas)
    while old:
        await bench.start(release)
        assert all(each.runs for each in bench.replicas), "one has lost the Lease in the middle of a round"
        if bench.leader in old:
            leaving = bench.leader
            figures = await bench.handed_over(signal.SIGTERM)
            old.remove(leaving)
            say(
                "rolled",
                {"round": number, "mended_before": mended, "to_the_new_release": bench.leader not in old, **figures},
            )
        else:
            code = await bench.ended(old.pop())
            say("ended", {"round": number, "exit_code": code})


def apply_definition(source: Path | None) -> None:
    """The CRD of a checkout, or of this one."""
    file = CRD_FILE if source is None else source / CRD_FILE.relative_to(Path(__file__).parents[2])
    subprocess.run(
        ["kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(file)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    established = ["kubectl", "wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=60s"]
    # A definition that is a moment old has no conditions at all, which kubectl takes for an error.
    eventually(lambda: not subprocess.run(established, capture_output=True).returncode, "the CRD being established")


def _turns(figures: dict[str, float]) -> float:
    return sum(value for name, value in figures.items() if name.startswith("rljob_operator_reconciles_total{"))


def _restarts(pod: dict[str, object]) -> int:
    status = pod.get("status") or {}
    assert isinstance(status, dict)
    kinds = ("containerStatuses", "initContainerStatuses")
    return sum(int(each.get("restartCount", 0)) for kind in kinds for each in status.get(kind) or ())
