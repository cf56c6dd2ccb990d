"""Step 3, second half, a minute and a half: what it costs to bring batches to the GPU while it learns.

Ape-X with batches of 512 transitions of 84x84 frames, which lie in the host's memory: copied before each update from pageable
memory, from pinned memory, and by the learner's own ring of pinned buffers on a side stream with 1, 2 and 4 batches ahead. Beside
them the same updates on a batch that is there already, which is what no copy could exceed.

Then batches of random slots of a mirror of the replay, two ahead, gathered for each update as the learner's prefetch thread does
it, here on the loop's own thread: of a mirror in RAM, and of one on the device, of which only numbers are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Compute
from rljob.experience import transition_layout
from rljob.experience.ring import SegmentRing
from rljob.learner.device_mirror import DeviceMirror, MirrorStagingRing
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.staging import BufferRing, on_current_stream, transition_buffers

from benchmarks.gpu.bench import begin, options, rate
from benchmarks.gpu.learner_alone import batch_of, learner, learners
from tests.support.experience import make_chunk

AHEAD = (1, 2, 4)
BYTES_A_TRANSITION = 8 + 8 + 4 + 4 + 4 + 4
"""What a mirror on the device has copied of each: the rows of two stacks, action, return, discount, weight."""


def main() -> None:
    arguments = options(__doc__, 80.0).parse_args()
    figures = begin("copies", arguments, packages=["pydantic"])
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    frames, params = learners(tiny=not cuda)["ApeXDQN"]
    plan = Compute("bf16", channels_last=True) if cuda else Compute()
    each = learner("ApeXDQN", frames, params, plan, device)
    there = batch_of("ApeXDQN", frames, params, device)
    size = sum(tensor.nbytes for tensor in there if tensor is not None)
    layout = transition_layout(50, frames.columns, 3)

    def on_device() -> None:
        list(each.updates_from(there, 0))

    ways: dict[str, tuple[Callable[[], object], int]] = {"no copy": (on_device, 0)}
    for pinned in (False, True) if cuda else (False,):
        host = TransitionBatch(*(None if t is None else t.cpu().pin_memory() if pinned else t.cpu() for t in there))
        ways["pinned" if pinned else "pageable"] = in_turn(each, host, device), size
    for ahead in AHEAD:
        ring = transition_buffers(layout, params.batch_size, ahead + 2, device)
        ways[f"pinned, side stream, {ahead} ahead"] = overlapped(each, filled(ring, there), ahead), size
    chunks = 400 if cuda else 8
    in_ram = SegmentRing(layout, chunks)
    ring = transition_buffers(layout, params.batch_size, 4, device)
    ways["mirror in RAM, 2 ahead"] = overlapped(each, ring, 2, draws_from(in_ram, params.batch_size)), size
    mirror = DeviceMirror(layout, chunks, 1, device)
    there_too, rows = mirror.ring(0, chunks), MirrorStagingRing(mirror, params.batch_size, 4)
    crossing = params.batch_size * BYTES_A_TRANSITION
    ways["mirror on the device, 2 ahead"] = (
        overlapped(each, rows, 2, draws_from(there_too, params.batch_size)),
        crossing,
    )
    found: dict[str, float] = {}
    for way, (call, moved) in ways.items():
        with figures.trying("updates", way=way):
            found[way] = rate(call, arguments.seconds / (len(ways) * 1.2), device, warm_up=8 if cuda else 1)
            of_best = found[way] / found["no copy"] if "no copy" in found else None
            figures.write(
                "updates",
                way=way,
                updates_per_second=found[way],
                of_no_copy=of_best,
                megabytes_per_batch=moved / 1e6,
                gigabytes_per_second=found[way] * moved / 1e9 if moved else None,
            )


def in_turn(each: AnyUpdater, host: TransitionBatch, device: torch.device) -> Callable[[], object]:
    """Copy, then learn."""

    def call() -> None:
        there = (None if t is None else t.to(device, non_blocking=t.is_pinned()) for t in host)
        moved = TransitionBatch(*there)  # type: ignore[arg-type]
        list(each.updates_from(moved, 0))

    return call


def filled(ring: BufferRing[Any], batch: TransitionBatch) -> BufferRing[Any]:
    """``ring``, with ``batch`` in every buffer of it."""
    taken = [staging for _ in range(ring.available()) if (staging := ring.take()) is not None]
    for staging in taken:
        for name, tensor in staging.tensors.items():
            tensor.copy_(getattr(batch, name))
        ring.give_back(staging)
    return ring


def draws_from(ring: SegmentRing, size: int) -> Callable[[Any], None]:
    """Fills ``ring`` with random frames; fills a buffer with random transitions out of it."""
    random = np.random.default_rng(0)
    layout = ring.layout
    for number in range(ring.capacity):
        count = layout.length + layout.stack - 1 + layout.n_step
        frames = random.integers(0, 256, (count, *layout.observation[0].shape), dtype=np.uint8)
        ring.insert(number, 1, make_chunk("actor-0", number, layout, frames=frames))

    def fill(staging: Any) -> None:
        slots = random.integers(0, ring.capacity_steps, size).astype(np.uint32)
        staging.fill(slice(0, size), slots, ring)

    return fill


def overlapped(
    each: AnyUpdater, ring: BufferRing[Any], ahead: int, fill: Callable[[Any], None] = lambda staging: None
) -> Callable[[], object]:
    """Learn while the next batches are being copied, as the learner does. ``fill``: what is done to a buffer first."""
    ready: deque[tuple[Any, Any, Any]] = deque()

    def call() -> None:
        while len(ready) < ahead:
            staging = ring.take()
            if staging is None:
                if ready:
                    break
                continue
            fill(staging)
            ready.append((staging, *ring.upload(staging)))
        staging, batch, event = ready.popleft()
        list(each.updates_from(on_current_stream(batch, event), 0))
        ring.give_back(staging)

    return call


if __name__ == "__main__":
    main()
