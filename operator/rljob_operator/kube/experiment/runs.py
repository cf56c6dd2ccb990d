"""The runs of an experiment: each is an RLJob, suspended where it has played to its rung, and a pod judges it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rljob.api import ManifestError, parse_job
from rljob.api.conditions import ConditionType
from rljob.api.learned import as_begun
from rljob.api.status import RLJobStatus

from rljob_operator.core.member import Phase, Role
from rljob_operator.experiments.journal import Entry
from rljob_operator.experiments.state import ExperimentState, Run, RunState, judging, scored, seen
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
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.job.keys import NameConflict, create
from rljob_operator.kube.job.last_words import parsed
from rljob_operator.kube.job.members import NODE_LOST, shown
from rljob_operator.kube.job.stored import read
from rljob_operator.kube.render import experiment as render, names
from rljob_operator.kube.render.metadata import Owned, is_of
from rljob_operator.kube.render.rendering import started_with
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoints_are
from rljob_operator.kube.watch.kept import Kept
from rljob_operator.kube.watch.pods import JobKey

_FOR_GOOD, _MAY_PASS = (Invalid, Forbidden), (QuotaExceeded, NamespaceTerminating, LacksRight)
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
    """The runs of the experiment ``owner`` as they are now. `look` and `verdict` only read, and note which pods they need; `lead`
    has what is wanted done.

    ``now``: Unix seconds. ``unmade``: runs whose RLJob was refused for good, and why, from one reconciliation to the next.
    ``unjudged``: runs of the best trial, and why they can't be judged anew. ``held``: runs that do not come up, or whose judge
    does not, and why, as far as conditions or the pod tell. ``refused``: what the API server refuses, in its words, and runs
    whose names others have.
    """

    sources: Sources
    owner: Object
    state: ExperimentState
    suspended: bool
    now: float
    unmade: dict[tuple[int, int], str]
    unjudged: dict[tuple[int, int], str] = field(default_factory=dict)
    held: dict[tuple[int, int], str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _needed: list[tuple[Run, Owned, Object]] = field(default_factory=list)
    _kept: set[str] = field(default_factory=set)
    _unknown: set[str] = field(default_factory=set)

    def look(self, run: Run) -> Entry | None:
        """What has become of a run that should play to its rung: its score or its failure; None while it plays or is judged."""
        job, status = self._found(run)
        if job is None:
            return seen(run, self._makes_none(run))
        if status is None:
            return None
        failed, complete = (status.condition(each) for each in (ConditionType.FAILED, ConditionType.COMPLETE))
        if failed is not None and failed.status == "True":
            return seen(run, {"why": f"{failed.reason}: {failed.message}"[:500]})
        self._note_what_holds(run, job, status)
        found = self._judged(run, run.rung) if self.rests(run) and not self._plays(run, status) else None
        if found is not None and _comparable(job) != _comparable(self._manifest(run)):
            found = {"why": f"RLJob {job['metadata']['name']} was changed by hand, so that it is another trial"}
        return seen(run, found, complete.reason if complete is not None else "")

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

    def verdict(self, run: Run) -> Entry | None:
        """How a run of the best trial is judged anew, on games that it was not chosen by; None while it is, and where it was."""
        if run.key in self.state.verdicts or not self.rests(run):
            return None
        found = self._judged(run, len(self.state.known.rungs))
        if found is not None and "why" in found:
            self.unjudged[run.key] = found["why"]
            return None
        return None if found is None else {"kind": "Verdict", "trial": run.trial, "seed": run.seed, **found}

    def rests(self, run: Run) -> bool:
        """Whether nothing of it runs: it has ended, it is suspended as it should be, or it is not there."""
        job, status = self._found(run)
        suspended = job is not None and job["spec"]["suspend"] and status is not None and status.is_true("Suspended")
        return job is None or suspended or (status is not None and status.finished)

    async def lead(self) -> None:
        """Make what is missing and wanted, have runs play that should and suspend the others, and remove judges that are done. A
        refusal of one run concerns no other."""
        for run in list(self.state.runs.values()):
            with self._by_itself(run, f"RLJob {self._place(run)[1]}"):
                await self._lead(run)
        if self.suspended:
            return
        about = self.owner["metadata"]
        for run, owned, pod in self._needed:
            with self._by_itself(run, f"pod {pod['metadata']['name']}"):
                found, new = await create(self.sources.client, owned, pod)
                if not new:  # it is not known where it has lost the label by which it is watched
                    change = {"metadata": {"uid": found["metadata"]["uid"], "labels": pod["metadata"]["labels"]}}
                    await self.sources.client.patch(PODS, about["namespace"], pod["metadata"]["name"], change)
        for pod in self.sources.judges.labelled(about["namespace"], names.EXPERIMENT_LABEL, about["name"]):
            here = pod["metadata"]
            runs = {each["name"] for each in here.get("ownerReferences") or ()}
            done = here["name"] not in self._kept and self._unknown.isdisjoint(runs)
            if done and not here.get("deletionTimestamp"):
                with suppress(NotFound):
                    await self.sources.client.delete(PODS, here["namespace"], here["name"], uid=here["uid"])

    @contextmanager
    def _by_itself(self, run: Run, what: str) -> Iterator[None]:
        """What is refused of a run is told, and the others go on. A run that a policy lets nobody make has failed."""
        try:
            yield
        except (ApiError, NameConflict) as problem:
            if not is_refusal(problem):
                raise
            words = f"{what} is refused: {problem}"
            self.refused.append(f"trial {run.trial}: {words}")
            if isinstance(problem, _FOR_GOOD) and not isinstance(problem, _MAY_PASS) and self._found(run)[0] is None:
                self.unmade[run.key] = words

    async def _lead(self, run: Run) -> None:
        place, (_, status) = self._place(run), self._found(run)
        there, plays = self.sources.job_of(*place), not self.suspended and self._plays(run, status)
        self._unknown |= {place[1]} if status is None else set()  # of an operator that has just begun
        if there is None and plays:
            with suppress(AlreadyExists, ManifestError):  # the watch has not told of it yet; `look` tells of the other
                await self.sources.client.create(RLJOBS, self._manifest(run))
        elif there is not None and plays and not is_of(there, self.owner["metadata"]["uid"]):
            raise NameConflict("that of another has its name: delete it, or rename the experiment")
        elif there is not None and status is not None and there["spec"]["suspend"] == plays and not status.finished:
            change = {"spec": {"suspend": not plays}, "metadata": {"uid": there["metadata"]["uid"]}}
            with suppress(NotFound):
                await self.sources.client.patch(RLJOBS, *place, change)

    def _plays(self, run: Run, status: RLJobStatus | None) -> bool:
        """Whether it is to play on: it has not reached its rung, as far as is known."""
        wanted = self.state.end is None and run.state is RunState.RUNNING
        frames = self.state.known.rungs[run.rung]
        return wanted and (status is None or (not status.finished and status.progress.raw_frames < frames))

    def _makes_none(self, run: Run) -> dict[str, Any] | None:
        """Why there is no job: it was refused, or its settings make none, as an older journal may have suggestions that are not
        allowed together."""
        if why := self.unmade.pop(run.key, ""):
            return {"why": why[:500]}
        try:
            self._manifest(run)
        except ManifestError as error:
            return {"why": str(error)[:500]}
        return None

    def _manifest(self, run: Run) -> Object:
        return render.run(self.owner, self.state.known, run.trial, run.seed)

    def _place(self, run: Run) -> JobKey:
        return self.owner["metadata"]["namespace"], self.state.known.run_name(run.trial, run.seed)

    def _found(self, run: Run) -> tuple[Object | None, RLJobStatus | None]:
        """Its RLJob, None where there is none of this experiment, and the newest status of that."""
        place = self._place(run)
        job = self.sources.job_of(*place)
        if job is None or job["metadata"].get("deletionTimestamp") or not is_of(job, self.owner["metadata"]["uid"]):
            return None, None
        return job, self.sources.status_of(place, job["metadata"]["uid"])

    def _judged(self, run: Run, rung: int) -> dict[str, Any] | None:
        """How its newest weights (its best, with an evaluator; at the end those that were kept) are judged by the games of
        ``rung``; None while they are. What is wrong stands in ``why``."""
        (job, status), why, names_of_pods = self._found(run), "", list[str]()
        if job is None or status is None:
            return {"why": "it can't be judged: its RLJob is not there any more"}
        for attempt in range(_MOST_JUDGES):
            name = names.judge(job["metadata"]["name"], rung, attempt)
            names_of_pods.append(name)
            pod = self.sources.judges.get(job["metadata"]["namespace"], name)
            if pod is None:
                if why := self._make_judge(job, status, name, run, rung):
                    return scored({}, 0, why)
                break
            if not is_of(pod, job["metadata"]["uid"]):
                break  # of another life of the run, and about to go
            judge = shown(pod, Role.EVALUATOR, self.now)
            if judge.phase is Phase.EXITED and (figures := parsed(pod)):  # whatever is beside it may run on
                return scored(figures, status.progress.raw_frames, "its judge left no mean")
            goes = judge.deleted and judge.disrupted != NODE_LOST  # then another one is made in its place
            if judge.phase is not Phase.EXITED or goes:
                if judge.phase is Phase.STARTING and judge.waiting_message:
                    self.held[run.key] = f"pod {name} does not come up: {judge.waiting_message}"
                break
            why = f"pod {name} has failed: {judge.last_words or judge.disrupted or 'it left no figures'}"
        else:
            return scored({}, 0, why)
        self._kept.update(names_of_pods)
        return None

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


def _comparable(document: Object) -> dict[str, Any] | None:
    """The part of a job that makes it the trial that it is, without its number of actors, which an autoscaler may write."""
    with suppress(ManifestError):
        return as_begun(parse_job(document).spec.model_dump(by_alias=True), "actors.replicas")
    return None
