"""Reconcile one experiment: take in what has become of its runs, decide by the core, store every line, and only then act."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rljob.api import ManifestError
from rljob.api.conditions import ConditionType, Reason
from rljob.api.experiment import WHY_COMMON
from rljob.api.experiment_status import RLExperimentStatus
from rljob.api.load import given

from rljob_operator.core.conditions.update import ConditionUpdate, false
from rljob_operator.experiments.driver import Driver
from rljob_operator.experiments.journal import Entry, JournalProblem
from rljob_operator.experiments.state import Mismatch
from rljob_operator.experiments.summary import after, conditions, finished, in_words, summary
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import RLEXPERIMENTS, VOLUME_CLAIMS, Object, merge_patch
from rljob_operator.kube.experiment.journal import Journal
from rljob_operator.kube.experiment.runs import Runs, Sources
from rljob_operator.kube.job.refusals import in_words as told
from rljob_operator.kube.job.stored import is_ours, status_of
from rljob_operator.kube.reporting.events import EventRecorder, reference
from rljob_operator.kube.watch.kept import Kept
from rljob_operator.kube.watch.pods import JobKey

LOOK_SECONDS: Final = 10.0
"""Between two looks at an experiment of which nothing is heard: a run that was deleted by hand is made again within it."""
UNREADABLE_SECONDS: Final = 60.0
"""The same where its journal can't be gone on with."""
STATUS_SECONDS: Final = 5.0
"""A status that differs in figures alone is written at most so often."""


@dataclass(slots=True)
class Known:
    """What is remembered of one stored object between two reconciliations. All of it can be found out again.

    Attributes:
        status: as it was written last; ``stored``: the same as the API server has it.
        journal: None before it was read.
        generation: of the spec that was read last; ``refused``: why it is not in force.
        unmade: runs whose RLJob was refused for good, and why, before that is in the journal.
        seconds: how long the experiment has been at work; ``counted``: until when, monotonic, None while it is suspended.
        written: when its status was written last, monotonic.
    """

    uid: str
    status: RLExperimentStatus
    stored: Object
    journal: Journal | None = None
    generation: int = 0
    refused: str = ""
    unmade: dict[tuple[int, int], str] = field(default_factory=dict)
    seconds: float = 0.0
    counted: float | None = None
    written: float = float("-inf")


