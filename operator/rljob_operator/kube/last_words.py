"""What a learner says of its checkpoints: in its status document while it is up, and at its end as its container's last words.

The controller mounts no volume: it is the learner that reads each checkpoint again and compares it with its digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rljob_operator.core.observed import CheckpointFacts, CheckpointState
from rljob_operator.kube import names

_STATES = {"Valid": CheckpointState.VERIFIED, "Failed": CheckpointState.STORAGE_ERROR}


def parsed(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document that the pod's worker left at an orderly end; empty where it left none, or something else."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if container.get("name") == names.WORKER:
            words = ((container.get("state") or {}).get("terminated") or {}).get("message") or ""
            try:
                found = json.loads(words)
            except (ValueError, RecursionError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}


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
