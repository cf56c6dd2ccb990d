"""Messages that the schema allows and that no client in its right mind would send."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from rljob.wire import MalformedMessage, Message, encode
from rljob.wire.schema import DTYPES, KINDS

_TEXTS = ("", "x" * 64, "é" * 32, "../../etc", "{}")
_LARGEST = (1 << 63) - 1


def _values(field: Any) -> Iterator[Any]:
    if field.type is bool:
        yield from (True, False)
    elif field.type is float:
        yield from (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308)
    elif field.type is int:
        yield from {field.low, 0, 1, 7, 1 << 31, field.high, _LARGEST}
    else:
        yield from field.choices or _TEXTS


def _arrays(array: np.ndarray, dtypes: Iterator[str]) -> Iterator[np.ndarray]:
    """Other values, lengths, shapes and types of a column."""
    for code in dtypes:
        as_type = array.astype(DTYPES[code])
        yield as_type
        if code[0] == "f":
            limits: tuple[Any, ...] = (np.nan, np.inf, -np.inf, -1, 0, 3e38)
        else:
            limits = (np.iinfo(as_type.dtype).min, np.iinfo(as_type.dtype).max, 0)
        for limit in limits:
            odd = as_type.copy()
            odd.reshape(-1)[:1] = limit
            yield odd
            yield np.full_like(as_type, limit)
    yield array[:0]
    yield array[:1]
    yield np.concatenate([array, array])
    if array.ndim > 1:
        yield array[..., :0]
        yield array[..., :1]
        yield array[..., None]
        yield array.reshape(len(array), -1)


def odd(base: Message) -> Iterator[Message]:
    """``base`` with one thing about it changed, and with all columns that belong together changed in length; only what the
    schema allows."""
    kind = KINDS[base.kind]
    candidates = []
    for name, field in kind.fields.items():
        candidates += [Message(base.kind, {**base.fields, name: value}, base.columns) for value in _values(field)]
        if field.optional:
            fields = {each: value for each, value in base.fields.items() if each != name}
            candidates.append(Message(base.kind, fields, base.columns))
    for name, column in kind.columns.items():
        if name not in base.columns:
            continue
        for array in _arrays(base.columns[name], iter(sorted(column.dtypes))):
            candidates.append(Message(base.kind, base.fields, {**base.columns, name: array}))
    labels = {column.rows for column in kind.columns.values()} - {""}
    for rows in (0, 1, 40) if labels else ():
        columns = {
            name: np.resize(array, (rows, *array.shape[1:])) if kind.columns[name].rows else array
            for name, array in base.columns.items()
        }
        fields = {name: rows if name in labels else value for name, value in base.fields.items()}
        candidates.append(Message(base.kind, fields, columns))
    optional = {name for name, column in kind.columns.items() if column.optional}
    if optional:
        columns = {name: array for name, array in base.columns.items() if name not in optional}
        candidates.append(Message(base.kind, base.fields, columns))
    for candidate in candidates:
        with contextlib.suppress(MalformedMessage):
            encode(candidate)
            yield candidate
