"""A cluster's jobs as the verbs' jobs: read from the API server, changed by what is written there."""

import asyncio
import base64
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, TypeVar

from rljob.api.exit_codes import EXIT_UNAVAILABLE
from rljob.api.experiment import is_experiment
from rljob.api.sources import spec_of_job
from rljob.api.status_model import rfc3339
from rljob.archive import ENTRY, Archive
from rljob.errors import CommandRefused, UsageError

from rljob_operator.core.context import some
from rljob_operator.core.desired import STOP_ANNOTATION
from rljob_operator.core.member import Role
from rljob_operator.experiments.journal import JournalProblem
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.kube.apiserver.access import NoAccess, load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, NotFound, Unavailable
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    PODS,
    RLEXPERIMENTS,
    RLJOBS,
    Object,
    Resource,
)
from rljob_operator.kube.experiment.reconcile import Journal
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.reach import PodsProxy
from rljob_operator.kube.render import names
from rljob_operator.kube.view import job_view, policy_pod
from rljob_operator.local.experiment_runs import became
from rljob_operator.polls.reach import TIMEOUT_SECONDS as POLL_TIMEOUT_SECONDS, Reach, statuses
from rljob_operator.verbs.jobs import Listing, Place, ShowLines, in_words, no_log, not_there, wait_for
from rljob_operator.view.job_view import JobView

FIELD_MANAGER: Final = "rljob"
TIMEOUT_SECONDS: Final = 15.0
_ASKED: Final = f"{names.ROLE_LABEL} in ({Role.LEARNER},{Role.INFERENCE})"
_FROM_STATUS: Final = "what the job's status knows is shown"

T = TypeVar("T")


