"""Every field of an RLJob's spec, changed on a job that runs, on a real API server (``KUBEBUILDER_ASSETS``) and with kubelets
that are played: the operator has to follow the change, or to refuse it by the field's name, and to be back once it is taken back.

The oracles are Acto's: the new state is reached, the old one is recovered, a wrong one is refused and nothing is touched by it.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from rljob.api import ManifestError, parse_job
from rljob.api.mutability import MarkedField, When
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Invalid
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLJOBS
from rljob_operator.kube.render import names

from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, ControlPlane, connected
from tests.cluster.reconciling import BreakingClient, Clock, OneJob, Run, said_in, written
from tests.unit.api import test_mutability
from tests.unit.api.bad_manifests import IMPALA, document

NAMESPACE: Final = "fields"
UNROLLS: Final = document(IMPALA)["spec"]
BASES: Final[dict[str, dict[str, Any]]] = {
    "algorithm.impala": UNROLLS,
    "algorithm.ppo": {**UNROLLS, "algorithm": {"type": "PPO"}},
    "algorithm.sac": {**UNROLLS, "algorithm": {"type": "SAC"}, "environment": {"id": "Pendulum-v1"}},
    "": {},
}
"""The beginning of a field's path -> what a job that has the field says; the first that fits."""


def at(spec: Any, path: str) -> Any:
    """What stands there; None where nothing does."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


def patch(path: str, value: Any) -> dict[str, Any]:
    """The merge patch of a spec that sets a field."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


