"""The journal of an experiment: a line of JSON for each decision and each observation, in their order, and nothing else.

What is decided next follows from the lines alone. So a controller that comes back reads them, and a reader can check them: each
decision must be, to the byte, the one that the lines before it lead to.
"""

import json
from collections.abc import Iterable
from typing import Any

from rljob.strict_json import dumps

from rljob_operator.experiments.decide import as_written, decide
from rljob_operator.experiments.state import DECISIONS, ExperimentState, Mismatch

Entry = dict[str, Any]


class JournalProblem(ValueError):
    """A journal that can't be gone on with; the message says which line, and why."""


class Journal:
    """A journal as its one controller has it: what the experiment is after it, and the lines that are ``new``, not stored yet."""

    def __init__(self) -> None:
        self.state = ExperimentState()
        self.lines = 0
        self.seconds = 0.0
        self._since: float | None = None
        self.new: list[Entry] = []

    def read(self, text: bytes) -> None:
        """Take what is stored. Raises JournalProblem where it can't be gone on with."""
        lines = text.splitlines(keepends=True)
        self.state, self.lines = replayed(lines), len(lines)
        self.seconds = self.state.seconds

    def at_work(self, now: float, *, counts: bool = True) -> None:
        """Bring up to date how many seconds its controllers have been at work. ``now``: by a clock that only goes forward;
        ``counts``: whether one is at work from now on."""
        self.seconds += now - self._since if self._since is not None else 0.0
        self._since = now if counts else None

    def add(self, entry: Entry) -> None:
        """One more line; it has to be stored before anything is done about it."""
        self.state.apply(entry)
        self.new.append(entry)

    def _taken(self) -> list[Entry]:
        """The lines that were added since, which are about to be stored."""
        taken, self.new = self.new, []
        self.lines += len(taken)
        return taken


def line(entry: Entry) -> bytes:
    """An entry as it is written."""
    return f"{dumps(entry, sort_keys=True)}\n".encode()


def written(entries: Iterable[Entry]) -> bytes:
    """Entries as they are written."""
    return b"".join(map(line, entries))


def whole_lines(text: bytes) -> bytes:
    """``text`` without a last line that was not written to its end: nothing has followed from it yet."""
    return text[: text.rfind(b"\n") + 1]


def replayed(lines: Iterable[bytes], *, checked: bool = True) -> ExperimentState:
    """What an experiment is after its journal. Raises JournalProblem where a line can't be read, contradicts those before it, or
    is another decision than they lead to. Suggestions are not made again; nor are decisions where not ``checked``, for those who
    only look."""
    state = ExperimentState()
    for number, text in enumerate(lines, 1):
        try:
            entry = json.loads(text)
            due = decide(state, as_written(entry)) if checked else None
            if due is not None and line(due) != text:
                raise Mismatch(f"the lines before it lead to {line(due).decode().strip()}")
            if checked and due is None and entry.get("kind") in DECISIONS:
                raise Mismatch("the lines before it lead to no decision")
            state.apply(entry)
        except (ValueError, KeyError, TypeError, AttributeError, Mismatch) as error:
            raise JournalProblem(
                f"line {number} of the journal, {text[:200].decode(errors='replace').strip()}: {error}"
            ) from None
    return state
