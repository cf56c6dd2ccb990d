"""Whatever a sender puts into the columns of an observation or an action, a segment that is let in can be learned from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rljob.experience import InvalidSegment, SegmentLayout, make_builder, transition_layout, unroll_layout
from rljob.experience.columns import ActionSpace
from rljob.experience.segment import Segment
from rljob.ingest.table import read_segment
from rljob.observation import ObservationColumn, zeros
from rljob.wire import MalformedMessage, Message, decode_header, encode

from tests.support.experience import recorded

COLUMNS = (
    ObservationColumn("frames", np.dtype("u1"), (3, 2), 2),
    ObservationColumn("frames1", np.dtype("f4"), (2, 2), 2),
    ObservationColumn("index", np.dtype("i4"), (2,), most=(4, 1)),
    ObservationColumn("octets", np.dtype("u1"), (5,)),
    ObservationColumn("vector", np.dtype("f4"), (3,)),
)
ACTIONS = ActionSpace((3, 2), controls=2)
LEAVES = ("observation a: image uint8 [3, 2]", "action: Discrete int64 [] of 3")
LAYOUTS = {
    "chunk": transition_layout(4, COLUMNS, 1, ACTIONS, LEAVES),
    "unroll": unroll_layout(4, COLUMNS, 0, ACTIONS, LEAVES),
}


def segment(layout: SegmentLayout) -> Segment:
    builder = make_builder(layout, 1, 0.9, False, "a", "i", 1)
    builder.begin(zeros(COLUMNS, 1))
    nowhere, number = np.zeros(1, np.bool_), np.zeros(1, np.float32)
    made: list[Segment] = []
    while not made:
        made = recorded(
            builder,
            np.zeros((1, 2), np.int64),
            number,
            nowhere,
            nowhere,
            nowhere,
            zeros(COLUMNS, 1),
            taken=number,
            value=number,
            control=np.zeros((1, 2), np.float32),
        )
    return made[0]


def put(name: str, value: Any, at: Any = 0) -> Callable[[dict[str, Any]], None]:
    def change(columns: dict[str, Any]) -> None:
        columns[name] = columns[name].copy()
        columns[name][at] = value

    return change


def cut(name: str) -> Callable[[dict[str, Any]], None]:
    def change(columns: dict[str, Any]) -> None:
        columns[name] = columns[name][:-1]

    return change


@pytest.mark.parametrize("kind", LAYOUTS)
def test_an_honest_one_is_taken(kind: str) -> None:
    layout = LAYOUTS[kind]
    found = read_segment(decode_header(encode(segment(layout).to_message())), layout)
    assert {column.name for column in COLUMNS} <= found.columns.keys()
    assert found["action"].shape == (4, 2)
    assert found["control"].shape == (4, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("index", 5), "index holds numbers beyond"),
        (put("index", -1), "index holds numbers beyond"),
        (put("index", 2, (0, 1)), "index holds numbers beyond"),
        (put("vector", np.nan), "vector is not finite"),
        (put("vector", -np.inf), "vector is not finite"),
        (put("control", np.inf), "control is not finite"),
        (put("action", 3), "action holds 0 to 3"),
        (put("action", 2, (0, 1)), "action holds 0 to 2"),
        (put("action", -1), "action holds -1"),
        (cut("vector"), "vector is float32"),
        (cut("index"), "index is int32"),
        (cut("frames1"), "frames1 is float32"),
        (lambda columns: columns.pop("octets"), "lacks octets"),
        (lambda columns: columns.update(frames2=columns["frames"]), "has frames2"),
        (lambda columns: columns.update(octets=columns["octets"][:, :4]), "octets is uint8"),
        (lambda columns: columns.update(control=columns["control"][:, :1]), "control is float32"),
    ],
)
@pytest.mark.parametrize("with_frames", [True, False])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_what_is_odd_is_named(kind: str, with_frames: bool, change: Callable[[Any], None], said: str) -> None:
    layout = LAYOUTS[kind]
    message = segment(layout).to_message()
    columns = dict(message.columns)
    change(columns)
    with pytest.raises(InvalidSegment, match=said):
        read_segment(
            decode_header(encode(Message(message.kind, message.fields, columns))), layout, with_frames=with_frames
        )


@pytest.mark.parametrize("name", ["vector", "index", "octets", "frames3", "control"])
def test_a_column_of_another_type_is_no_message(name: str) -> None:
    message = segment(LAYOUTS["chunk"]).to_message()
    with pytest.raises(MalformedMessage):
        encode(Message(message.kind, message.fields, {**message.columns, name: np.zeros((4, 2), np.int64)}))


def test_roles_with_other_leaves_hear_the_first_that_differs() -> None:
    layout = LAYOUTS["chunk"]
    assert layout.other_leaves(layout.leaves_column) is None
    assert layout.other_leaves({}) is None
    other = transition_layout(4, COLUMNS, 1, ACTIONS, (LEAVES[0], "action: Discrete int64 [] of 4"))
    said = layout.other_leaves(other.leaves_column)
    assert said == (
        "its environment has action: Discrete int64 [] of 4 where this one has action: Discrete int64 [] of 3"
    )
    garbage = {"leaves": np.frombuffer(b"\xff\x00\n\n", np.uint8)}
    assert layout.other_leaves(garbage) is not None
