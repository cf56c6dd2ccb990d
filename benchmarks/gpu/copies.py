"""Step 3, second half, a minute and a half: what it costs to bring batches to the GPU while it learns.

Ape-X with batches of 512 transitions of 84x84 frames, which lie in the host's memory: copied before each update from pageable
memory, from pinned memory, and by the learner's own ring of pinned buffers on a side stream with 1, 2 and 4 batches ahead. Beside
them the same updates on a batch that is there already, which is what no copy could exceed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Compute
from rljob.experience import ChunkLayout
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.staging import StagingRing, on_current_stream

from benchmarks.gpu.bench import begin, options, rate
from benchmarks.gpu.learner_alone import batch_of, learner, learners

AHEAD = (1, 2, 4)


def main() -> None:
    arguments = options(__doc__, 80.0).parse_args()
    figures = begin("copies", arguments, packages=["pydantic"])
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    frames, params = learners(tiny=not cuda)["ApeXDQN"]
    plan = Compute("bf16", channels_last=True) if cuda else Compute()
    each = learner("ApeXDQN", frames, params, plan, device)
    there = batch_of("ApeXDQN", frames, params, device)
    size = sum(tensor.nbytes for tensor in there)
    layout = ChunkLayout(50, frames.frame_shape, np.dtype(np.uint8), frames.stack, 3)

    def on_device() -> None:
        list(each.updates_from(there, 0))

    ways: dict[str, Callable[[], object]] = {"no copy": on_device}
    for pinned in (False, True) if cuda else (False,):
        host = TransitionBatch(*(t.cpu().pin_memory() if pinned else t.cpu() for t in there))
        ways["pinned" if pinned else "pageable"] = in_turn(each, host, device)
    for ahead in AHEAD:
        ring = StagingRing(layout, params.batch_size, ahead + 2, device)
        ways[f"pinned, side stream, {ahead} ahead"] = overlapped(each, filled(ring, there), ahead)
    found: dict[str, float] = {}
    for way, call in ways.items():
        with figures.trying("updates", way=way):
            found[way] = rate(call, arguments.seconds / (len(ways) * 1.2), device, warm_up=8 if cuda else 1)
            of_best = found[way] / found["no copy"] if "no copy" in found else None
            figures.write(
                "updates",
                way=way,
                updates_per_second=found[way],
                of_no_copy=of_best,
                megabytes_per_batch=size / 1e6,
                gigabytes_per_second=found[way] * size / 1e9 if way != "no copy" else None,
            )


def in_turn(each: AnyUpdater, host: TransitionBatch, device: torch.device) -> Callable[[], object]:
    """Copy, then learn."""

    def call() -> None:
        moved = TransitionBatch(*(tensor.to(device, non_blocking=tensor.is_pinned()) for tensor in host))
        list(each.updates_from(moved, 0))

    return call


def filled(ring: StagingRing, batch: TransitionBatch) -> StagingRing:
    """``ring``, with ``batch`` in every buffer of it."""
    taken = [staging for _ in range(ring.available()) if (staging := ring.take()) is not None]
    for staging in taken:
        for name, tensor in staging.tensors.items():
            tensor.copy_(getattr(batch, name))
        ring.give_back(staging)
    return ring


def overlapped(each: AnyUpdater, ring: StagingRing, ahead: int) -> Callable[[], object]:
    """Learn while the next batches are being copied, as the learner does; filling the buffers is left out."""
    ready: deque[tuple[Any, Any, Any]] = deque()

    def call() -> None:
        while len(ready) < ahead:
            staging = ring.take()
            if staging is None:
                if ready:
                    break
                continue
            ready.append((staging, *ring.upload(staging)))
        staging, batch, event = ready.popleft()
        list(each.updates_from(on_current_stream(batch, event), 0))
        ring.give_back(staging)

    return call


if __name__ == "__main__":
    main()
