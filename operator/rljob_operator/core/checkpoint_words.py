"""What a learner says of its checkpoints: in its status document while it is up, and as its last words at its end.

Where the controller does not look at the place of the checkpoints itself, it is the learner that reads each one again and
compares it with its digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob_operator.core.observed import CheckpointFacts, CheckpointState

_STATES = {"Valid": CheckpointState.VERIFIED, "Failed": CheckpointState.STORAGE_ERROR}


def checkpoint_facts(document: Mapping[str, Any]) -> CheckpointFacts:
    """The newest checkpoint by a status document or last words; whatever is not as it should be counts as not said."""
    found = document.get("checkpoint")
    if not isinstance(found, Mapping):
        return CheckpointFacts()
    state = _STATES.get(str(found.get("state")), CheckpointState.MISSING)
    path, message = str(found.get("path") or ""), str(found.get("message") or "")
    if not path:
        return CheckpointFacts(state, message=message)
    return CheckpointFacts(
        state=state,
        step=int(_number(found.get("step"))),
        time_seconds=_number(found.get("written_unix")),
        uri=path if "://" in path else f"file://{path}",
        digest=_digest(str(found.get("digest") or "")),
        message=message,
        requested_seconds=_number(found.get("requested_unix")),
    )


def _digest(text: str) -> str:
    return text if not text or ":" in text else f"sha256:{text}"


def _number(value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if known else 0.0
