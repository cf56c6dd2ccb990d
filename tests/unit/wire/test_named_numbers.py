"""Numbers by name go over the wire as they are, and what is no such thing is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.wire import MalformedMessage, Message, decode, encode
from rljob.wire.message import packed, unpacked

WHO = {"actor": "actor-0", "inc": "a"}
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)
ROWS = st.lists(st.dictionaries(NAMES, st.floats(-1e15, 1e15), max_size=4), min_size=1, max_size=4)


def message(names: str | None, metrics: Any, count: int = 2) -> Message:
    dtypes = {"ret": "f4", "epsilon": "f4", "length": "i4", "raw": "i4", "env": "i4", "cut": "u1", "pv": "i8"}
    columns = {name: np.zeros(count, dtype) for name, dtype in dtypes.items()}
    columns |= {} if metrics is None else {"metrics": metrics}
    return Message("episodes", WHO if names is None else {**WHO, "names": names}, columns)


@given(ROWS)
def test_rows_arrive_as_they_were_sent(rows: list[dict[str, float]]) -> None:
    fields, columns = packed(rows)
    assert unpacked(decode(encode(message(fields.get("names"), columns.get("metrics"), len(rows)))), len(rows)) == rows


def test_sixteen_names_go_into_a_message() -> None:
    fields, columns = packed([{f"a{index}": 1.0 for index in range(12)}, {f"b{index}": 1.0 for index in range(12)}])
    assert (len(fields["names"].split("\n")), columns["metrics"].shape) == (16, (2, 16))


@pytest.mark.parametrize(
    ("names", "metrics"),
    [
        ("a", np.zeros((2, 2))),
        ("a\nb", np.zeros((2, 1))),
        ("a", np.zeros((1, 1))),
        (None, np.zeros((2, 1))),
        ("a\n", np.zeros((2, 2))),
        ("\n\n", np.zeros((2, 2))),
        ("a\x1b[2J", np.zeros((2, 1))),
        ("é", np.zeros((2, 1))),
        ("a", np.full((2, 1), np.inf)),
        ("a", np.full((2, 1), -1e16)),
    ],
)
def test_what_nobody_would_pack_is_refused(names: str | None, metrics: Any) -> None:
    with pytest.raises(MalformedMessage, match="what an environment reports"):
        unpacked(message(names, metrics), 2)
