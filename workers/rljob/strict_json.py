"""JSON without NaN and infinities, which it lacks: what is sent to others or stored for them can be read by every parser."""

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(document: Any, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """The document as JSON in which what is not finite is null, compact where no ``indent`` is given."""
    separators = (",", ":") if indent is None else None
    return json.dumps(finite(document), indent=indent, separators=separators, sort_keys=sort_keys, allow_nan=False)


def finite(value: Any) -> Any:
    """A copy that strict JSON can carry: NaN and infinities become None, NumPy values numbers, the rest its text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): finite(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [finite(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return finite(value.tolist())
    return str(value)
