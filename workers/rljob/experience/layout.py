"""The shape of every segment of a run: what an actor fills, a table reserves and a learner gathers from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rljob.experience.columns import Column, Role, transition_columns, unroll_columns

# Positions inside a segment travel as unsigned 16-bit numbers.
MAX_POSITION = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """Bounds shared by the producer and every consumer of segments.

    ``length`` is the number of steps of a segment (T), the largest one unless it is ``exact``; ``frame_shape`` the shape of one
    frame (``F*``), ``stack`` the number of frames in an observation (S), ``n_step`` how many steps at most lie between an
    observation and the one that it bootstraps from (n), and ``columns`` all but the frames.
    ``transition_layout`` and ``unroll_layout`` make them.
    Raises ``ValueError`` when a bound is not positive or when positions would not fit their 16-bit columns.
    """

    length: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype[np.generic]
    stack: int
    n_step: int
    exact: bool
    columns: tuple[Column, ...]
    frame_bytes: int = field(init=False)
    max_frames: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame_dtype", np.dtype(self.frame_dtype))
        object.__setattr__(self, "frame_shape", tuple(int(size) for size in self.frame_shape))
        for name, value in (("length", self.length), ("stack", self.stack), ("n_step", self.n_step)):
            if value < 1:
                raise ValueError(f"{self.kind} layout: {name} is {value}, it must be at least 1")
        if any(size < 1 for size in self.frame_shape):
            raise ValueError(f"{self.kind} layout: frame_shape is {self.frame_shape}, every side must be at least 1")
        if self.frame_dtype.hasobject:
            raise ValueError(
                f"{self.kind} layout: frames of dtype {self.frame_dtype} cannot be sent, use a numeric dtype"
            )
        elements = int(np.prod(self.frame_shape, dtype=np.int64))
        object.__setattr__(self, "frame_bytes", elements * self.frame_dtype.itemsize)
        if self.exact:
            # Every step may end an episode, and each episode brings the S frames of its first observation.
            frames = self.stack * (self.length + 1)
        else:
            frames = self.stack - 1 + self.length + self.n_step + self.boundary_slack
        if frames > MAX_POSITION:
            raise ValueError(
                f"{self.kind} layout: up to {frames} frames, positions hold at most {MAX_POSITION}; lower "
                + ("unrollLength or frameStack" if self.exact else "chunkLength, nStep or frameStack")
            )
        object.__setattr__(self, "max_frames", frames)

    @property
    def kind(self) -> str:
        """The kind of message that brings such a segment."""
        return "unroll" if self.exact else "chunk"

    @property
    def boundary_slack(self) -> int:
        """Frames reserved for episode boundaries; each costs ``stack`` frames more than an ordinary step.

        Two boundaries always fit, and about one every eight steps when a boundary costs a single frame. A stream with
        more of them closes its chunks early; it loses nothing but some compression.
        """
        return max(2 * self.stack, self.length // 8)

    @property
    def compressed_columns(self) -> tuple[str, ...]:
        """Columns worth an LZ4 pass, as the wire calls them: repetitive integer frames, and versions that hardly change.
        Floating-point frames hardly shrink."""
        versions = tuple(column.wire for column in self.columns if column.role is Role.VERSION)
        return ("frames", *versions) if self.frame_dtype.kind in "ub" else versions

    def with_role(self, role: Role) -> tuple[Column, ...]:
        """The columns of this role."""
        return tuple(column for column in self.columns if column.role is role)


def transition_layout(
    length: int,
    frame_shape: tuple[int, ...],
    frame_dtype: np.dtype[np.generic],
    stack: int,
    n_step: int,
    num_actions: int | None = None,
) -> SegmentLayout:
    """The layout of chunks of at most ``length`` n-step transitions. Actions must lie below ``num_actions``; None does not bound
    them, for a table that no network learns from."""
    return SegmentLayout(length, frame_shape, frame_dtype, stack, n_step, False, transition_columns(num_actions))


def unroll_layout(
    length: int,
    frame_shape: tuple[int, ...],
    frame_dtype: np.dtype[np.generic],
    stack: int,
    memory: int = 0,
    num_actions: int | None = None,
) -> SegmentLayout:
    """The layout of unrolls of exactly ``length`` steps; ``memory``: units of a recurrent state (H, 0 for none)."""
    if memory < 0:
        raise ValueError(f"unroll layout: memory is {memory}, it must be at least 0")
    return SegmentLayout(length, frame_shape, frame_dtype, stack, 1, True, unroll_columns(num_actions, memory))
