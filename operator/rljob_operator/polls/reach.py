"""How a member's metrics port is reached: the methods of every way to it, and what counts as an answer."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

LARGEST_BYTES: Final = 8 << 20
USUAL_BYTES: Final = 1 << 18
"""An answer up to this is read within 10 ms; longer ones wait for one another (`Poll`)."""
TIMEOUT_SECONDS: Final = 2.0


class NoAnswer(Exception):
    """Why a member's answer can't be used, or that there is none."""


class TooLong(NoAnswer):
    """The answer has more bytes than were asked for."""


class Reach(Protocol):
    """One way. ``url`` is where a member is asked, as this way names it."""

    async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """What a page says. Raises `NoAnswer`."""

    async def health(self, url: str) -> tuple[int, str]:
        """What /healthz says, whatever that is: (HTTP status, how it begins). Raises `NoAnswer`."""

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """Leave a request; whether it was taken."""

    async def close(self) -> None:
        """Give up all connections."""


def good(code: int, body: bytes, page: str, most_bytes: int) -> bytes:
    """The answer, unless it says that there is none, or is too long. Raises `NoAnswer`."""
    if code != 200:
        raise NoAnswer(f"its {page} answers with HTTP {code}")
    if len(body) > most_bytes:
        raise TooLong(f"its {page} has more than {most_bytes:,} bytes")
    return body


def not_in_time(timeout_seconds: float) -> NoAnswer:
    """That there was none for so long."""
    return NoAnswer(f"it has not answered within {timeout_seconds:g} s")


def unreadable(page: str, error: BaseException) -> NoAnswer:
    """That there was none for another reason."""
    return NoAnswer(f"its {page} can't be read: {error or type(error).__name__}")
