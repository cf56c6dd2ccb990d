"""Chunks through the real wire, and every way in which one can contradict itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rljob.experience import Chunk, ChunkLayout, InvalidChunk
from rljob.wire import Message, decode, encode

LAYOUT = ChunkLayout(length=4, frame_shape=(2, 3), frame_dtype=np.dtype("u1"), stack=2, n_step=3)


def a_chunk() -> Chunk:
    random = np.random.default_rng(0)
    return Chunk(
        actor="actor-3",
        incarnation="c0ffee",
        sequence=7,
        environment=5,
        policy_version=11,
        epoch=2,
        frames=random.integers(0, 255, (8, 2, 3)).astype(np.uint8),
        observation_at=np.array([1, 2, 3], np.uint16),
        bootstrap_at=np.array([4, 5, 6], np.uint16),
        action=np.array([0, 1, 2], np.int32),
        n_step_return=np.array([0.5, 0, -1], np.float32),
        discount=np.array([0.9, 0.9, 0], np.float32),
        priority=np.array([1, 0.1, 2], np.float32),
        flags=np.array([0, 0, 1], np.uint8),
    )


@pytest.mark.parametrize("compress", [(), ("frames",)])
def test_round_trip_over_the_wire(compress: tuple[str, ...]) -> None:
    chunk = a_chunk()
    parts = [bytes(part) for part in encode(chunk.to_message(), compress=compress)]
    assert len(parts[0]) <= 512
    back = Chunk.from_message(decode(parts), LAYOUT)
    for field in dataclasses.fields(Chunk):
        np.testing.assert_array_equal(getattr(back, field.name), getattr(chunk, field.name))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"frames": np.zeros((8, 3, 2), np.uint8)}, "frames are"),
        ({"frames": np.zeros((8, 2, 3), np.float32)}, "frames are"),
        ({"frames": np.zeros((1, 2, 3), np.uint8)}, "1 frames"),
        ({"frames": np.zeros((LAYOUT.max_frames + 1, 2, 3), np.uint8)}, "frames, the layout allows"),
        ({"observation_at": np.array([0, 2, 3], np.uint16)}, "obs_at leaves"),
        ({"bootstrap_at": np.array([4, 5, 8], np.uint16)}, "boot_at leaves"),
        ({"action": np.array([0, 1, 2], np.int64)}, "column action"),
        ({"flags": np.array([0, 1], np.uint8)}, "column flags"),
        ({"priority": np.array([1, 0, 1], np.float32)}, "not positive"),
        ({"priority": np.array([1, np.nan, 1], np.float32)}, "not finite"),
        ({"n_step_return": np.array([1, np.inf, 1], np.float32)}, "not finite"),
        ({"discount": np.array([0, 1.5, 1], np.float32)}, "outside"),
        ({"discount": np.array([0, np.nan, 1], np.float32)}, "outside"),
    ],
)
def test_contradictions_are_refused(change: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(InvalidChunk, match=reason):
        dataclasses.replace(a_chunk(), **change).check(LAYOUT)


def test_too_many_steps_and_missing_columns_are_refused() -> None:
    with pytest.raises(InvalidChunk, match="3 steps"):
        a_chunk().check(dataclasses.replace(LAYOUT, length=2))
    message = a_chunk().to_message()
    columns = {name: column for name, column in message.columns.items() if name != "prio"}
    with pytest.raises(InvalidChunk, match="'prio'"):
        Chunk.from_message(Message("chunk", message.fields, columns))


def test_layout_bounds() -> None:
    atari = ChunkLayout(50, (84, 84), np.dtype("u1"), 4, 3)
    assert atari.frame_bytes == 84 * 84
    assert atari.max_frames == 50 + 3 + 3 + 8
    assert atari.chunk_bytes == atari.max_frames * 7056 + 50 * 21
    assert atari.compressed_columns == ("frames",)
    assert ChunkLayout(50, (4,), np.dtype("f4"), 1, 3).compressed_columns == ()
    for wrong in ({"length": 0}, {"stack": 0}, {"n_step": 0}, {"frame_shape": (0,)}, {"length": 70_000}):
        with pytest.raises(ValueError, match="chunk layout"):
            dataclasses.replace(atari, **wrong)
