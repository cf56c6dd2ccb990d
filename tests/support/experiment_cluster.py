"""A cluster with one experiment in it, as far as its operator's part for experiments sees it: objects, jobs that play, pods that
judge. It stands for an API server, for the operator's part for jobs and for kubelets, so that an operator can be killed at each
of its calls; what a real server and real jobs do is in tests/cluster and tests/e2e."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

from rljob.api.status import RLJobStatus
from rljob_operator.experiments.journal import Entry
from rljob_operator.kube.apiserver.client import Page
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, Conflict, NotFound
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, PODS, RLEXPERIMENTS, RLJOBS, Object, Resource
from rljob_operator.kube.experiment.reconcile import ExperimentReconciler
from rljob_operator.kube.experiment.runs import Sources
from rljob_operator.kube.render.names import EXPERIMENT_LABEL
from rljob_operator.kube.render.others import JOURNAL_KEY
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.kept import Kept

Curve = Callable[[int, int, int], float]
"""(trial, seed, raw frames) -> how the run is judged there."""
NAMESPACE = "team"


class Killed(BaseException):
    """The operator ends here, as by kill -9."""


def merged(before: Any, change: Any) -> Any:
    """What a JSON merge patch makes: RFC 7386, section 2, to the letter."""
    if not isinstance(change, dict):
        return change
    found = dict(before) if isinstance(before, dict) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


class World:
    """What outlives an operator. ``kill_at``: the moment, before or after a call that writes, at which one is killed. ``fails``:
    trials whose jobs fail. ``frames_a_tick``: what a job plays from one look to the next."""

    def __init__(
        self,
        experiment: Object,
        curve: Curve,
        kill_at: int = -1,
        fails: frozenset[int] = frozenset(),
        frames: int = 700,
    ) -> None:
        self.curve, self.kill_at, self.fails, self.frames_a_tick = curve, kill_at, fails, frames
        self.moments = self._version = self.clock = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.frames: dict[str, int] = {}
        self.states: dict[str, dict[str, str]] = {}
        self.told: list[tuple[str, str]] = []
        self.judged: list[str] = []
        self.experiment = str(experiment["metadata"]["name"])
        self.put(RLEXPERIMENTS, {**experiment, "metadata": {**experiment["metadata"], "namespace": NAMESPACE}})
        self.start()

    def start(self) -> None:
        """Another life of the operator. It knows no job's status before it has looked at the job."""
        self.known = False
        copies = {resource.plural: Kept(lambda found: None) for resource in (RLEXPERIMENTS, RLJOBS, PODS)}
        self.copies = copies
        sources = Sources(self, copies["rljobs"].get, self.status, copies["pods"], Settings(image="rl:1"))  # type: ignore[arg-type]
        self.reconciler = ExperimentReconciler(
            sources,
            copies["rlexperiments"],
            self,
            now=lambda: 1.8e9,
            monotonic=lambda: float(self.clock),  # type: ignore[arg-type]
        )

    def put(self, resource: Resource, document: Object) -> Object:
        about = document["metadata"]
        key, self._version = (resource.plural, about["name"]), self._version + 1
        before = self.objects.get(key, {})
        changed = before.get("spec") != document.get("spec")
        number = before.get("metadata", {}).get("generation", 0) + changed
        stamped = {"uid": f"{resource.plural}-{self._version}", **about, "generation": number}
        self.objects[key] = {**document, "metadata": {**stamped, "resourceVersion": str(self._version)}}
        return copy.deepcopy(self.objects[key])

    def of(self, resource: Resource) -> dict[str, Object]:
        return {name: each for (plural, name), each in self.objects.items() if plural == resource.plural}

    # What the operator asks for.

    async def list(self, resource: Resource, namespace: str, *, metadata_only: bool) -> Page:
        return Page([{"metadata": each["metadata"]} for each in self.of(resource).values()], "")

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        if (resource.plural, name) not in self.objects:
            raise NotFound("it is not there", code=404)
        return copy.deepcopy(self.objects[resource.plural, name])

    async def create(self, resource: Resource, document: Object, *, dry_run: bool = False) -> Object:
        if not dry_run:
            await self._moment()
        if (problem := self.refuses(resource, document)) is not None:
            raise problem
        if dry_run:
            return document
        if (resource.plural, document["metadata"]["name"]) in self.objects:
            raise AlreadyExists("it is there", code=409)
        if resource is RLJOBS:
            document = {**document, "spec": {"suspend": False, **document["spec"]}}
        found = self.put(resource, document)
        await self._moment()
        return found

    async def patch(
        self, resource: Resource, namespace: str, name: str, change: Object, *, resource_version: str = "", **_: Any
    ) -> Object:
        await self._moment()
        before = self.objects.get((resource.plural, name))
        if before is None:
            raise NotFound("it is not there", code=404)
        if resource_version and before["metadata"]["resourceVersion"] != resource_version:
            raise Conflict("it has changed", code=409)
        assert not before.get("immutable"), "a full part of the journal changes no more"
        found = self.put(resource, merged(before, change))
        await self._moment()
        return found

    def refuses(self, resource: Resource, document: Object) -> ApiError | None:
        """Why a policy or a quota does not let it be made."""
        return None

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        await self._moment()
        del self.objects[resource.plural, name]
        await self._moment()

    def record(self, regarding: Object, kind: str, reason: str, note: str, *, action: str) -> None:
        self.told.append((reason, note))

    async def _moment(self) -> None:
        await asyncio.sleep(0)
        self.moments += 1
        if self.moments == self.kill_at:
            raise Killed

    # What goes on without it.

    def status(self, key: tuple[str, str], uid: str) -> RLJobStatus | None:
        """The status of a job as the operator's other part knows it."""
        name = key[1]
        if not self.known or self.objects.get(("rljobs", name), {}).get("metadata", {}).get("uid") != uid:
            return None
        now = "2026-11-27T12:00:00Z"
        conditions = [
            {"type": type, "status": "True", "reason": reason, "lastTransitionTime": now}
            for type, reason in self.states.get(name, {}).items()
        ]
        about = self.objects["rljobs", name]["metadata"].get("annotations", {})
        asked = about.get("rljob.dev/checkpoint-requested-at")
        request = (
            {"controller": {"checkpointRequest": {"requestedAt": asked, "done": True, "seen": 0}}} if asked else {}
        )
        return RLJobStatus.model_validate(
            {"conditions": conditions, "progress": {"rawFrames": self.frames.get(name, 0)}, **request}
        )

    def tick(self) -> None:
        """Jobs play, end or suspend; one judge ends."""
        for name, job in self.of(RLJOBS).items():
            budget, state = job["spec"]["successPolicy"]["rawFrames"], self.states.setdefault(name, {})
            trial = int(job["metadata"]["labels"]["rljob.dev/trial"])
            if "Complete" in state or "Failed" in state:
                continue
            state.pop("Suspended", None)
            if job["spec"]["suspend"]:
                state["Suspended"] = "UserRequested"
            elif trial in self.fails:
                state["Failed"] = "BackoffLimitExceeded"
            else:
                self.frames[name] = min(budget, self.frames.get(name, 0) + self.frames_a_tick)
                if self.frames[name] == budget:
                    state["Complete"] = "StepBudgetReached"
        for name, pod in self.of(PODS).items():
            if "status" not in pod:
                self.put(PODS, {**pod, "status": self.verdict(name, pod)})
                return

    def verdict(self, name: str, pod: Object) -> Object:
        job = self.objects["rljobs", pod["metadata"]["ownerReferences"][0]["name"]]
        labels = job["metadata"]["labels"]
        trial, seed = int(labels["rljob.dev/trial"]), int(labels["rljob.dev/seed"])
        self.judged.append(name)
        mean = self.curve(trial, seed, self.frames[job["metadata"]["name"]])
        figures = {"mean": mean, "standard_error": 1.0, "episodes": 100}
        if "--scored" in pod["spec"]["containers"][0]["command"]:
            frames = self.frames[job["metadata"]["name"]]
            kept = {"from": f"s3://b/{trial}", "digest": f"sha256:{frames:064d}", "rawFrames": frames}
            figures["checkpoint"] = kept
        words = json.dumps(figures)
        return {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 0, "message": words}}}],
        }

    # The story.

    def settle(self) -> None:
        """Reconcile, through a kill, until nothing is written any more."""
        for _ in range(40):
            before = self._version
            for plural, kept in self.copies.items():
                found = [each for (kind, _), each in self.objects.items() if kind == plural]
                if plural == PODS.plural:  # they are watched by their label
                    found = [each for each in found if EXPERIMENT_LABEL in each["metadata"].get("labels", {})]
                kept.replace(None, copy.deepcopy(found))
            try:
                asyncio.run(self.reconciler.reconcile((NAMESPACE, self.experiment)))
            except Killed:
                self.start()
                continue
            if self.known and self._version == before:
                return
            self.known = True
        raise AssertionError("it goes on and on")

    def turns(self, count: int = 1) -> None:
        """So often the operator looks, and then everything plays on."""
        for _ in range(count):
            self.settle()
            self.tick()

    def live(self, ticks: int = 400) -> Object:
        """To the end of the experiment; its status."""
        for _ in range(ticks):
            self.settle()
            if self.state in ("Complete", "Failed"):
                return dict(self.status_document)
            self.tick()
        raise AssertionError(f"no end: {self.text.decode()}")

    @property
    def status_document(self) -> Object:
        return dict(self.objects["rlexperiments", self.experiment].get("status") or {})

    def condition(self, type: str) -> Object:
        found = [each for each in self.status_document.get("conditions", ()) if each["type"] == type]
        return dict(found[0]) if found else {}

    @property
    def state(self) -> str:
        return str(self.condition("Ready").get("reason", ""))

    @property
    def text(self) -> bytes:
        """The whole journal."""
        parts = sorted(self.of(CONFIG_MAPS).items(), key=lambda each: int(each[0].rpartition("-")[2]))
        return "".join(each["data"][JOURNAL_KEY] for _, each in parts).encode()

    def entries(self) -> list[Entry]:
        return [json.loads(line) for line in self.text.splitlines()]

    def edit(self, resource: Resource, name: str, **spec: Any) -> None:
        """By hand; the operator has seen it then."""
        self.put(resource, merged(self.objects[resource.plural, name], {"spec": spec}))
        self.settle()