class Fields:
    """Jobs that are changed field by field; ``found`` has what does not hold."""

    def __init__(self, client: BreakingClient, viewer: Client) -> None:
        self.clock, self.client, self.viewer = Clock(), client, viewer
        self.run = Run(client, NAMESPACE, now=self.clock.now, monotonic=self.clock.monotonic)
        self.tried, self.found = Counter[str](), list[str]()

    async def try_all(self, seconds: float, only: str) -> None:
        """Each field once, as far as the time reaches."""
        end = time.monotonic() + seconds
        for place in test_mutability.FIELDS:
            if only in place.path and place.path != "suspend" and time.monotonic() < end:
                try:
                    self.tried[await self._try(place)] += 1
                except Exception as problem:  # noqa: BLE001  of one field
                    self.found.append(f"{place.path}: {type(problem).__name__}: {problem}")

    async def _try(self, place: MarkedField) -> str:
        base = next(each for start, each in BASES.items() if place.path.startswith(start))
        name = f"job-{sum(self.tried.values()) + len(self.found)}"
        given = written(NAMESPACE, name, **base)
        given["spec"] = {**(base or given["spec"]), "actors": {"replicas": 2}, "evaluator": {"enabled": False}}
        before = parse_job(given).spec.model_dump(mode="json", by_alias=True)
        value = next((each for each in self._values(place, given) if each != at(before, place.path)), None)
        if value is None:
            return "no value"
        job = OneJob(self.viewer, self.client, self.run, name, self.clock)
        await self.viewer.create(RLJOBS, given)
        try:
            await self._up(job)
            return await self._changed(place, job, value, at(given["spec"], place.path))
        finally:
            await self.viewer.delete(RLJOBS, *job.key, grace_seconds=0)
            await self.run.look(self.viewer)

    def _values(self, place: MarkedField, job: dict[str, Any]) -> Iterator[Any]:
        """Values that a new job may have there."""
        for value in (*test_mutability._words(place), *test_mutability.VALUES):
            new = deepcopy(job)
            node = new["spec"]
            *above, last = place.path.split(".")
            for step in above:
                node = node.setdefault(step, {})
            node[last] = value
            try:
                parse_job(new)
            except ManifestError:
                continue
            yield value

    async def _up(self, job: OneJob) -> None:
        for _ in range(4):
            self.clock.seconds += 2
            await job.settle()
            await job.start_pods()
            await job.finish_deleted()

    async def _seen(self, job: OneJob) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
        """(status, the spec in force as its pods are given it, uids of the pods of learner and shards)."""
        kept = await self.viewer.get(CONFIG_MAPS, NAMESPACE, names.config_map(job.name))
        pods = await job.pods()
        core = {each["metadata"]["uid"] for member, of in pods.items() if not member.startswith("actor") for each in of}
        return await job.status(), yaml.safe_load(kept["data"][names.JOB_FILE])["spec"], core

    async def _changed(self, place: MarkedField, job: OneJob, value: Any, was: Any) -> str:
        path, begun = place.path, await self._seen(job)
        try:
            await job.change(**patch(path, value))
        except Invalid as problem:
            self._expect(not place.mutability.when.at_any_time, f"{path}: {value!r} is refused: {problem}")
            self._expect(path.split(".")[0] in str(problem), f"{path}: its refusal does not name it: {problem}")
            return await self._suspended(place, job, value, was)
        await self._up(job)
        status, spec, core = await self._seen(job)
        if said_in(status)["Accepted"][:2] == ("True", "Valid"):
            self._expect(place.mutability.when.at_any_time, f"{path}: {value!r} is taken while roles run")
            self._expect(_same(at(spec, path), value), f"{path}: {value!r} is not in force: {at(spec, path)!r}")
            outcome = "reached"
        else:
            words = said_in(status)["Accepted"][2]
            self._expect(
                path.split(".")[-1] in words or path.split(".")[0] in words,
                f"{path}: refused without its name: {words}",
            )
            self._expect(spec == begun[1], f"{path}: refused, and the spec in force is another")
            outcome = "refused"
        self._expect(core == begun[2] or status.get("completionTime"), f"{path}: {value!r} has changed pods")
        if status.get("completionTime"):
            return f"{outcome}, over"
        await job.change(**patch(path, was))
        await self._up(job)
        status, spec, core = await self._seen(job)
        self._expect(said_in(status)["Accepted"][:2] == ("True", "Valid"), f"{path}: not accepted once taken back")
        self._expect(spec == begun[1], f"{path}: taken back, and the spec in force is another than before")
        self._expect(core == begun[2], f"{path}: taking it back has changed pods")
        return f"{outcome}, recovered"

    async def _suspended(self, place: MarkedField, job: OneJob, value: Any, was: Any) -> str:
        """What may change while the job is suspended, and what may never."""
        path, begun = place.path, await self._seen(job)
        for each, expected in ((value, value), (was, at(begun[1], path))):
            await job.change(suspend=True)
            for _ in range(6):
                self.clock.seconds += 700
                await job.settle()
                await job.finish_deleted()
            self._expect(not await job.pods(), f"{path}: not suspended")
            try:
                await job.change(**patch(path, each))
            except Invalid as problem:
                never = place.mutability.when is When.NEVER or each is None  # and then required
                self._expect(never, f"{path}: refused while suspended: {problem}")
                return "refused"
            self._expect(place.mutability.when is not When.NEVER, f"{path}: {each!r} is taken, and may never change")
            await job.change(suspend=False)
            await self._up(job)
            status, spec, core = await self._seen(job)
            if said_in(status)["Accepted"][0] != "True":
                words = said_in(status)["Accepted"][2]
                self._expect(
                    path.split(".")[-1] in words or path.split(".")[0] in words, f"{path}: refused unnamed: {words}"
                )
                continue
            self._expect(_same(at(spec, path), expected), f"{path}: {each!r} is not in force: {at(spec, path)!r}")
            self._expect(bool(core), f"{path}: nothing runs after {each!r}")
        return "reached in suspension, recovered"

    def _expect(self, holds: Any, words: str) -> None:
        if not holds:
            self.found.append(words)


def _same(found: Any, wanted: Any) -> bool:
    """Whether the spec in force has what was written, with more where it fills in defaults."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(_same(found.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same, found, wanted))
    return found == wanted or str(found) == str(wanted)


async def changed(cluster: ControlPlane, seconds: float, only: str) -> Fields:
    """All fields whose path has ``only`` in it."""
    async with connected(cluster, kind=BreakingClient) as client, connected(cluster) as viewer:
        fields = Fields(client, viewer)
        await fields.try_all(seconds, only)
        return fields


def main(seconds: float, only: str) -> int:
    """Print what does not hold; 1 where something does not."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]), Path(folder))
        try:
            cluster.start()
            cluster.told("apply", "-f", str(CRD_FILE), "-f", str(EXPERIMENT_CRD_FILE))
            serves = f"/apis/rljob.dev/v1alpha1/namespaces/{NAMESPACE}/rljobs"
            cluster.wait_until("serving RLJobs", lambda: cluster.request("GET", serves)[0] == 200)
            cluster.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            fields = asyncio.run(changed(cluster, seconds, only))
        finally:
            cluster.stop()
    print(
        f"{sum(fields.tried.values())} of {len(test_mutability.FIELDS)} fields: {dict(fields.tried)}",
        *fields.found,
        sep="\n",
    )
    return 1 if fields.found else 0
