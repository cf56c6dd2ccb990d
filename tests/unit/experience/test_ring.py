"""The ring against a dictionary of whole stacks, built one transition at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import Segment, SegmentLayout, transition_layout
from rljob.experience.batch_arrays import transition_arrays
from rljob.experience.ring import SegmentRing
from rljob.observation import frames

from tests.support.experience import make_chunk

LAYOUTS = (
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


@given(st.sampled_from(LAYOUTS), st.integers(1, 6), st.integers(1, 25), st.integers(0, 10_000))
@settings(max_examples=150)
def test_gather_equals_naive_stacks(layout: SegmentLayout, capacity: int, inserts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = SegmentRing(layout, capacity)
    store = Store(layout, FIRST_ROW + capacity * layout.max_frames)
    elsewhere = SegmentRing(layout, capacity, store=store, first_row=FIRST_ROW)
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
    layout = LAYOUTS[0]
    chunk = random_chunk(layout, np.random.default_rng(0), 0)
    with pytest.raises(ValueError, match="use more shards"):
        SegmentRing(layout, 2**31)
    ring = SegmentRing(layout, 2)
    with pytest.raises(IndexError):
        ring.insert(2, 1, chunk)
    with pytest.raises(ValueError, match="generation"):
        ring.insert(0, 2**32, chunk)
    ring.insert(0, 1, chunk)
    with pytest.raises(ValueError, match="buffers for 3"):
        ring.gather(np.array([0]), transition_arrays(layout, 3))
