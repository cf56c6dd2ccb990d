"""The runs of an experiment: each is an RLJob, suspended where it has played to its rung, and a pod judges it there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rljob.api import ManifestError, parse_job
from rljob.api.conditions import ConditionType
from rljob.api.status import RLJobStatus

from rljob_operator.core.member import Phase, Role
from rljob_operator.experiments.driver import Driver, Sight, judging, scored
from rljob_operator.experiments.state import ExperimentState, Run
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    LacksRight,
    NamespaceTerminating,
    NotFound,
    QuotaExceeded,
    is_refusal,
)
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object, merge_patch
from rljob_operator.kube.job.keys import NameConflict, create
from rljob_operator.kube.job.members import NODE_LOST, parsed, shown
from rljob_operator.kube.job.stored import read
from rljob_operator.kube.render import names, others as render
from rljob_operator.kube.render.metadata import Owned, is_of
from rljob_operator.kube.render.rendering import started_with
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoints_are
from rljob_operator.kube.watch.kept import Kept
from rljob_operator.kube.watch.pods import JobKey

_FOR_GOOD, _MAY_PASS = (ManifestError, Invalid, Forbidden), (QuotaExceeded, NamespaceTerminating, LacksRight)
"""Refusals of a run's manifest; and those among them after which it may yet be made."""
_MOST_JUDGES: Final = 3
"""Pods that try to judge a run at a rung, before it counts as failed."""
_HELD_SECONDS: Final = 30.0
"""A run that has not come up after so long says on its experiment what it waits for."""
_WHAT_HOLDS: Final = (ConditionType.ACCEPTED, ConditionType.ADMITTED, ConditionType.READY)
"""Conditions of a run that tell it, the one that others refer to first."""


@dataclass(slots=True)
class Sources:
    """What is known of a cluster: ``job_of`` a namespace and a name, ``status_of`` such a key and a uid, and the pods that
    judge."""

    client: Client
    job_of: Callable[[str, str], Object | None]
    status_of: Callable[[JobKey, str], RLJobStatus | None]
    judges: Kept
    settings: Settings


