"""The last words of a pod's worker, as its container's termination message has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rljob_operator.kube.render import names


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
