"""Where a mirror goes is decided by sizes alone, and told with them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from rljob.experience import transition_layout
from rljob.learner import mirror_place
from rljob.learner.mirror_place import MirrorSize, margin_bytes, mirror_for, place
from rljob.observation import frames
from rljob.replay.table import Capacity

from tests.support.devices import needs_cuda

GIB = 1 << 30
ATARI = transition_layout(50, frames((84, 84), np.uint8, 4), 3)
"""64 frames a slot."""
TWO_MILLION = MirrorSize(ATARI, slots=Capacity(2_000_000).chunks(ATARI), shards=1, capacity=2_000_000)


def test_the_size_by_hand() -> None:
    assert TWO_MILLION.nbytes == 45_008 * 64 * 84 * 84
    assert MirrorSize(ATARI, 10, 4, 1).nbytes == 4 * 10 * 64 * 84 * 84


@pytest.mark.parametrize(
    ("free", "on_device"),
    [(TWO_MILLION.nbytes + 5 * GIB, True), (TWO_MILLION.nbytes + 5 * GIB - 1, False), (3 * GIB, False), (0, False)],
)
def test_it_goes_where_it_fits_beside_the_margin(free: int, on_device: bool) -> None:
    assert place(TWO_MILLION, free, 5 * GIB).on_device == on_device


def test_what_is_told() -> None:
    assert (
        place(TWO_MILLION, 70 * GIB, 8 * GIB).told
        == "on the GPU: it takes 18.9 GiB; of the GPU's 70.0 GiB that are free 8.0 GiB are left for updates"
    )
    told = place(TWO_MILLION, 17 * GIB, 8 * GIB).told
    assert told.startswith("in RAM: it would take 18.9 GiB, and of the GPU's 17.0 GiB that are free 8.0 GiB are left")
    assert told.endswith("; a replay.capacity of about 950,000 would fit")
    assert place(MirrorSize(ATARI, Capacity(950_000).chunks(ATARI), 1, 950_000), 17 * GIB, 8 * GIB).on_device
    assert "would fit" not in place(TWO_MILLION, 7 * GIB, 8 * GIB).told


def test_the_margin_has_room_for_the_batches_that_are_under_way() -> None:
    stacks = 2 * 512 * 4 * 84 * 84
    assert margin_bytes(ATARI, 512, 2, 80 * GIB) == 8 * GIB + (2 + 2 + 4) * stacks
    assert margin_bytes(ATARI, 512, 2, 4 * GIB) == 1 * GIB + (2 + 2 + 4) * stacks, "small devices have optimisers, too"


def test_on_a_cpu_it_is_in_ram() -> None:
    mirror, chosen = mirror_for(TWO_MILLION, 512, 2, torch.device("cpu"))
    assert (mirror, chosen.on_device, chosen.told) == (None, False, "in RAM, as the learner computes on the CPU")


class Refuses:
    """A device that others have taken the memory of since it was asked."""

    def __init__(self, *sizes: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 18.92 GiB.\nand a page more")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GIB, 80 * GIB))


@pytest.mark.usefixtures("card")
def test_memory_that_is_gone_when_it_is_taken_leaves_the_mirror_in_ram(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mirror_place, "DeviceMirror", Refuses)
    with caplog.at_level(logging.INFO):
        mirror, chosen = mirror_for(TWO_MILLION, 512, 2, torch.device("cuda"))
    assert (mirror, chosen.on_device) == (None, False)
    assert chosen.told == ("in RAM: the GPU did not give 18.9 GiB (CUDA out of memory. Tried to allocate 18.92 GiB.)")
    assert f"the mirror of the replay is {chosen.told}" in caplog.text


@pytest.mark.usefixtures("card")
def test_what_does_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_place, "DeviceMirror", lambda *sizes: pytest.fail("it was tried"))
    mirror, chosen = mirror_for(MirrorSize(ATARI, 450_000, 1, 20_000_000), 512, 2, torch.device("cuda"))
    assert mirror is None
    assert chosen.told.startswith("in RAM: it would take 189.3 GiB")


@needs_cuda
def test_on_a_gpu_with_room_it_is_there() -> None:
    device = torch.device("cuda")
    before = torch.cuda.memory_allocated(device)
    mirror, chosen = mirror_for(MirrorSize(ATARI, 100, 2, 8_000), 32, 2, device)
    assert mirror is not None
    assert chosen.on_device
    assert torch.cuda.memory_allocated(device) - before >= mirror.nbytes == 200 * 64 * 84 * 84