class ExperimentReconciler:
    """Reconciles every experiment of one operator. A key is in work only once at a time; `kube.watch.queue` sees to that.

    Args:
        experiments: the stored objects.
        now: Unix seconds; ``monotonic``: seconds that only go forward.
    """

    def __init__(
        self,
        sources: Sources,
        experiments: Kept,
        events: EventRecorder,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources, self._experiments, self._events = sources, experiments, events
        self._now, self._monotonic = now, monotonic
        self._known: dict[JobKey, Known] = {}

    async def reconcile(self, key: JobKey) -> float | None:
        """Reconcile the experiment; in how many seconds to do it again, None where only a change matters. Raises `ApiError`."""
        document, known = self._experiments.get(*key), self._known.get(key)
        if document is None or (known is not None and known.uid != document["metadata"]["uid"]):
            self._known.pop(key, None)
        if (
            document is None
            or document["metadata"].get("deletionTimestamp")
            or not is_ours(document["spec"]["template"])
        ):
            return None  # its children go with it
        known = self._known.setdefault(
            key,
            Known(document["metadata"]["uid"], status_of(document, RLExperimentStatus), document.get("status") or {}),
        )
        if finished(known.status) and known.status.observed_generation == document["metadata"]["generation"]:
            known.journal = None
            return None
        try:
            driver, runs, entries = await self._decided(document, known)
        except BaseException as problem:
            known.journal = None  # which lines are stored is not known
            if not isinstance(problem, JournalProblem):
                raise
            await self._tell(document, known, "JournalUnreadable", str(problem))
            return UNREADABLE_SECONDS
        about, state = reference(RLEXPERIMENTS, document), driver.journal.state
        for entry in entries:
            kind = "Warning" if entry["kind"] == "Fail" else "Normal"
            self._events.record(about, kind, entry["kind"], in_words(state, entry), action="Deciding")
        await runs.lead(driver)
        for words in runs.refused:
            self._events.record(about, "Warning", Reason.NOT_MADE, words, action="Deciding")
        updates = conditions(
            state,
            known.status,
            suspend=runs.suspended,
            rests=driver.rests,
            judged=driver.judged,
            refused=known.refused,
            trouble=[*(f"trial {trial}: {why}" for (trial, _), why in driver.unjudged.items()), *runs.refused],
            held=[f"trial {trial}: {why}" for (trial, _), why in runs.held.items()],
        )
        # The next look notes that what nobody may make has failed.
        return min(
            0.0 if known.unmade and not runs.suspended and state.end is None else LOOK_SECONDS,
            await self._write(document, known, updates),
        )

    async def tell(self, key: JobKey, problem: Exception) -> None:
        """Say on the experiment that it can't be reconciled, and why; the next success takes that back."""
        document, known = self._experiments.get(*key), self._known.get(key)
        if document is not None and known is not None:
            await self._tell(document, known, Reason.TURN_FAILED, told(problem))

    async def _decided(self, document: Object, known: Known) -> tuple[Driver, Runs, list[Entry]]:
        """The driver, the runs as they are, and the newest lines, which say why; all of them are stored."""
        if known.journal is None:
            known.journal = Journal(self._sources.client, document)
            await known.journal.load()
            if (found := known.journal.lines) < (before := known.status.journal_lines):  # its last ConfigMap is gone
                raise JournalProblem(
                    f"only {found} of {before} lines of the journal are there; delete the experiment, and begin anew"
                )
            known.counted, known.seconds, known.generation = None, known.journal.state.seconds, 0
        journal, entries = known.journal, list[Entry]()
        state, suspend, now = journal.state, bool(document["spec"].get("suspend")), self._monotonic()
        known.seconds += now - known.counted if known.counted is not None else 0.0
        known.counted = None if suspend else now

        if known.generation != document["metadata"]["generation"]:
            known.generation, known.refused = document["metadata"]["generation"], ""
            try:
                taken = await asyncio.to_thread(state.taking, _settings_of(document))
                await self._require_common(document)
                for entry in (taken,) if taken is not None else ():
                    journal.add(entry)
                    entries.append(entry)
            except (ManifestError, Mismatch) as problem:
                known.refused = str(problem)
        runs = Runs(self._sources, document, state, suspend, self._now(), known.unmade)
        driver = Driver(journal, runs)
        if not suspend and state.experiment is not None:
            # A suggestion takes a while.
            entries += await asyncio.to_thread(driver.turn, lambda: round(known.seconds, 1))
        await journal.store()
        return driver, runs, entries

    async def _require_common(self, document: Object) -> None:
        """Raises Mismatch where the members of a population have their checkpoints in a claim that not all can mount."""
        spec, namespace = document["spec"], document["metadata"]["namespace"]
        storage = (spec["template"]["spec"].get("checkpoint") or {}).get("storage") or {}
        name = (storage.get("persistentVolumeClaim") or {}).get("claimName")
        if spec.get("population") and name:
            with suppress(NotFound):  # it may come
                claim = await self._sources.client.get(VOLUME_CLAIMS, namespace, name)
                if "ReadWriteMany" not in (modes := claim["spec"]["accessModes"]):
                    raise Mismatch(f"claim {name} is {', '.join(modes)}, ReadWriteMany is needed: {WHY_COMMON}")

    async def _tell(self, document: Object, known: Known, reason: str, words: str) -> None:
        self._events.record(reference(RLEXPERIMENTS, document), "Warning", reason, words, action="Deciding")
        await self._write(document, known, [false(ConditionType.READY, reason, words)])

    async def _write(self, document: Object, known: Known, updates: Iterable[ConditionUpdate]) -> float:
        """Write the status where it differs; in how many seconds that is due, where it differs in figures alone."""
        now, about, before, found = self._monotonic(), document["metadata"], known.status, dict[str, Any]()
        if known.journal is not None and known.journal.state.experiment is not None:
            lines = {"seconds": int(known.seconds), "journal_lines": known.journal.lines}
            found = summary(known.journal.state) | lines
        status = after(before, updates, found, about["generation"], self._now())
        if status.conditions is before.conditions and now < known.written + STATUS_SECONDS:
            return known.written + STATUS_SECONDS - now
        if change := merge_patch(known.stored, status.document()):
            patch, place = {"status": change, "metadata": {"uid": known.uid}}, (about["namespace"], about["name"])
            await self._sources.client.patch(RLEXPERIMENTS, *place, patch, subresource="status")
            known.status, known.stored, known.written = status, status.document(), now
        return LOOK_SECONDS


def _settings_of(document: Object) -> dict[str, Any]:
    """What the journal keeps of a stored experiment: its manifest, without what only says how it is shown or stopped."""
    written = given(document)
    spec = {name: value for name, value in written["spec"].items() if name != "suspend"}
    return {**written, "metadata": {"name": written["metadata"]["name"]}, "spec": spec}
