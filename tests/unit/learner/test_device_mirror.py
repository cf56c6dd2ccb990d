"""A mirror in a device's memory gives bit for bit the batches of one in RAM, whatever overtakes what on the host's side.
Sizes alone decide where it lies.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.batches import TransitionBatch
from rljob.experience import Segment, SegmentLayout, transition_layout
from rljob.experience.ring import SegmentRing
from rljob.learner import device_mirror
from rljob.learner.device_mirror import (
    CHUNKS_UNDER_WAY,
    DeviceMirror,
    MirrorSize,
    MirrorStagingRing,
    fits,
    margin_bytes,
    mirror_for,
)
from rljob.learner.staging import AtOnce, on_current_stream, transition_buffers
from rljob.observation import frames
from rljob.replay.table import Capacity

from tests.support.devices import DEVICES, LateEvent, needs_cuda
from tests.support.experience import make_chunk
from tests.support.waiting import raising
from tests.unit.learner.optim.test_no_waiting import Waits, waiting_is_an_error

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
IMAGES = transition_layout(5, frames((6, 8), np.uint8, 4), 2)
LAYOUTS = [
    pytest.param(IMAGES, id="words-of-8"),
    pytest.param(transition_layout(5, frames((3, 2), np.uint8, 4), 2), id="words-of-2"),
    pytest.param(transition_layout(5, frames((5,), np.uint8), 1), id="bytes"),
    pytest.param(transition_layout(7, frames((3,), np.float32, 2), 3), id="floats"),
]
BATCH = 24
GIB = 1 << 30
ATARI = transition_layout(50, frames((84, 84), np.uint8, 4), 3)
"""64 frames a slot."""
TWO_MILLION = MirrorSize(ATARI, slots=Capacity(2_000_000).chunks(ATARI), shards=1, capacity=2_000_000)


class Shards:
    """Each shard's ring in RAM, and the one of the mirror; what is told to one is told to the other."""

    def __init__(
        self, count: int = 1, slots: int = 4, layout: SegmentLayout = IMAGES, device: torch.device = CPU
    ) -> None:
        self.mirror = DeviceMirror(layout, slots, count, device)
        self.random = np.random.default_rng(0)
        self.layout, self.number = layout, 0
        self.in_ram = [SegmentRing(layout, slots) for _ in range(count)]
        self.on_device = [self.mirror.ring(shard, slots) for shard in range(count)]

    def both(self, count: int = 1) -> tuple[Any, Any]:
        """Buffers for batches of the rings in RAM, and ``count`` for those of the mirror."""
        return transition_buffers(self.layout, BATCH, 1, self.mirror.device), MirrorStagingRing(
            self.mirror, BATCH, count
        )

    def insert(self, chunks: int) -> Shards:
        for _ in range(chunks):
            chunk = self.chunk()
            shard, turn = self.number % len(self.in_ram), self.number // len(self.in_ram)
            for ring in (self.in_ram[shard], self.on_device[shard]):
                ring.insert(turn % ring.capacity, 1 + turn // ring.capacity, chunk)
            self.number += 1
        return self

    def chunk(self) -> Segment:
        layout, random = self.layout, self.random
        steps = int(random.integers(1, layout.length + 1))
        count = int(random.integers(layout.stack, layout.max_frames + 1))
        column = layout.observation[0]
        chunk = make_chunk(
            "actor-0",
            self.number,
            layout,
            steps,
            frames=random.integers(0, 255, (count, *column.shape)).astype(column.dtype),
            observation=random.integers(layout.stack - 1, count, steps).astype(np.uint16),
            next_observation=random.integers(layout.stack - 1, count, steps).astype(np.uint16),
            action=random.integers(0, 9, steps).astype(np.int32),
            n_step_return=random.normal(size=steps).astype(np.float32),
            policy_version=self.number,
        )
        chunk.check()
        return chunk

    def draw(self, shard: int, count: int) -> np.ndarray:
        """Slot ids of stored transitions."""
        ring = self.in_ram[shard]
        chunk = self.random.choice(np.flatnonzero(ring.length), count)
        return (chunk * self.layout.length + self.random.integers(0, ring.length[chunk])).astype(np.uint32)

    def fill(self, expected: Any, made: Any, chunks_between: int) -> None:
        """The same batch in both: a part of each shard, with new chunks after each part, which overwrite what it was made of."""
        edges = np.linspace(0, BATCH, len(self.in_ram) + 1).astype(int).tolist()
        for shard in self.random.permutation(len(self.in_ram)).tolist():
            rows = slice(edges[shard], edges[shard + 1])
            slots = self.draw(shard, rows.stop - rows.start)
            expected.fill(rows, slots, self.in_ram[shard])
            made.fill(rows, slots, self.on_device[shard])
            self.insert(chunks_between)
        expected.arrays["weight"][:] = made.arrays["weight"][:] = self.random.random(BATCH).astype(np.float32)


def same(made: TransitionBatch, expected: TransitionBatch) -> None:
    for name, mine, its in zip(expected._fields, made, expected, strict=True):
        if its is None:  # what an update adds
            assert mine is None, name
            continue
        assert (mine.dtype, mine.shape, mine.is_contiguous()) == (its.dtype, its.shape, True), name
        assert torch.equal(mine.cpu(), its.cpu()), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_are_those_of_a_mirror_in_ram(layout: SegmentLayout, device: torch.device) -> None:
    shards = Shards(3, layout=layout, device=device).insert(3)
    plain, buffers = shards.both(2)
    for _ in range(30):
        expected, made = plain.take(), buffers.take()
        while expected is None or made is None:  # copies that are still under way
            expected, made = expected or plain.take(), made or buffers.take()
        shards.fill(expected, made, chunks_between=2)
        same(on_current_stream(*buffers.upload(made)), on_current_stream(*plain.upload(expected)))
        np.testing.assert_array_equal(made.arrays["policy_version"], expected.arrays["policy_version"])
        plain.give_back(expected)
        buffers.give_back(made)
    assert shards.number > 3 * 4 * 4, "every slot was overwritten several times"


class Lazy(AtOnce):
    """A side stream at its slowest: what it is asked for is done, in order, when a caller waits for it or needs its result."""

    def __init__(self) -> None:
        self.asked: deque[tuple[Callable[[], Any], Doing]] = deque()

    def later(self, work: Callable[[], Any]) -> tuple[None, Doing]:
        event = Doing(self)
        event.record()
        self.asked.append((work, event))
        return None, event

    def until(self, event: Doing | None) -> None:
        while self.asked and not (event is not None and event.happened):
            work, done = self.asked.popleft()
            work()
            done.happen()

    def copy(self, tensors: dict[str, torch.Tensor], batch_of: Any) -> tuple[Any, Any]:
        self.until(None)
        return super().copy(tensors, batch_of)


class Doing(LateEvent):
    def __init__(self, stream: Lazy) -> None:
        super().__init__()
        self._stream = stream

    def synchronize(self) -> None:
        self._stream.until(self)
        assert self.happened, "nothing would ever end this wait"


@pytest.mark.parametrize("chunks_between", [1, CHUNKS_UNDER_WAY + 3])
def test_a_device_that_is_late_gathers_what_was_meant(chunks_between: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of chunks are not written to before they were copied, and nothing that was asked for later comes first."""
    stream = Lazy()
    monkeypatch.setattr(device_mirror, "stream_beside", lambda device: stream)
    shards = Shards(2)
    plain, buffers = shards.both()
    monkeypatch.setattr(stream, "run", stream.later)
    shards.insert(2)
    for _ in range(5):
        expected, made = plain.take(), buffers.take()
        shards.fill(expected, made, chunks_between)
        assert stream.asked, "nothing was in need of the device yet"
        same(buffers.upload(made)[0], plain.upload(expected)[0])
        plain.give_back(expected)
        buffers.give_back(made)


def test_a_batch_is_the_loop_s_when_the_next_one_is_gathered() -> None:
    shards = Shards().insert(4)
    _, buffers = shards.both()
    observations = []
    for _ in range(2):
        made = buffers.take()
        made.fill(slice(0, BATCH), shards.draw(0, BATCH), shards.on_device[0])
        batch, _ = buffers.upload(made)
        observations.append((batch.observation, batch.observation.clone()))
        buffers.give_back(made)
    assert all(torch.equal(now, then) for now, then in observations)


def test_a_shard_that_begins_anew_has_the_same_room() -> None:
    shards = Shards(2, slots=3).insert(6)
    before = shards.mirror.nbytes
    shards.on_device[1], shards.in_ram[1] = shards.mirror.ring(1, 3), SegmentRing(IMAGES, 3)
    shards.insert(4)
    plain, buffers = shards.both()
    expected, made = plain.take(), buffers.take()
    shards.fill(expected, made, chunks_between=0)
    same(buffers.upload(made)[0], plain.upload(expected)[0])
    assert shards.mirror.nbytes == before == 2 * 3 * IMAGES.max_frames * IMAGES.row_bytes


def test_what_there_is_no_room_for_is_refused() -> None:
    mirror = DeviceMirror(IMAGES, 3, 2, CPU)
    with pytest.raises(ValueError, match="it has 4 chunks, and the learner's device has room for 3 of each shard"):
        mirror.ring(0, 4)


def test_nothing_is_asked_of_the_device() -> None:
    """What would make the host wait for a GPU, looked for on a CPU."""
    shards = Shards(2).insert(8)
    plain, buffers = shards.both()
    expected, made = plain.take(), buffers.take()
    with Waits() as waits:
        shards.fill(expected, made, chunks_between=2)
        buffers.upload(made)
    assert waits.found == []


@needs_cuda
def test_torch_itself_finds_no_wait_on_a_gpu() -> None:
    shards = Shards(device=CUDA).insert(8)
    _, buffers = shards.both(2)
    with waiting_is_an_error():
        for _ in range(2):
            made = buffers.take()
            made.fill(slice(0, BATCH), shards.draw(0, BATCH), shards.on_device[0])
            shards.insert(1)
            batch = on_current_stream(*buffers.upload(made))
    assert {tensor.device.type for tensor in batch if tensor is not None} == {"cuda"}


@needs_cuda
def test_only_numbers_cross_the_bus() -> None:
    """Nothing of a batch is left in the host's memory but row numbers and columns, and those are pinned."""
    staging: Any = Shards(device=CUDA).both()[1].take()
    tensors = [*staging.tensors.values(), *staging._newest.values()]
    assert all(tensor.is_pinned() for tensor in tensors)
    assert sum(tensor.nbytes for tensor in tensors) == BATCH * (8 + 8 + 4 + 4 + 4 + 4)


def test_the_size_by_hand() -> None:
    assert TWO_MILLION.nbytes == 45_008 * 64 * 84 * 84
    assert MirrorSize(ATARI, 10, 4, 1).nbytes == 4 * 10 * 64 * 84 * 84


@pytest.mark.parametrize(
    ("free", "on_device"),
    [(TWO_MILLION.nbytes + 5 * GIB, True), (TWO_MILLION.nbytes + 5 * GIB - 1, False), (3 * GIB, False), (0, False)],
)
def test_it_goes_where_it_fits_beside_the_margin(free: int, on_device: bool) -> None:
    assert fits(TWO_MILLION, free, 5 * GIB)[0] == on_device


def test_what_is_told() -> None:
    assert (
        fits(TWO_MILLION, 70 * GIB, 8 * GIB)[1]
        == "on the GPU: it takes 18.9 GiB; of the GPU's 70.0 GiB of free memory 8.0 GiB stay for updates"
    )
    told = fits(TWO_MILLION, 17 * GIB, 8 * GIB)[1]
    assert told.startswith("in RAM: it would take 18.9 GiB, and of the GPU's 17.0 GiB of free memory 8.0 GiB stay")
    assert told.endswith("; a replay.capacity of about 950,000 would fit")
    assert fits(MirrorSize(ATARI, Capacity(950_000).chunks(ATARI), 1, 950_000), 17 * GIB, 8 * GIB)[0]
    assert "would fit" not in fits(TWO_MILLION, 7 * GIB, 8 * GIB)[1]


def test_the_margin_has_room_for_the_batches_that_are_under_way() -> None:
    stacks = 2 * 512 * 4 * 84 * 84
    assert margin_bytes(ATARI, 512, 2, 80 * GIB) == 8 * GIB + (2 + 2 + 4) * stacks
    assert margin_bytes(ATARI, 512, 2, 4 * GIB) == 1 * GIB + (2 + 2 + 4) * stacks, "small devices have optimisers, too"


def test_on_a_cpu_it_is_in_ram() -> None:
    assert mirror_for(TWO_MILLION, 512, 2, torch.device("cpu")) == (None, "in RAM, as the learner computes on the CPU")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GIB, 80 * GIB))


