"""The operator's process: the edges wired around the reconciler, and as many workers as reconcile at once."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Conflict, NotLeader, Unavailable, is_refusal
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import NODES, PODS, RLEXPERIMENTS, RLJOBS, Object
from rljob_operator.kube.experiment.reconcile import ExperimentReconciler
from rljob_operator.kube.experiment.runs import Sources
from rljob_operator.kube.job.kueue import JobQueue
from rljob_operator.kube.job.reconcile import Reconciler
from rljob_operator.kube.job.refusals import is_defect
from rljob_operator.kube.process.lease import new_identity
from rljob_operator.kube.reach import PodNetwork, PodsProxy
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.events import EventRecorder
from rljob_operator.kube.reporting.metrics import JobFigures, OperatorMetrics
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.intake import Intake
from rljob_operator.kube.watch.kept import ChildWatch, Kept, NodeCache, Workloads
from rljob_operator.kube.watch.pods import JobKey, Pods, owner_of
from rljob_operator.kube.watch.queue import LONGEST_DELAY_SECONDS, QueueClosed, WorkQueue
from rljob_operator.polls.poll import Poll
from rljob_operator.polls.reach import Way

log = logging.getLogger(__name__)

LEASE_NAME: Final = "rljob-operator"
WORKERS: Final = 16
SOON_SECONDS: Final = 0.5
"""After a change by another client a job is reconciled again so soon."""
UNAVAILABLE_SECONDS: Final = 8.0
"""While the API server does not answer, a job is tried later each time, up to this long. So a thousand jobs are no storm, and all
is right soon after its return."""
TOLD_FROM_SECONDS: Final = 1.0
"""A failure is told on its job once the next try is to wait so long, which is from the second failure on."""
UNPREPARED_SECONDS: Final = 5.0
BETWEEN_TURNS_SECONDS: Final = 0.1
COMING_UP_SECONDS: Final = 1.0
"""The events of pods within this time after a reconciliation of their job are answered by one: 500 actors that start bring
1,500. The second counts while pods come up, the first where one leaves or has ended."""


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """How one operator runs.

    Attributes:
        settings: what objects are made with.
        namespaces: whose jobs it looks after; None: those of all.
        lease_namespace: where the Lease is; empty takes the namespace that this process runs in, or that of the kubeconfig.
        kubeconfig, context: how to log in; None takes what a pod has, or ``KUBECONFIG`` or the user's own.
        port: of /metrics, /healthz and /readyz; 0 serves none.
        workers: how many jobs are reconciled at the same time.
        reach: the way to learners and replay shards.
    """

    settings: Settings
    namespaces: tuple[str, ...] | None = None
    lease_namespace: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    port: int = 0
    workers: int = WORKERS
    reach: Way = Way.PODS


class Operator:
    """One candidate: waits for the Lease, then looks after jobs until it is stopped or has lost it."""

    def __init__(self, config: OperatorConfig, access: Access, metrics: OperatorMetrics, client: Client) -> None:
        self._config, self._metrics, self._client = config, metrics, client
        namespaces: Sequence[str] | None = config.namespaces
        self._queue: WorkQueue[JobKey] = WorkQueue(tenant=itemgetter(0))
        self._expectations = Expectations()
        self._pods = Pods(client, namespaces, self._pod_seen)
        self._intake = Intake(access, client, namespaces, lambda namespace, name: self._queue.add((namespace, name)))
        metrics.registry.register(JobFigures(self._intake.documents))
        self._events = EventRecorder(client, new_identity(), counted=metrics.event)
        reach = PodsProxy(client) if config.reach is Way.PODS_PROXY else PodNetwork()
        self._poll: Poll[JobKey] = Poll(self._queue.add, reach, now=client.now, on_figures=self._figures_came)
        self._nodes = NodeCache(self._node_changed)
        self._children = ChildWatch(client, namespaces, self._child_gone)
        self._workloads = (
            Workloads(client, namespaces, self._queue.add, self._look_at_all) if config.settings.kueue else None
        )
        self._reconciler = Reconciler(
            client,
            self._intake.get,
            self._pods,
            self._poll,
            reach.url,
            self._events,
            self._expectations,
            config.settings,
            nodes=self._nodes,
            claim=self._children.claim,
            queue=JobQueue(client, self._workloads, config.settings, self._queue.add_after),
            recommended=metrics.recommended,
            now=client.now,
        )
        self._experiment_queue: WorkQueue[JobKey] = WorkQueue()
        experiments, judges = Kept(self._experiment_seen), Kept(self._experiment_seen)
        self._experiments = [
            Reflector(client, resource, copy, namespace=scope, label_selector=selector)
            for resource, copy, selector in ((RLEXPERIMENTS, experiments, ""), (PODS, judges, names.EXPERIMENT_LABEL))
            for scope in namespaces or (None,)
        ]
        sources = Sources(client, self._intake.get, self._reconciler.status, judges, config.settings)
        self._experiment_reconciler = ExperimentReconciler(sources, experiments, self._events)
        self.stopping = asyncio.Event()
        """Set by `stop`."""
        self._turned: dict[JobKey, float] = {}
        self._prepared = self.leading = False
        self.started = asyncio.Event()
        """Set once all jobs and pods are known, and work on them begins."""

    def stop(self) -> None:
        """End in good order: reconciliations under way are finished, and the Lease is released."""
        self.stopping.set()

    async def prepare(self) -> None:
        """Wait until work could begin: the API server answers, it serves RLJobs, and they and pods may be listed somewhere."""
        while not self._prepared:
            for namespace in self._config.namespaces or (None,):
                try:
                    for resource in (RLJOBS, PODS):
                        await anext(self._client.pages(resource, namespace, limit=1))
                    self._prepared = True
                except ApiError as problem:
                    log.warning("no candidate for the lease: %s", problem)
            if not self._prepared:
                await asyncio.sleep(UNPREPARED_SECONDS)

    async def lead(self) -> None:
        """Look after jobs until `stop`. What a member was asked to do goes on without us."""
        self.leading = True
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    self._pods.run(),
                    self._intake.run(),
                    self._events.run(),
                    Reflector(self._client, NODES, self._nodes).run(),
                    self._children.run(),
                    *(each.run() for each in self._experiments),
                ]
                if self._workloads is not None:
                    running.append(self._workloads.run())
                sources = [group.create_task(each) for each in running]
                starting = group.create_task(self._start(group))
                await self.stopping.wait()
                starting.cancel()
                self._queue.close()
                self._experiment_queue.close()
                for source in sources:
                    source.cancel()
            await self._events.flush()
        finally:
            self.leading = False
            await self._poll.close()

    async def _start(self, group: asyncio.TaskGroup) -> None:
        await self._pods.wait_synced()
        await self._intake.synced.wait()
        for key in self._pods.jobs():
            self._queue.add(key)
        log.info("looks after %d jobs with %d pods", len(self._intake), len(self._pods))
        for _ in range(self._config.workers):
            group.create_task(self._work(self._queue, self._reconciler))
        group.create_task(self._work(self._experiment_queue, self._experiment_reconciler))
        self.started.set()

    async def _work(self, queue: WorkQueue[JobKey], reconciler: Reconciler | ExperimentReconciler) -> None:
        """Reconcile what a queue gives."""
        with suppress(QueueClosed):
            while True:
                key = await queue.get()
                began = self._turned[key] = time.monotonic()
                result = "ok"
                try:
                    again = await reconciler.reconcile(key)
                    queue.forget(key)
                    if again is not None:
                        queue.add_after(key, again)
                except Conflict as problem:
                    result = "again"
                    log.info("%s/%s: %s", *key, problem)
                    queue.add_after(key, max(SOON_SECONDS, problem.retry_after_seconds or 0.0))
                except Exception as problem:  # noqa: BLE001  a defect with one job must not stop the others
                    result = await self._failed(queue, reconciler, key, problem)
                finally:
                    queue.done(key)
                    self._note_turn(key)
                    self._metrics.reconciled(result, time.monotonic() - began)

    async def _failed(
        self,
        queue: WorkQueue[JobKey],
        reconciler: Reconciler | ExperimentReconciler,
        key: JobKey,
        problem: Exception,
    ) -> str:
        """Have a key reconciled again, later each time, and tell on it what failed; answers which kind of failure it was."""
        result = "error" if is_defect(problem) else "refused"
        longest, defect = LONGEST_DELAY_SECONDS, problem if is_defect(problem) else None
        if isinstance(problem, NotLeader | Unavailable):
            result, longest = "again", UNAVAILABLE_SECONDS
        delay = queue.retry(key, getattr(problem, "retry_after_seconds", None) or 0.0, longest)
        level = logging.WARNING if is_refusal(problem) else logging.INFO
        log.log(level, "%s/%s: %s; again in %.1f s", *key, problem, delay, exc_info=defect)
        if isinstance(problem, NotLeader):
            await asyncio.sleep(SOON_SECONDS)  # the elector, which judges whether it is lost, needs the time
        elif is_refusal(problem) and delay >= TOLD_FROM_SECONDS:
            with suppress(ApiError, NotLeader):
                await reconciler.tell(key, problem)
        return result

    def _note_turn(self, key: JobKey) -> None:
        if self._intake.get(*key) is None:
            self._turned.pop(key, None)
            return
        self._turned[key] = time.monotonic()
        if (experiment := self._experiment_of(key)) is not None:
            self._experiment_queue.add_after((key[0], experiment), SOON_SECONDS)

    def _experiment_of(self, key: JobKey) -> str | None:
        """The name of the experiment that a job is a run of."""
        labels = (self._intake.get(*key) or {}).get("metadata", {}).get("labels") or {}
        return labels.get(names.EXPERIMENT_LABEL)

    def _experiment_seen(self, found: Object) -> None:
        """An experiment has changed, or a pod that judges a run of one."""
        about = found["metadata"]
        experiment = (about.get("labels") or {}).get(names.EXPERIMENT_LABEL, about["name"])
        self._experiment_queue.add((about["namespace"], experiment))

    def _pod_seen(self, key: JobKey, kind: str, pod: Object) -> None:
        self._expectations.observe((owner_of(pod) or {})["uid"], kind, pod)
        comes = (
            kind != "DELETED"
            and "deletionTimestamp" not in pod["metadata"]
            and (pod.get("status") or {}).get("phase") in (None, "Pending", "Running")
        )
        self._add_after_turn(key, COMING_UP_SECONDS if comes else BETWEEN_TURNS_SECONDS)

    def _figures_came(self, key: JobKey) -> None:
        # An experiment stops its runs at rungs, of which a job knows nothing.
        self._add_after_turn(key, 0.0 if self._experiment_of(key) else self._reconciler.patience(key))

    def _add_after_turn(self, key: JobKey, seconds: float) -> None:
        """Have a job reconciled ``seconds`` after its last time, at once where that is longer ago."""
        self._queue.add_after(key, self._turned.get(key, float("-inf")) + seconds - time.monotonic())

    def _child_gone(self, key: JobKey, uid: str) -> None:
        self._reconciler.child_gone(key, uid)
        self._queue.add(key)

    def _node_changed(self, name: str) -> None:
        """Reconcile the jobs that have pods on the node."""
        for pod in self._pods.on_node(name):
            self._queue.add((pod["metadata"]["namespace"], (owner_of(pod) or {})["name"]))

    def _look_at_all(self) -> None:
        for key in self._intake.known():
            self._queue.add(key)

    @property
    def ready(self) -> bool:
        """Whether it could take over; of one that leads, whether its caches are filled."""
        return self._pods.synced and self._intake.synced.is_set() if self.leading else self._prepared

    def show(self) -> None:
        """Set those figures that are states."""
        metrics = self._metrics
        for gauge, value in (
            (metrics.jobs_waiting, self._queue.depth),
            (metrics.jobs_delayed, self._queue.delayed),
            (metrics.jobs_failing, self._queue.failing),
            (metrics.jobs_waiting_seconds, self._queue.age_seconds),
            (metrics.leader, self.leading),
            (metrics.jobs, len(self._intake)),
            (metrics.cached_pods, len(self._pods)),
            (metrics.watch_age_seconds, self._pods.age_seconds if self.leading and self._pods.synced else 0.0),
        ):
            gauge.set(value)
        for each in self._config.namespaces or ("",):
            metrics.namespace_readable.labels(each).set((each or None) not in self._intake.unread)
