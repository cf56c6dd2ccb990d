"""Reconcile one experiment: take in what has become of its runs, decide by the core, store every line, and only then act.

Its journal is in ConfigMaps, which its operator alone writes. Only the last ConfigMap is written, and only as it was read: an
operator that does not know all lines adds none.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

from rljob.api import ManifestError
from rljob.api.conditions import ConditionType, Reason
from rljob.api.experiment import WHY_COMMON, RLExperimentStatus
from rljob.api.load import given

from rljob_operator.core.conditions.update import ConditionUpdate, false
from rljob_operator.experiments.driver import Driver
from rljob_operator.experiments.journal import Entry, Journal as Lines, JournalProblem, written
from rljob_operator.experiments.state import Mismatch
from rljob_operator.experiments.summary import after, conditions, finished, in_words, summary
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, NotFound
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLEXPERIMENTS, VOLUME_CLAIMS, Object, merge_patch
from rljob_operator.kube.experiment.runs import Runs, Sources
from rljob_operator.kube.job.refusals import in_words as told
from rljob_operator.kube.job.stored import is_ours, status_document, status_of
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import is_of
from rljob_operator.kube.render.others import JOURNAL_KEY, journal_part
from rljob_operator.kube.reporting.events import EventRecorder, reference
from rljob_operator.kube.watch.kept import Kept
from rljob_operator.kube.watch.pods import JobKey

PART_BYTES: Final = 100_000
"""A ConfigMap with so much is full. An API server stores all of it anew with each write; of an object of 900 kB a thousand trials
would make gigabytes. One write alone may be longer: a manifest of 512 kB at most, and a line for each of a thousand runs."""


class Journal(Lines):
    """The journal of the experiment ``owner``, and what the experiment is after it: all that is remembered of one.

    Attributes:
        uid: of the experiment.
        status: as it was written last, at ``written``, monotonic; ``stored``: the same as the API server has it.
        generation: of the spec that was read last; ``refused``: why it is not in force.
    """

    def __init__(self, client: Client, owner: Object) -> None:
        super().__init__()
        self._client, self._owner = client, owner
        self._last: Object | None = None
        self._parts = 0
        self.uid, self.status = owner["metadata"]["uid"], status_of(owner, RLExperimentStatus)
        self.stored: Object = status_document(owner)
        self.generation, self.refused, self.written = 0, "", float("-inf")

    async def load(self) -> Self:
        """Read it; itself. Raises JournalProblem where it can't be gone on with, and what `Client` raises."""
        about, texts = self._owner["metadata"], list[str]()
        listed = await self._client.list(CONFIG_MAPS, about["namespace"], metadata_only=True)
        found = {each["metadata"]["name"] for each in listed.items if is_of(each, about["uid"])}
        for number in range(len(found)):
            if (name := names.journal(about["name"], number)) not in found:
                raise JournalProblem(f"ConfigMap {name} of the journal is gone; delete the experiment, and begin anew")
            self._last = await self._client.get(CONFIG_MAPS, about["namespace"], name)
            texts.append((self._last.get("data") or {}).get(JOURNAL_KEY, ""))
        self._parts = len(found)
        await asyncio.to_thread(self.read, "".join(texts).encode())  # every trial of it is checked
        if self.lines < (before := self.status.journal_lines):  # its last ConfigMap is gone
            raise JournalProblem(
                f"only {self.lines} of {before} lines of the journal are there; delete the experiment, and begin anew"
            )
        return self

    async def store(self) -> list[Entry]:
        """Store the lines that were added, in one write, and answer them. Where it raises, which lines are stored is known only
        once it is loaded anew. Raises JournalProblem where another's ConfigMap has the name."""
        if not (entries := self._taken()):
            return entries
        text = written(entries).decode()
        about = self._owner["metadata"]
        before = self._last["data"][JOURNAL_KEY] if self._last is not None else ""
        if self._last is None or len(before) + len(text) > PART_BYTES:
            made = journal_part(self._owner, self._parts, text)
            try:
                self._last = await self._client.create(CONFIG_MAPS, made)
            except AlreadyExists:
                name = made["metadata"]["name"]
                raise JournalProblem(
                    f"ConfigMap {name} is not of this experiment: delete it, or rename the experiment"
                ) from None
            self._parts += 1
        else:
            here, change = self._last["metadata"], {"data": {JOURNAL_KEY: before + text}}
            self._last = await self._client.patch(
                CONFIG_MAPS, about["namespace"], here["name"], change, resource_version=here["resourceVersion"]
            )
        return entries


