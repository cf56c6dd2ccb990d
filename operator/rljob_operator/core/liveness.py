"""What a member's `/healthz` says of it, the same for the processes of one machine and for pods."""

from __future__ import annotations

from typing import Final

NO_ANSWER: Final = "does not answer"
STANDS_STILL: Final = "answers, but its loop stands still"


def problem_of(code: int, words: str) -> str:
    """What is wrong with a member that answers with this HTTP status and these words; empty where it is alive."""
    # One with more callers than places answers 503, too, and is alive.
    return STANDS_STILL if code == 503 and words.strip() != "busy" else ""
