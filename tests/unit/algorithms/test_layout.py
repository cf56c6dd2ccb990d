"""Orders in memory: the same values, wherever they come from in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from rljob.algorithms.layout import channels_last, select, space_to_depth
from torch.nn import functional


def views(frames: torch.Tensor) -> Iterator[torch.Tensor]:
    """The frames, and parts of them whose memory begins elsewhere, has gaps, or runs in another order."""
    yield frames
    yield frames[2:4]
    yield frames[:, :, 1:]
    yield frames[:, :, :, 1:]
    yield frames.contiguous(memory_format=torch.channels_last)
    yield torch.empty(frames.numel() + 1, dtype=frames.dtype)[1:].view(frames.shape).copy_(frames)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("count", "stack", "height", "width"), [(6, 1, 7, 5), (6, 3, 8, 8), (90, 4, 40, 44), (6, 4, 21, 22)]
)
def test_channels_last(dtype: torch.dtype, count: int, stack: int, height: int, width: int) -> None:
    for frames in views(torch.randint(0, 256, (count, stack, height, width)).to(dtype)):
        ordered = channels_last(frames)
        assert torch.equal(ordered, frames)
        assert ordered.is_contiguous(memory_format=torch.channels_last)
        assert channels_last(ordered) is ordered


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("block", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize(("stack", "height", "width"), [(1, 12, 9), (4, 42, 42), (4, 24, 33), (3, 21, 64)])
def test_space_to_depth(dtype: torch.dtype, block: int, stack: int, height: int, width: int) -> None:
    for frames in views(torch.randint(0, 256, (5, stack, height, width)).to(dtype)):
        rows, columns = frames.shape[2] // block * block, frames.shape[3] // block * block
        ordered = space_to_depth(frames, block)
        assert torch.equal(ordered, functional.pixel_unshuffle(frames[:, :, :rows, :columns], block))
        assert ordered.is_contiguous(memory_format=torch.channels_last)


def test_selected_frames_keep_their_order_in_memory() -> None:
    frames, index = torch.randint(0, 256, (6, 5, 4, 12, 12), dtype=torch.uint8), torch.tensor([4, 0, 0, 3])
    ordered = space_to_depth(frames.flatten(0, 1), 4).unflatten(0, (6, 5))
    for some in (frames, frames[:, 0], frames[:, 0, 0, 0], ordered, ordered.flatten(0, 1), frames.transpose(3, 4)):
        assert torch.equal(select(some, index), some[index])
    assert select(ordered.flatten(0, 1), index).is_contiguous(memory_format=torch.channels_last)
    assert select(ordered, index).flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
