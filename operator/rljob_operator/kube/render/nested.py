"""Writing into a mapping that a user may have filled, in a wrong form perhaps."""

from __future__ import annotations

from typing import Any


def at(mapping: dict[str, Any], name: str, empty: Any) -> Any:
    """The list or mapping at ``name``, put there where there is nothing; one apart from ``mapping`` where there is something
    else."""
    if mapping.get(name) is None:
        mapping[name] = empty
    return mapping[name] if isinstance(mapping[name], type(empty)) else empty
