"""What an actor takes for its columns, from what their first segments show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rljob.actor import compression
from rljob.actor.compression import TRIED_SEGMENTS, Compression


def standing(random: np.random.Generator) -> NDArray[Any]:
    """A rich picture that stands still, with a small thing that moves."""
    frames = np.repeat(random.integers(0, 256, (1, 84, 84), dtype=np.uint8), 56, axis=0)
    for number in range(56):
        frames[number, number : number + 4, 10:14] = 255
    return frames


def moving(random: np.random.Generator) -> NDArray[Any]:
    """A plain picture full of small things, all of which move."""
    frames = np.zeros((56, 84, 84), np.uint8)
    for frame, several in zip(frames, random.integers(0, 84, (56, 40, 2)), strict=True):
        frame[several[:, 0], several[:, 1]] = 200
    return frames


def looked_at(way: str, **columns: NDArray[Any]) -> Compression:
    found = Compression(tuple(columns), way)
    for _ in range(TRIED_SEGMENTS):
        assert way != "Auto" or not found.deltas, "nothing is chosen before all have been seen"
        found.look(columns)
    return found


def test_auto_takes_what_was_smaller() -> None:
    random = np.random.default_rng(0)
    seen = {"frames": standing(random), "frames1": moving(random), "pv": np.arange(50, dtype=np.int64)}
    assert looked_at("Auto", **seen).deltas == {"frames"}
    assert looked_at("LZ4", **seen).deltas == set()
    assert looked_at("Delta", **seen).deltas == set(seen)


def test_auto_takes_none_that_takes_much_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_WORTH_SECONDS", 0.0)
    assert looked_at("Auto", frames=standing(np.random.default_rng(0))).deltas == set()


def test_small_rows_and_columns_that_are_not_there_are_left_as_they_are() -> None:
    found = Compression(("frames", "octets"), "Auto")
    for _ in range(TRIED_SEGMENTS + 3):
        found.look({"octets": np.zeros((56, 8), np.uint8)})
    assert found.deltas == set()
