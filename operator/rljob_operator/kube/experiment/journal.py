"""The journal of an experiment in ConfigMaps, which its operator alone writes.

A line is stored before anything is done about it. Only the last ConfigMap is written, and only as it was read: an operator that
does not know all lines adds none.
"""

import asyncio
from typing import Final, Self

from rljob.api.experiment import RLExperimentStatus

from rljob_operator.experiments.journal import Entry, Journal as Lines, JournalProblem, written
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, Object
from rljob_operator.kube.job.stored import status_document, status_of
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import is_of
from rljob_operator.kube.render.others import JOURNAL_KEY, journal_part

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
