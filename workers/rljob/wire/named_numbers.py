"""Numbers by name, of several rows, as a message carries them: the names in a field, the numbers in a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rljob.wire.errors import MalformedMessage
from rljob.wire.message import Message


def packed(rows: Sequence[Mapping[str, float]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The field ``names``, of the first 16 names in the rows one a line, and the column ``metrics`` f8 [rows, names], NaN where
    a row lacks one."""
    names = list(dict.fromkeys(name for row in rows for name in row))[:16]
    table = np.array([[row.get(name, np.nan) for name in names] for row in rows], np.float64)
    return {"names": "\n".join(names)}, {"metrics": table.reshape(len(rows), len(names))}


def unpacked(message: Message, count: int) -> list[dict[str, float]]:
    """The ``count`` rows of a message. Raises ``MalformedMessage`` for what ``packed`` does not make."""
    names = [name for name in str(message.fields.get("names", "")).split("\n") if name]
    table = message.columns.get("metrics", np.zeros((count, 0)))
    if (
        not all(name.isascii() and name.isprintable() for name in names)
        or table.shape != (count, len(names))
        or not (np.isnan(table) | (np.abs(table) <= 1e15)).all()  # a sum over thousands of them is still finite
    ):
        raise MalformedMessage("contents", "what an environment reports has no name to be shown, or is no number")
    return [{name: value for name, value in zip(names, row, strict=True) if value == value} for row in table.tolist()]
