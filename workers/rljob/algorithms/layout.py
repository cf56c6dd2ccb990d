"""Orders of frames in memory. Each function gives the values it was given, in an order that a processor computes faster with.

Byte frames on a CPU are moved as machine words: torch moves single bytes at a third of the speed or less.
"""

import sys
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

_PIXELS_AT_ONCE = 1 << 17  # as machine words they stay in a core's cache
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def planes(frames: Tensor, *, channels_first: bool) -> Tensor:
    """Colour frames [B, S, H, W, C] (or, ``channels_first``, [B, S, C, H, W]) as [B, S * C, H, W]: the oldest frame's channels
    first. A view wherever one can be had, as of a stack of one."""
    return (frames if channels_first else frames.movedim(-1, -3)).flatten(-4, -3)


def channels_last(frames: Tensor) -> Tensor:
    """``frames`` [B, S, H, W] with the S values of a pixel beside each other in memory; the same tensor if they are."""
    if frames.is_contiguous(memory_format=torch.channels_last):
        return frames
    if frames.dtype != torch.uint8 or frames.shape[1] != 4 or not frames.is_cpu or sys.byteorder != "little":
        return frames.contiguous(memory_format=torch.channels_last)
    batch, _, height, width = frames.shape
    ordered = torch.empty(batch, height, width, dtype=torch.int32)
    count = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in range(0, batch, count):
        first, second, third, fourth = frames[start : start + count].to(torch.int32).unbind(1)
        word = (fourth << 24).bitwise_or_(third << 16).bitwise_or_(second << 8).bitwise_or_(first)
        ordered[start : start + count] = word
    return ordered.view(torch.uint8).view(batch, height, width, 4).permute(0, 3, 1, 2)


def space_to_depth(frames: Tensor, block: int) -> Tensor:
    """``frames`` [B, S, H, W] with each block of ``block`` x ``block`` pixels made one pixel of S * block * block channels,
    [B, S * block * block, H // block, W // block] in channels-last order.

    Channels are numbered as by ``torch.nn.functional.pixel_unshuffle``, which also makes the weights of a convolution that
    fit: one of kernel k * block and stride ``block`` becomes one of kernel k and stride 1. Rows and columns that do not fill a
    block are left out: that convolution does not see them.
    """
    batch, stack, height, width = frames.shape
    rows, columns = height // block, width // block
    if frames.dtype != torch.uint8 or not frames.is_cpu:
        whole = frames[:, :, : rows * block, : columns * block]
        return functional.pixel_unshuffle(whole, block).contiguous(memory_format=torch.channels_last)
    frames = frames.contiguous()
    word = next(size for size in _WORDS if not (block % size or width % size or frames.storage_offset() % size))
    order = _block_order(stack, height, width, block, word)
    ordered = torch.empty(batch, len(order), dtype=_WORDS[word])
    words = frames.view(_WORDS[word]).view(batch, -1)
    # All indices are in range; "clip" lets numpy write to ``out`` without a copy in between.
    np.take(words.numpy(), order, axis=1, out=ordered.numpy(), mode="clip")
    return ordered.view(torch.uint8).view(batch, rows, columns, -1).permute(0, 3, 1, 2)


def select(frames: Tensor, index: Tensor) -> Tensor:
    """``frames[index]`` for int64 ``index`` [N], in the order in memory that ``frames`` [..., S, H, W] have.

    Frames are copied whole: indexing would copy them value by value, which takes ten times as long.
    """
    if frames.is_contiguous() or frames.dim() < 4:
        return frames.index_select(0, index)
    return frames.movedim(-3, -1).index_select(0, index).movedim(-1, -3)


@lru_cache(maxsize=32)
def _block_order(stack: int, height: int, width: int, block: int, word: int) -> NDArray[np.intp]:
    """Where in a frame [stack, height, width], counted in words of ``word`` bytes, each word of its blocks is."""
    rows, columns = height // block, width // block
    index: NDArray[Any] = np.arange(stack * height * width // word).reshape(stack, height, width // word)
    index = index[:, : rows * block, : columns * block // word]
    index = index.reshape(stack, rows, block, columns, block // word)
    return index.transpose(1, 3, 0, 2, 4).ravel()
