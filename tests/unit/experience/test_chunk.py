"""Segments through the real wire, and every way in which one can contradict itself or its layout.

The ring against a dictionary of whole stacks, built one transition at a time.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import InvalidSegment, Segment, SegmentLayout, make_builder, transition_layout, unroll_layout
from rljob.experience.columns import ActionSpace
from rljob.experience.ring import SegmentRing, transition_arrays
from rljob.ingest.table import read_segment
from rljob.observation import ObservationColumn, frames, zeros
from rljob.wire import MalformedMessage, Message, decode, decode_header, encode

from tests.support.experience import changed, make_chunk, recorded
from tests.unit.experience.test_unroll_builder import LAYOUT as UNROLLS, one_unroll

LAYOUT = transition_layout(4, frames((2, 3), "u1", 2), 3)


def a_chunk() -> Segment:
    columns = {
        "frames": np.random.default_rng(0).integers(0, 255, (8, 2, 3)).astype(np.uint8),
        "observation": np.array([1, 2, 3], np.uint16),
        "next_observation": np.array([4, 5, 6], np.uint16),
        "action": np.array([0, 1, 2], np.int32),
        "n_step_return": np.array([0.5, 0, -1], np.float32),
        "discount": np.array([0.9, 0.9, 0], np.float32),
        "priority": np.array([1, 0.1, 2], np.float32),
        "flags": np.array([0, 0, 1], np.uint8),
    }
    return Segment(LAYOUT, "actor-3", "c0ffee", 7, 5, 11, 2, 3, columns)


def an_unroll() -> Segment:
    return one_unroll(UNROLLS)


@pytest.mark.parametrize("compress", [(), ("frames",)])
@pytest.mark.parametrize("made", [a_chunk, an_unroll])
def test_round_trip_over_the_wire(made: Callable[[], Segment], compress: tuple[str, ...]) -> None:
    chunk = made()
    parts = [bytes(part) for part in encode(chunk.to_message(), compress=compress)]
    assert len(parts[0]) <= 512
    back = Segment.from_message(decode(parts), chunk.layout)
    names = [field.name for field in dataclasses.fields(Segment) if field.name != "columns"]
    assert [getattr(back, name) for name in names] == [getattr(chunk, name) for name in names]
    for name, column in chunk.columns.items():
        np.testing.assert_array_equal(back[name], column)


@pytest.mark.parametrize(
    ("made", "change", "reason"),
    [
        (a_chunk, {"frames": np.zeros((8, 3, 2), np.uint8)}, "frames is"),
        (a_chunk, {"frames": np.zeros((8, 2, 3), np.float32)}, "frames is"),
        (a_chunk, {"frames": np.zeros((1, 2, 3), np.uint8)}, "1 frames"),
        (a_chunk, {"frames": np.zeros((LAYOUT.max_frames + 1, 2, 3), np.uint8)}, "frames, the layout allows"),
        (a_chunk, {"observation": np.array([0, 2, 3], np.uint16)}, "obs_at leaves"),
        (a_chunk, {"next_observation": np.array([4, 5, 8], np.uint16)}, "boot_at leaves"),
        (a_chunk, {"action": np.array([0, 1, 2], np.int64)}, "column action"),
        (a_chunk, {"flags": np.array([0, 1], np.uint8)}, "column flags"),
        (
            a_chunk,
            {"priority": np.array([1, 0, 1], np.float32)},
            "priority holds 0.0 to 1.0; allowed: 1.4013e-45 to any",
        ),
        (a_chunk, {"priority": np.array([1, np.nan, 1], np.float32)}, "not finite"),
        (a_chunk, {"n_step_return": np.array([1, np.inf, 1], np.float32)}, "not finite"),
        (a_chunk, {"discount": np.array([0, 1.5, 1], np.float32)}, "discount holds 0.0 to 1.5; allowed: 0 to 1"),
        (a_chunk, {"discount": np.array([0, np.nan, 1], np.float32)}, "not finite"),
        (an_unroll, {"reward": np.full(4, np.nan, np.float32)}, "reward is not finite"),
        (an_unroll, {"reward": np.zeros(5, np.float32)}, r"column reward is float32\[5\]"),
        (an_unroll, {"log_prob": np.full(4, 0.5, np.float32)}, "log_prob holds 0.5 to 0.5; allowed: any to 0.0001"),
        (an_unroll, {"discount": np.full(4, 1.5, np.float32)}, "discount holds 1.5 to 1.5; allowed: 0 to 1"),
        (an_unroll, {"observation": np.full(5, 60_000, np.uint16)}, "obs_at leaves"),
        (an_unroll, {"state": np.zeros((2, 3), np.float32)}, r"expected float32\[2, 0\]"),
        (an_unroll, {"action": np.full(4, -1, np.int32)}, "action holds -1 to -1; allowed: 0 to any"),
    ],
)
def test_contradictions_are_refused(made: Callable[[], Segment], change: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(InvalidSegment, match=reason):
        changed(made(), **change).check()


def test_too_many_steps_and_missing_columns_are_refused() -> None:
    with pytest.raises(InvalidSegment, match="3 steps"):
        changed(a_chunk(), layout=dataclasses.replace(LAYOUT, length=2)).check()
    message = a_chunk().to_message()
    columns = {name: column for name, column in message.columns.items() if name != "prio"}
    with pytest.raises(InvalidSegment, match="'prio'"):
        Segment.from_message(Message("chunk", message.fields, columns), LAYOUT)


def test_layout_bounds() -> None:
    atari = transition_layout(50, frames((84, 84), "u1", 4), 3)
    assert (atari.row_bytes, atari.max_frames, atari.compressed_columns) == (84 * 84, 50 + 3 + 3 + 8, ("frames",))
    assert transition_layout(50, frames((4,), "f4"), 3).compressed_columns == ()
    without = {"observation": frames((84, 84), "u1", 0)}, {"observation": frames((0,), "u1", 4)}
    for wrong in ({"length": 0}, {"n_step": 0}, {"length": 70_000}, *without):
        with pytest.raises(ValueError, match="chunk layout"):
            dataclasses.replace(atari, **wrong)


# Whatever a sender puts into the columns of an observation or an action, a segment that is let in can be learned from.

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
    assert (found["action"].shape, found["control"].shape) == ((4, 2), (4, 2))


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
    assert (layout.other_leaves(layout.leaves_column), layout.other_leaves({})) == (None, None)
    other = transition_layout(4, COLUMNS, 1, ACTIONS, (LEAVES[0], "action: Discrete int64 [] of 4"))
    assert layout.other_leaves(other.leaves_column) == (
        "its environment has action: Discrete int64 [] of 4 where this one has action: Discrete int64 [] of 3"
    )
    assert layout.other_leaves({"leaves": np.frombuffer(b"\xff\x00\n\n", np.uint8)}) is not None


TRANSITION_LAYOUTS = (
    transition_layout(5, frames((3, 2), np.uint8, 4), 2),
    transition_layout(7, frames((4,), np.float32), 3),
)


def random_chunk(layout: SegmentLayout, rng: np.random.Generator, sequence: int) -> Segment:
    steps = int(rng.integers(1, layout.length + 1))
    count = int(rng.integers(layout.stack, layout.max_frames + 1))
    frame, ends = layout.observation[0], rng.integers(layout.stack - 1, count, (2, steps)).astype(np.uint16)
    chunk = make_chunk(
        "a", sequence, layout, steps, policy_version=sequence * 3,
        frames=rng.integers(0, 255, (count, *frame.shape)).astype(frame.dtype), observation=ends[0], next_observation=ends[1],
        action=rng.integers(0, 9, steps).astype(np.int32), n_step_return=rng.normal(size=steps).astype(np.float32),
        discount=rng.random(steps).astype(np.float32),
    )  # fmt: skip
    chunk.check()
    return chunk


FIRST_ROW = 11


class Store:
    """Frames outside of a ring."""

    def __init__(self, layout: SegmentLayout, rows: int) -> None:
        self.frames = np.zeros((rows, *layout.observation[0].shape), layout.observation[0].dtype)

    def write(self, row: int, frames: np.ndarray) -> None:
        self.frames[row : row + len(frames)] = frames


@given(st.sampled_from(TRANSITION_LAYOUTS), st.integers(1, 6), st.integers(1, 25), st.integers(0, 10_000))
@settings(max_examples=150)
def test_gather_equals_naive_stacks(layout: SegmentLayout, capacity: int, inserts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = SegmentRing(layout, capacity)
    store = Store(layout, FIRST_ROW + capacity * layout.max_frames)
    elsewhere = SegmentRing(layout, capacity, store=store.write, first_row=FIRST_ROW)
    oracle: dict[int, dict[str, Any]] = {}
    for sequence in range(inserts):
        chunk = random_chunk(layout, rng, sequence)
        slot, generation = sequence % capacity, 1 + sequence // capacity
        for each in (ring, elsewhere):
            each.insert(slot, generation, chunk)
        oracle = {key: value for key, value in oracle.items() if key // layout.length != slot}
        for i in range(chunk.steps):
            o, b = int(chunk["observation"][i]) + 1, int(chunk["next_observation"][i]) + 1
            oracle[slot * layout.length + i] = {
                "generation": generation, "policy_version": chunk.policy_version,
                "observation": chunk["frames"][o - layout.stack : o].copy(),
                "next_observation": chunk["frames"][b - layout.stack : b].copy(),
                **{name: chunk[name][i] for name in ("action", "n_step_return", "discount")},
            }  # fmt: skip
    slots = rng.choice(np.array(list(oracle), np.uint32), 12)
    generations = np.array([oracle[int(slot)]["generation"] for slot in slots], np.uint32)
    assert ring.matches(slots, generations).all()
    assert not ring.matches(slots, generations + np.uint32(1)).any()
    everything = np.arange(capacity * layout.length + 3, dtype=np.uint32)
    stored = ring.matches(everything, ring.generation[np.minimum(everything // layout.length, capacity - 1)])
    assert set(everything[stored].tolist()) == set(oracle)
    batch, rows = transition_arrays(layout, 12), transition_arrays(layout, 12, rows=True)
    ring.gather(slots, batch)
    elsewhere.gather(slots, rows)
    before = np.arange(1 - layout.stack, 1)
    assert rows["observation"].min() >= FIRST_ROW
    for name in ("observation", "next_observation"):
        np.testing.assert_array_equal(store.frames[rows[name][:, None] + before], batch[name])
    for name in ("action", "n_step_return", "discount", "policy_version"):
        np.testing.assert_array_equal(rows[name], batch[name])
    for row, slot in enumerate(slots):
        for name in ("observation", "next_observation", "action", "n_step_return", "discount", "policy_version"):
            np.testing.assert_array_equal(batch[name][row], oracle[int(slot)][name])


def test_wrong_uses_are_refused() -> None:
    layout = TRANSITION_LAYOUTS[0]
    chunk = random_chunk(layout, np.random.default_rng(0), 0)
    with pytest.raises(ValueError, match="use more shards"):
        SegmentRing(layout, 2**31)
    ring = SegmentRing(layout, 2)
    with pytest.raises(IndexError):
        ring.insert(2, 1, chunk)
    with pytest.raises(ValueError, match="generation"):
        ring.insert(0, 2**32, chunk)
    ring.insert(0, 1, chunk)
