"""JSON without NaN and infinities, which it lacks: what is sent to others or stored for them can be read by every parser."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(document: Any) -> bytes:
    """The document as compact JSON, in which what is not finite is null."""
    return json.dumps(finite(document), separators=(",", ":")).encode()


def finite(value: Any) -> Any:
    """A copy that strict JSON can carry: NaN and infinities become None, NumPy values numbers, the rest its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return finite(value.tolist())
    return str(value)