LOOK_SECONDS: Final = 10.0
"""Between two looks at an experiment of which nothing is heard: a run that was deleted by hand is made again within it."""
UNREADABLE_SECONDS: Final = 60.0
"""The same where its journal can't be gone on with."""
STATUS_SECONDS: Final = 5.0
"""A status that differs in figures alone is written at most so often."""


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
        self._journals: dict[JobKey, Journal] = {}

    async def reconcile(self, key: JobKey) -> float | None:
        """Reconcile the experiment; in how many seconds to do it again, None where only a change matters. Raises `ApiError`."""
        document, journal = self._experiments.get(*key), self._journals.pop(key, None)
        if (
            document is None
            or document["metadata"].get("deletionTimestamp")
            or not is_ours(document["spec"]["template"])
        ):
            return None  # its children go with it
        status = status_of(document, RLExperimentStatus)
        if finished(status) and status.observed_generation == document["metadata"]["generation"]:
            return None
        suspend = bool(document["spec"].get("suspend"))
        try:
            if journal is None or journal.uid != document["metadata"]["uid"]:
                journal = await Journal(self._sources.client, document).load()
            journal.at_work(self._monotonic(), counts=not suspend)
            await self._take(document, journal)
            state = journal.state
            runs = Runs(self._sources, document, state, suspend, self._now())
            driver = Driver(journal, runs)
            if not suspend and state.experiment is not None:
                await asyncio.to_thread(driver.turn)  # a suggestion takes a while
            entries = await journal.store()
        except JournalProblem as problem:
            await self._tell(key, document, "JournalUnreadable", str(problem))
            return UNREADABLE_SECONDS
        self._journals[key] = journal  # else it is not known which lines are stored
        about = reference(RLEXPERIMENTS, document)
        for entry in entries:
            kind = "Warning" if entry["kind"] == "Fail" else "Normal"
            self._events.record(about, kind, entry["kind"], in_words(state, entry), action="Deciding")
        await runs.lead(driver)
        for words in runs.refused:
            self._events.record(about, "Warning", Reason.NOT_MADE, words, action="Deciding")
        updates = conditions(
            state,
            journal.status,
            suspend=suspend,
            rests=driver.rests,
            judged=driver.judged,
            refused=journal.refused,
            trouble=[*(f"trial {trial}: {why}" for (trial, _), why in driver.unjudged.items()), *runs.refused],
            held=[f"trial {trial}: {why}" for (trial, _), why in runs.held.items()],
        )
        # The next look notes that what nobody may make has failed.
        return min(
            0.0 if journal.new else LOOK_SECONDS,
            await self._write(document, journal, updates),
        )

    async def tell(self, key: JobKey, problem: Exception) -> None:
        """Say on the experiment that it can't be reconciled, and why; the next success takes that back."""
        if (document := self._experiments.get(*key)) is not None:
            await self._tell(key, document, Reason.TURN_FAILED, told(problem))

    async def _take(self, document: Object, journal: Journal) -> None:
        """Take over the settings of another generation, or note why they are refused."""
        if journal.generation == document["metadata"]["generation"]:
            return
        journal.generation, journal.refused = document["metadata"]["generation"], ""
        try:
            taken = await asyncio.to_thread(journal.state.taking, _settings_of(document))
            await self._require_common(document)
            if taken is not None:
                journal.add(taken)
        except (ManifestError, Mismatch) as problem:
            journal.refused = str(problem)

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

    async def _tell(self, key: JobKey, document: Object, reason: str, words: str) -> None:
        self._events.record(reference(RLEXPERIMENTS, document), "Warning", reason, words, action="Deciding")
        journal = self._journals.get(key) or Journal(self._sources.client, document)
        await self._write(document, journal, [false(ConditionType.READY, reason, words)])

    async def _write(self, document: Object, journal: Journal, updates: Iterable[ConditionUpdate]) -> float:
        """Write the status where it differs; in how many seconds that is due, where it differs in figures alone."""
        now, about, before, found = self._monotonic(), document["metadata"], journal.status, dict[str, Any]()
        if journal.state.experiment is not None:
            found = summary(journal.state) | {"seconds": int(journal.seconds), "journal_lines": journal.lines}
        status = after(before, updates, found, about["generation"], self._now())
        if status.conditions is before.conditions and now < journal.written + STATUS_SECONDS:
            return journal.written + STATUS_SECONDS - now
        if change := merge_patch(journal.stored, status.document()):
            patch, place = {"status": change, "metadata": {"uid": about["uid"]}}, (about["namespace"], about["name"])
            await self._sources.client.patch(RLEXPERIMENTS, *place, patch, subresource="status")
            journal.status, journal.stored, journal.written = status, status.document(), now
        return LOOK_SECONDS


def _settings_of(document: Object) -> dict[str, Any]:
    """What the journal keeps of a stored experiment: its manifest, without what only says how it is shown or stopped."""
    written = given(document)
    spec = {name: value for name, value in written["spec"].items() if name != "suspend"}
    return {**written, "metadata": {"name": written["metadata"]["name"]}, "spec": spec}
