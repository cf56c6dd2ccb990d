"""The journal of an experiment in ConfigMaps, which its operator alone writes.

A line is stored before anything is done about it. Only the last ConfigMap is written, and only as it was read: an operator that
does not know all lines adds none.
"""

import asyncio
from typing import Final

from rljob_operator.experiments.journal import Journal as Lines, JournalProblem
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, Object
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import is_of
from rljob_operator.kube.render.others import JOURNAL_KEY, journal_part

PART_BYTES: Final = 100_000
"""A ConfigMap with so much is full. An API server stores all of it anew with each write; of an object of 900 kB a thousand trials
would make gigabytes. One write alone may be longer: a manifest of 512 kB at most, and a line for each of a thousand runs."""


class Journal(Lines):
    """The journal of the experiment ``owner``, and what the experiment is after it."""

    def __init__(self, client: Client, owner: Object) -> None:
        super().__init__()
        self._client, self._owner = client, owner
        self._last: Object | None = None
        self._parts = 0

    async def load(self) -> None:
        """Read it. Raises JournalProblem where it can't be gone on with, and what `Client` raises."""
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

    async def store(self) -> None:
        """Store the lines that were added, in one write. Where it raises, which lines are stored is known only once it is loaded
        anew. Raises JournalProblem where another's ConfigMap has the name."""
        if not (text := self._taken().decode()):
            return
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
