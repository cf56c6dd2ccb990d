"""JSON merge patches (RFC 7386). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What makes ``after`` of ``before``, and no more; empty where they are the same. Neither has a null in it; lists are
    replaced as a whole."""
    change: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            change[name] = value
        elif value != (old := before[name]):
            both = isinstance(value, Mapping) and isinstance(old, Mapping)
            change[name] = merge_patch(old, value) if both else value
    return change