@pytest.mark.usefixtures("card")
def test_memory_that_is_gone_when_it_is_taken_leaves_the_mirror_in_ram(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others have taken it since the device was asked."""
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 18.92 GiB.\nand a page more")
    monkeypatch.setattr(device_mirror, "DeviceMirror", raising(error))
    with caplog.at_level(logging.INFO):
        mirror, told = mirror_for(TWO_MILLION, 512, 2, torch.device("cuda"))
    assert mirror is None
    assert told == "in RAM: the GPU did not give 18.9 GiB (CUDA out of memory. Tried to allocate 18.92 GiB.)"
    assert f"the mirror of the replay is {told}" in caplog.text


@pytest.mark.usefixtures("card")
def test_what_does_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_mirror, "DeviceMirror", lambda *sizes: pytest.fail("it was tried"))
    mirror, told = mirror_for(MirrorSize(ATARI, 450_000, 1, 20_000_000), 512, 2, torch.device("cuda"))
    assert mirror is None
    assert told.startswith("in RAM: it would take 189.3 GiB")


@needs_cuda
def test_on_a_gpu_with_room_it_is_there() -> None:
    device = torch.device("cuda")
    before = torch.cuda.memory_allocated(device)
    mirror, told = mirror_for(MirrorSize(ATARI, 100, 2, 8_000), 32, 2, device)
    assert mirror is not None
    assert told.startswith("on the GPU")
    assert torch.cuda.memory_allocated(device) - before >= mirror.nbytes == 200 * 64 * 84 * 84
