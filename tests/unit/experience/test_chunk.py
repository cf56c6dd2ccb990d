"""Chunks through the real wire, and every way in which one can contradict itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rljob.experience import InvalidSegment, Segment, transition_layout
from rljob.observation import frames
from rljob.wire import Message, decode, encode

from tests.support.experience import changed

LAYOUT = transition_layout(4, frames((2, 3), "u1", 2), 3)


def a_chunk() -> Segment:
    random = np.random.default_rng(0)
    columns = {
        "frames": random.integers(0, 255, (8, 2, 3)).astype(np.uint8),
        "observation": np.array([1, 2, 3], np.uint16),
        "next_observation": np.array([4, 5, 6], np.uint16),
        "action": np.array([0, 1, 2], np.int32),
        "n_step_return": np.array([0.5, 0, -1], np.float32),
        "discount": np.array([0.9, 0.9, 0], np.float32),
        "priority": np.array([1, 0.1, 2], np.float32),
        "flags": np.array([0, 0, 1], np.uint8),
    }
    return Segment(LAYOUT, "actor-3", "c0ffee", 7, 5, 11, 2, 3, columns)


@pytest.mark.parametrize("compress", [(), ("frames",)])
def test_round_trip_over_the_wire(compress: tuple[str, ...]) -> None:
    chunk = a_chunk()
    parts = [bytes(part) for part in encode(chunk.to_message(), compress=compress)]
    assert len(parts[0]) <= 512
    back = Segment.from_message(decode(parts), LAYOUT)
    for field in dataclasses.fields(Segment):
        if field.name != "columns":
            assert getattr(back, field.name) == getattr(chunk, field.name)
    for name, column in chunk.columns.items():
        np.testing.assert_array_equal(back[name], column)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"frames": np.zeros((8, 3, 2), np.uint8)}, "frames is"),
        ({"frames": np.zeros((8, 2, 3), np.float32)}, "frames is"),
        ({"frames": np.zeros((1, 2, 3), np.uint8)}, "1 frames"),
        ({"frames": np.zeros((LAYOUT.max_frames + 1, 2, 3), np.uint8)}, "frames, the layout allows"),
        ({"observation": np.array([0, 2, 3], np.uint16)}, "obs_at leaves"),
        ({"next_observation": np.array([4, 5, 8], np.uint16)}, "boot_at leaves"),
        ({"action": np.array([0, 1, 2], np.int64)}, "column action"),
        ({"flags": np.array([0, 1], np.uint8)}, "column flags"),
        ({"priority": np.array([1, 0, 1], np.float32)}, "priority holds 0.0 to 1.0; allowed: 1.4013e-45 to any"),
        ({"priority": np.array([1, np.nan, 1], np.float32)}, "not finite"),
        ({"n_step_return": np.array([1, np.inf, 1], np.float32)}, "not finite"),
        ({"discount": np.array([0, 1.5, 1], np.float32)}, "discount holds 0.0 to 1.5; allowed: 0 to 1"),
        ({"discount": np.array([0, np.nan, 1], np.float32)}, "not finite"),
    ],
)
def test_contradictions_are_refused(change: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(InvalidSegment, match=reason):
        changed(a_chunk(), **change).check()


def test_too_many_steps_and_missing_columns_are_refused() -> None:
    with pytest.raises(InvalidSegment, match="3 steps"):
        changed(a_chunk(), layout=dataclasses.replace(LAYOUT, length=2)).check()
    message = a_chunk().to_message()
    columns = {name: column for name, column in message.columns.items() if name != "prio"}
    with pytest.raises(InvalidSegment, match="'prio'"):
        Segment.from_message(Message("chunk", message.fields, columns), LAYOUT)


def test_layout_bounds() -> None:
    atari = transition_layout(50, frames((84, 84), "u1", 4), 3)
    assert atari.row_bytes == 84 * 84
    assert atari.max_frames == 50 + 3 + 3 + 8
    assert atari.compressed_columns == ("frames",)
    assert transition_layout(50, frames((4,), "f4"), 3).compressed_columns == ()
    without = {"observation": frames((84, 84), "u1", 0)}, {"observation": frames((0,), "u1", 4)}
    for wrong in ({"length": 0}, {"n_step": 0}, {"length": 70_000}, *without):
        with pytest.raises(ValueError, match="chunk layout"):
            dataclasses.replace(atari, **wrong)