@dataclass(slots=True)
class Runs:
    """The runs of the experiment ``owner`` as they are now: the `RunsPlace` that has them in RLJobs. It only reads, and notes
    which pods that judge are needed, until `lead` has what is wanted done.

    ``now``: Unix seconds. ``held``: runs that do not come up, or whose judge does not, and why, as far as conditions or the pod
    tell. ``refused``: what the API server refuses, in its words, and runs whose names others have.
    """

    sources: Sources
    owner: Object
    state: ExperimentState
    suspended: bool
    now: float
    held: dict[tuple[int, int], str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _needed: list[tuple[Run, Owned, Object]] = field(default_factory=list)

    def frames(self, run: Run) -> int:
        """See `RunsPlace`."""
        return self.state.known.raw_frames

    def sight(self, run: Run) -> Sight:
        """See `RunsPlace`."""
        job, status = self._found(run)
        if job is None or status is None:
            return Sight(rests=job is None)
        self._note_what_holds(run, job, status)
        return Sight(status.finished or (job["spec"]["suspend"] and status.is_true("Suspended")), job, status)

    def _note_what_holds(self, run: Run, job: Object, status: RLJobStatus) -> None:
        """What keeps a run that should play from it, as its conditions tell."""
        told = next(
            (each for each in map(status.condition, _WHAT_HOLDS) if each and each.status == "False" and each.message),
            None,
        )
        if (
            told is not None
            and not (job["spec"]["suspend"] or status.finished)
            and told.last_transition_time <= self.now - _HELD_SECONDS
        ):
            self.held[run.key] = f"RLJob {job['metadata']['name']} is {status.state}: {told.message}"

    async def lead(self, driver: Driver) -> None:
        """Make what is missing and wanted, have runs play that should and suspend the others, and remove judges that are done. A
        refusal of one run concerns no other."""
        for run in list(self.state.runs.values()):
            with self._by_itself(driver, run, f"RLJob {self._place(run)[1]}"):
                await self._lead(run, driver)
        if self.suspended:
            return
        about = self.owner["metadata"]
        for run, owned, pod in self._needed:
            with self._by_itself(driver, run, f"pod {pod['metadata']['name']}"):
                found, new = await create(self.sources.client, owned, pod)
                if not new:  # it is not known where it has lost the label by which it is watched
                    change = {"metadata": {"uid": found["metadata"]["uid"], "labels": pod["metadata"]["labels"]}}
                    await self.sources.client.patch(PODS, about["namespace"], pod["metadata"]["name"], change)
        due = {name for run, rung in driver.due() for name in self._judges(run, rung)}
        for pod in self.sources.judges.labelled(about["namespace"], names.EXPERIMENT_LABEL, about["name"]):
            here = pod["metadata"]
            if here["name"] not in due and not here.get("deletionTimestamp"):
                with suppress(NotFound):
                    await self.sources.client.delete(PODS, here["namespace"], here["name"], uid=here["uid"])

    @contextmanager
    def _by_itself(self, driver: Driver, run: Run, what: str) -> Iterator[None]:
        """What is refused of a run is told, and the others go on. A run that a policy lets nobody make has failed."""
        try:
            yield
        except (ApiError, NameConflict, ManifestError) as problem:
            if not is_refusal(problem):
                raise
            words = f"{what} is refused: {problem}"
            self.refused.append(f"trial {run.trial}: {words}")
            if isinstance(problem, _FOR_GOOD) and not isinstance(problem, _MAY_PASS) and self._found(run)[0] is None:
                driver.fail(run, words)

    async def _lead(self, run: Run, driver: Driver) -> None:
        plays = not self.suspended and driver.plays(run)
        place, (_, status) = self._place(run), self._found(run)
        there = self.sources.job_of(*place)
        if there is None and plays:
            with suppress(AlreadyExists):  # the watch has not told of it yet
                await self.sources.client.create(RLJOBS, self._manifest(run))
        elif there is not None and plays and not is_of(there, self.owner["metadata"]["uid"]):
            raise NameConflict("that of another has its name: delete it, or rename the experiment")
        elif there is not None and status is not None and not status.finished:
            wanted = driver.wanted(run, there, self.now) if plays else there
            wanted = {**wanted, "spec": {**wanted["spec"], "suspend": not plays}}
            if change := merge_patch(there, wanted):
                change["metadata"] = {**change.get("metadata", {}), "uid": there["metadata"]["uid"]}
                with suppress(NotFound):
                    await self.sources.client.patch(RLJOBS, *place, change)

    def _manifest(self, run: Run) -> Object:
        return render.run(self.owner, self.state.known, run)

    def _place(self, run: Run) -> JobKey:
        return self.owner["metadata"]["namespace"], self.state.known.run_name(run.trial, run.seed)

    def _found(self, run: Run) -> tuple[Object | None, RLJobStatus | None]:
        """Its RLJob, None where there is none of this experiment, and the newest status of that."""
        place = self._place(run)
        job = self.sources.job_of(*place)
        if job is None or job["metadata"].get("deletionTimestamp") or not is_of(job, self.owner["metadata"]["uid"]):
            return None, None
        return job, self.sources.status_of(place, job["metadata"]["uid"])

    def judged(self, run: Run, rung: int) -> dict[str, Any] | None:
        """See `RunsPlace`. Three pods try it."""
        (job, status), why = self._found(run), ""
        if job is None or status is None:
            return {"why": "it can't be judged: its RLJob is not there any more"}
        for name in self._judges(run, rung):
            pod = self.sources.judges.get(job["metadata"]["namespace"], name)
            if pod is None:
                why = self._make_judge(job, status, name, run, rung)
                return scored({}, 0, why) if why else None
            if not is_of(pod, job["metadata"]["uid"]):
                return None  # of another life of the run, and about to go
            judge = shown(pod, Role.EVALUATOR, self.now)
            if judge.phase is Phase.EXITED and (figures := parsed(pod)):  # whatever is beside it may run on
                return scored(figures, status.progress.raw_frames, "its judge left no mean")
            goes = judge.deleted and judge.disrupted != NODE_LOST  # then another one is made in its place
            if judge.phase is not Phase.EXITED or goes:
                if judge.phase is Phase.STARTING and judge.waiting_message:
                    self.held[run.key] = f"pod {name} does not come up: {judge.waiting_message}"
                return None
            why = f"pod {name} has failed: {judge.last_words or judge.disrupted or 'it left no figures'}"
        return scored({}, 0, why)

    def _judges(self, run: Run, rung: int) -> list[str]:
        """Pods that judge a run at a rung, one after the other where they fail."""
        return [names.judge(self._place(run)[1], rung, attempt) for attempt in range(_MOST_JUDGES)]

    def _make_judge(self, job: Object, status: RLJobStatus, name: str, run: Run, rung: int) -> str:
        """Have the pod made that judges, by the experiment as it is now: what it asks for may have been mended. Or why there can
        be none."""
        fixed, settings = status.controller.rendering, self.sources.settings
        settings = settings if fixed is None else started_with(fixed, settings)
        owned = replace(read(job, status).owned(), job=parse_job(self._manifest(run)))
        if not checkpoints_are(owned.job, settings):
            return "its checkpoints were in its learner's pod; name checkpoint.storage"
        words = judging(self.state.known, run, rung)
        self._needed.append((run, owned, render.judge(owned, settings, self.owner["metadata"]["name"], name, words)))
        return ""
