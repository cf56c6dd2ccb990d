"""Well-formed messages of every kind, made from the schema itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rljob.wire.message import Message
from rljob.wire.schema import DTYPES, KINDS, Column, Field, Scalar


def _field(field: Field, name: str) -> Scalar:
    if field.type is bool:
        return True
    if field.type is float:
        return 0.5
    if field.type is int:
        return max(3, field.low)
    return min(field.choices) if field.choices else f"{name}-7"


def _column(column: Column, rows: int, generator: np.random.Generator) -> np.ndarray:
    dtype = DTYPES[max(column.dtypes)]  # u1 rather than f4 for frames
    shape = (rows, *[4] * (max(column.min_ndim, min(column.max_ndim, 3)) - 1))
    return generator.integers(0, 3, shape).astype(dtype)


@pytest.fixture(scope="session")
def make_message() -> Callable[..., Message]:
    """`make(kind, rows=5, optional=True, seed=0)`: a message of that kind which the schema allows."""

    def make(kind: str, rows: int = 5, optional: bool = True, seed: int = 0) -> Message:
        generator = np.random.default_rng(seed)
        spec = KINDS[kind]
        labels = {column.rows for column in spec.columns.values()}
        fields = {name: rows if name in labels else _field(field, name) for name, field in spec.fields.items()}
        columns = {
            name: _column(column, rows, generator)
            for name, column in spec.columns.items()
            if optional or not column.optional
        }
        return Message(kind, fields, columns)

    return make
