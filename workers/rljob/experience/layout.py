"""The shape of every chunk of a run: what an actor fills, a replay table reserves and a learner gathers from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Positions inside a chunk travel as unsigned 16-bit numbers.
MAX_POSITION = np.iinfo(np.uint16).max

# observation_at, bootstrap_at, action, n_step_return, discount, priority, flags.
_STEP_COLUMN_BYTES = 2 + 2 + 4 + 4 + 4 + 4 + 1


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """Bounds shared by the producer and every consumer of chunks.

    ``length`` is the largest number of steps a chunk owns (T), ``frame_shape`` the shape of one frame (``F*``),
    ``stack`` the number of frames in an observation (S) and ``n_step`` the longest bootstrap window (n). ``num_actions``: an
    action must lie below it; None bounds it not at all, for a table that no network learns from.
    Raises ``ValueError`` when a bound is not positive or when positions would not fit their 16-bit columns.
    """

    length: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype[np.generic]
    stack: int
    n_step: int
    num_actions: int | None = None
    frame_bytes: int = field(init=False)
    max_frames: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame_dtype", np.dtype(self.frame_dtype))
        object.__setattr__(self, "frame_shape", tuple(int(size) for size in self.frame_shape))
        for name, value in (("length", self.length), ("stack", self.stack), ("n_step", self.n_step)):
            if value < 1:
                raise ValueError(f"chunk layout: {name} is {value}, it must be at least 1")
        if any(size < 1 for size in self.frame_shape):
            raise ValueError(f"chunk layout: frame_shape is {self.frame_shape}, every side must be at least 1")
        if self.frame_dtype.hasobject:
            raise ValueError(f"chunk layout: frames of dtype {self.frame_dtype} cannot be sent, use a numeric dtype")
        elements = int(np.prod(self.frame_shape, dtype=np.int64))
        object.__setattr__(self, "frame_bytes", elements * self.frame_dtype.itemsize)
        frames = self.stack - 1 + self.length + self.n_step + self.boundary_slack
        if frames > MAX_POSITION:
            raise ValueError(
                f"chunk layout: up to {frames} frames a chunk, positions hold at most {MAX_POSITION}; "
                "lower chunkLength, nStep or frameStack"
            )
        object.__setattr__(self, "max_frames", frames)

    @property
    def boundary_slack(self) -> int:
        """Frames reserved for episode boundaries; each costs ``stack`` frames more than an ordinary step.

        Two boundaries always fit, and about one every eight steps when a boundary costs a single frame. A stream with
        more of them closes its chunks early; it loses nothing but some compression.
        """
        return max(2 * self.stack, self.length // 8)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a full chunk, decoded: an upper bound for one slot of a ring."""
        return self.max_frames * self.frame_bytes + self.length * _STEP_COLUMN_BYTES

    @property
    def transition_bytes(self) -> float:
        """Decoded bytes per transition when every chunk slot is reserved at its largest size."""
        return self.chunk_bytes / self.length

    @property
    def compressed_columns(self) -> tuple[str, ...]:
        """Columns worth an LZ4 pass: repetitive integer frames. Floating-point frames hardly shrink."""
        return ("frames",) if self.frame_dtype.kind in "ub" else ()
