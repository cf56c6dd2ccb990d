"""The errors that every part of rljob shares; importing them imports nothing else."""

from typing import Final

_LONGEST: Final = 2_000


class UsageError(Exception):
    """A request can't be done as asked. ``str()`` says why, and what would be right."""


class CommandRefused(UsageError):
    """The same, where the cause is outside of the command: ``exit_code`` tells scripts which."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def first_line(error: BaseException) -> str:
    """An error as one line that can be shown and stored anywhere: its message, or its type if it has none, or can't tell it, as a
    user's own class of error may. Colours of a terminal, and bytes of a file's name that are no UTF-8, are written out."""
    try:
        line = "".join(str(error).strip().splitlines()[:1])
    except Exception:  # noqa: BLE001 (as above)
        line = ""
    line = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)
    shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ... ({len(line):,} characters)"
    return shown or type(error).__name__


def named(error: BaseException) -> str:
    """An error as one line with its type in front: ``KeyError: 'x'``; the type alone if there is no more to say."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