class ClusterJobs:
    """The jobs of one namespace, or of all. One event loop and its connections live from ``with`` to its end.

    Args:
        place: where; what it leaves open is the kubeconfig's.
        plugin: the user types `kubectl rljob`.
    """

    def __init__(self, place: Place, *, plugin: bool = False) -> None:
        self._place, self._plugin = place, plugin
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self.run(self._open())
        except NoAccess as problem:
            self._runner.close()
            raise UsageError(str(problem)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.client.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, whole."""
        return self._runner.run(work)

    def refusing(self, verb: str, resource: Resource | str, everywhere: bool = False) -> AbstractContextManager[None]:
        """What the API server refuses of it becomes a sentence."""
        plural = resource if isinstance(resource, str) else resource.plural
        full = f"{plural}.{RLJOBS.group}" if plural in (RLJOBS.plural, RLEXPERIMENTS.plural) else plural
        return in_words(f"the API server at {self._host}", verb, full, None if everywhere else self.namespace)

    def command(self, verb: str, name: str) -> str:
        """What to type to use a verb on a job from here."""
        options = {"-n": self.namespace, "--context": self._place.context, "--kubeconfig": self._place.kubeconfig}
        given = [word for option, value in options.items() if value is not None for word in (option, value)]
        return shlex.join([*(("kubectl", "rljob") if self._plugin else ("rljob",)), verb, *given, name])

    def chosen(self, name: str | None, *, or_experiment: bool = False) -> "ClusterJob":
        """See `Jobs`: without a name the only one of the namespace."""
        if name is None:
            here = self._names()
            if len(here) != 1:
                known = f"there are: {some(here, 8)}" if here else "there is none"
                raise UsageError(f"name the job that is meant; in namespace {self.namespace} {known}")
            name = here[0]
        job = self.named(name)
        job.look(figures=False)
        return job

    def named(self, name: str) -> "ClusterJob":
        """The job of that name, or else the experiment, as far as one may look."""
        for resource in (RLJOBS, RLEXPERIMENTS):
            with suppress(ApiError):
                self.run(self.client.get(resource, self.namespace, name))
                return ClusterJob(self, name, resource)
        return ClusterJob(self, name)

    def create(self, written: Object, code: Archive | None = None) -> str:
        """Create the job or the experiment in this namespace, as `kubectl create` would; answers its name. ``code``: its files,
        in a ConfigMap that is deleted with it."""
        about = written["metadata"]
        if about.get("namespace", self.namespace) != self.namespace:
            raise UsageError(f"the manifest is of namespace {about['namespace']}, and {self.namespace} was named")
        document = {**written, "metadata": {**about, "namespace": self.namespace}}
        resource, word = (RLEXPERIMENTS, "an experiment") if is_experiment(written) else (RLJOBS, "a job")
        files = _files(document, code) if code is not None else None
        stored, new = self._stored(files) if files is not None else ({}, False)
        try:
            with self.refusing("create", resource):
                try:
                    made = self.run(self.client.create(resource, document))
                except AlreadyExists:
                    there = f"there is {word} {self.namespace}/{about['name']}"
                    kept = "that one keeps the spec and the code that it was made with"
                    raise UsageError(f"{there}; give this one another name, or delete that one: {kept}") from None
        except UsageError as problem:
            if new and getattr(problem, "exit_code", 0) != EXIT_UNAVAILABLE:  # then the job may be there
                with suppress(ApiError):
                    self.run(self.client.delete(CONFIG_MAPS, self.namespace, stored["name"], uid=stored["uid"]))
            raise
        if files is not None:
            owner = {
                "apiVersion": made["apiVersion"],
                "kind": resource.kind,
                "name": about["name"],
                "uid": made["metadata"]["uid"],
            }
            self._own(files, stored, owner)
        return str(made["metadata"]["name"])

    def _stored(self, config_map: Object) -> tuple[Object, bool]:
        """The metadata of the ConfigMap, whose name says what is in it, and whether this call has made it."""
        with self.refusing("create", CONFIG_MAPS):
            try:
                return self.run(self.client.create(CONFIG_MAPS, config_map))["metadata"], True
            except AlreadyExists:
                name = config_map["metadata"]["name"]
                return self.run(self.client.get(CONFIG_MAPS, self.namespace, name))["metadata"], False

    def _own(self, config_map: Object, stored: Object, owner: Object) -> None:
        """Have it go with ``owner``."""
        owners = [*stored.get("ownerReferences", ()), owner]
        change = {"metadata": {"uid": stored["uid"], "ownerReferences": owners}}
        with self.refusing("patch", CONFIG_MAPS):
            try:
                self.run(self.client.patch(CONFIG_MAPS, self.namespace, stored["name"], change))
            except NotFound:  # an earlier job of this name had it, whose deletion has reached it only now
                about = {**config_map["metadata"], "ownerReferences": [owner]}
                self.run(self.client.create(CONFIG_MAPS, {**config_map, "metadata": about}))

    def shown(self, name: str | None, everything: bool, *, figures: bool) -> Listing:
        """See `Jobs`: without a name those of the namespace, or of all namespaces."""
        if self._place.all_namespaces and name is not None:
            raise UsageError(f"--all-namespaces shows the jobs of all; leave out {name}, or name its namespace with -n")
        job = self.named(name) if name is not None else None
        of = f"{names.EXPERIMENT_LABEL}={name}" if job is not None and job.resource is RLEXPERIMENTS else ""
        if job is not None and not everything and not of:
            return Listing([job.look(figures=figures)], is_list=False)
        scope = None if self._place.all_namespaces else self.namespace
        with self.refusing("list", RLJOBS, everywhere=scope is None):
            found = self.run(self.client.list(RLJOBS, scope, label_selector=of)).items
        now = time.time()
        if not found:
            where = "any namespace" if scope is None else f"namespace {scope}"
            sys.stderr.write(f"no RLJobs in {where}\n")
        return Listing([job_view.view(each, now) for each in found], is_list=True, namespaces=scope is None)

    def splits(self, word: str) -> bool:
        """See `Jobs`: a member's name, and no job's."""
        return word.partition("-")[0] in set(Role) and word not in self._names()

    def missing(self, name: str) -> UsageError:
        """For a job that is not there: what is."""
        elsewhere: list[str] = []
        with suppress(ApiError):  # not every user may read other namespaces
            everywhere = self.run(self.client.list(RLJOBS, None, metadata_only=True)).items
            elsewhere = sorted(each["metadata"]["namespace"] for each in everywhere if each["metadata"]["name"] == name)
        return not_there(name, self.namespace, self._names(), elsewhere)

    async def _open(self) -> None:
        access = await load_access(self._place.kubeconfig, self._place.context)
        self._host = access.configuration.host
        self.namespace = self._place.namespace or access.namespace
        self.client = Client(access, timeout_seconds=TIMEOUT_SECONDS, field_manager=FIELD_MANAGER)

    def _names(self) -> list[str]:
        with self.refusing("list", RLJOBS):
            found = self.run(self.client.list(RLJOBS, self.namespace, metadata_only=True)).items
        return sorted(each["metadata"]["name"] for each in found)


class ClusterJob:
    """One RLJob, or an RLExperiment, which has the same conditions."""

    pause_seconds = 1.0

    def __init__(self, jobs: ClusterJobs, name: str, resource: Resource = RLJOBS) -> None:
        if "/" in name:
            raise UsageError(f"{name}: a job's name is meant here; -n NAMESPACE says where it is")
        self._jobs, self._client, self._name, self.resource = jobs, jobs.client, name, resource

    @property
    def place(self) -> str:
        """See `Job`."""
        return f"{self._jobs.namespace}/{self._name}"

    def command(self, verb: str) -> str:
        """See `Job`."""
        return self._jobs.command(verb, self._name)

    def look(self, *, figures: bool = True) -> JobView:
        """See `Job`. Learner and inference servers are asked through the API server, where that is allowed."""
        document = self._document()
        if not figures or is_experiment(document):
            seen = job_view.view(document, time.time())
            with suppress(UsageError):  # who may not read the journal sees the status
                return seen if not figures else replace(seen, further=became(self.experiment(), None))
            return seen
        try:
            found, problem = self.ask(statuses, _ASKED, POLL_TIMEOUT_SECONDS)
        except CommandRefused as refusal:
            found, problem = {}, str(refusal)
        answers = {name: said for name, said in found.items() if said}
        return job_view.view(document, time.time(), answers, found, problem and f"{problem}; {_FROM_STATUS}")

    def change(self, patch: Mapping[str, Any]) -> int:
        """See `Job`."""
        with self._named(), self._jobs.refusing("patch", self.resource):
            stored = self._jobs.run(self._client.patch(self.resource, self._jobs.namespace, self._name, patch))
        return int(stored["metadata"]["generation"])

    def stop(self, say: Callable[[str], None], timeout_seconds: float) -> None:
        """See `Job`: a request on the object that its operator follows. An experiment is suspended."""
        if self.look(figures=False).status.finished:
            say(f"{self.place}: it has ended; nothing runs")
            return
        if self.resource is RLEXPERIMENTS:
            generation = self.change({"spec": {"suspend": True}})
            say(f"{self.place}: its runs were asked to stop cleanly")
            wait_for(self, generation, lambda seen: seen.status.is_true("Suspended"), "stopped", timeout_seconds)
            say(f"{self.place}: stopped; `{self.command('resume')}` resumes it")
            return
        self.change({"metadata": {"annotations": {STOP_ANNOTATION: rfc3339(time.time())}}})
        say(f"{self.place}: asked to stop cleanly")
        seen = wait_for(self, 0, lambda seen: seen.stopped, "stopped", timeout_seconds)
        saved = seen.checkpoint
        # What the learner saved when it left is not verified, and may be newer.
        known = (
            f" continues from update {saved.step:,} or later"
            if saved is not None
            else " continues from the saved state"
        )
        lost = seen.status.checkpoint is not None and saved is None
        say(f"{self.place}: stopped; `{self.command('resume')}`{' starts from zero' if lost else known}")

    def logs(self, who: str | None, *, tail: int, follow: bool, show: ShowLines) -> None:
        """See `Job`."""
        with self._jobs.refusing("list", PODS):
            pods = self._jobs.run(job_view.find_pods(self._client, self._jobs.namespace, self._name))
        found = job_view.chosen(pods, who)
        if not pods:
            raise UsageError(f"{self.place} has no pods now, so it has no logs; see `{self.command('why')}`")
        if not found:
            raise no_log(who or "", self.place, list(job_view.chosen(pods, None)))
        try:
            with self._jobs.refusing("get", "pods/log"):
                if follow:
                    self._jobs.run(job_view.follow(lambda: self._pods(who), self._client, tail, show))
                else:
                    self._jobs.run(job_view.show_last(self._client, found, tail, show))
        except job_view.TooMany as problem:
            raise UsageError(str(problem)) from None

    def policy(self, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float) -> None:
        """See `Job`."""
        document = self._document()
        try:
            with self._jobs.refusing("create", "pods, and get and create pods/exec,"):
                self._jobs.run(policy_pod.fetch(self._client, document, out, say, timeout_seconds))
        except policy_pod.NoPolicy as problem:
            raise UsageError(f"{self.place}: {problem}") from None

    def experiment(self) -> ExperimentState:
        """See `Job`: from its ConfigMaps."""
        journal = Journal(self._client, self._document())
        try:
            with self._jobs.refusing("list", CONFIG_MAPS):
                self._jobs.run(journal.load())
        except JournalProblem as problem:
            raise UsageError(f"{self.place}: {problem}") from None
        return journal.state

    def ask(
        self,
        work: Callable[[Reach, Mapping[str, str]], Coroutine[Any, Any, T]],
        which: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> T:
        """See `Job`: through the API server. ``which``: a selector of the members that are meant."""
        with self._jobs.refusing("list", PODS):
            found = job_view.find_pods(self._client, self._jobs.namespace, self._name, which)
            pods = job_view.live(self._jobs.run(found))
        reach = PodsProxy(self._client, timeout_seconds)
        ports = {name: job_view.metrics_port(pod) for name, pod in pods.items()}
        urls = {name: reach.url(pod, port) for name, pod in pods.items() if (port := ports[name]) is not None}
        return self._jobs.run(work(reach, urls))

    def _document(self) -> Object:
        with self._named(), self._jobs.refusing("get", self.resource):
            return self._jobs.run(self._client.get(self.resource, self._jobs.namespace, self._name))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A job that is not there is told with what is."""
        try:
            yield
        except NotFound:
            raise self._jobs.missing(self._name) from None

    async def _pods(self, who: str | None) -> AsyncIterator[Mapping[str, Pod]]:
        """The pods whose logs are meant, again and again. A server that is away for a moment is waited for."""
        while True:
            with suppress(Unavailable):
                yield job_view.chosen(await job_view.find_pods(self._client, self._jobs.namespace, self._name), who)
            await asyncio.sleep(job_view.LOOK_SECONDS)


def _files(document: Object, code: Archive) -> Object:
    """The ConfigMap with ``code``, which ``document`` then names."""
    about = document["metadata"]
    name = names.code(about["name"], code.digest)
    spec_of_job(document)["code"] = {"configMap": name, "digest": f"sha256:{code.digest}"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "immutable": True,
        "binaryData": {ENTRY: base64.b64encode(code.content).decode()},
    }
