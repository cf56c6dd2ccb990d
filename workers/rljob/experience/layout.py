"""The shape of every segment of a run: what an actor fills, a table reserves and a learner gathers from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience.columns import ActionSpace, Column, ColumnRole, transition_columns, unroll_columns
from rljob.observation import Columns

# Positions inside a segment travel as unsigned 16-bit numbers.
MAX_POSITION = np.iinfo(np.uint16).max
_UNBOUNDED = ActionSpace()


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """Bounds shared by the producer and every consumer of segments.

    ``length`` is the number of steps of a segment (T), the largest one unless it is ``exact``; ``observation`` the columns of
    observations, ``n_step`` how many steps at most lie between an observation and the one that it bootstraps from (n), and
    ``columns`` all others. ``stack`` (S): rows that the first observation of an episode brings. ``row_bytes``: of all columns of
    an observation, uncompressed. ``leaves``: what the environment shows and takes, a line each, for those who meet over it.
    ``transition_layout`` and ``unroll_layout`` make them.
    Raises ``ValueError`` when a bound is not positive or when positions would not fit their 16-bit columns.
    """

    length: int
    observation: Columns
    n_step: int
    exact: bool
    columns: tuple[Column, ...]
    leaves: tuple[str, ...] = ()
    stack: int = field(init=False)
    row_bytes: int = field(init=False)
    max_frames: int = field(init=False)

    def __post_init__(self) -> None:
        stack = max(column.stack for column in self.observation)
        object.__setattr__(self, "stack", stack)
        object.__setattr__(self, "row_bytes", sum(column.row_bytes for column in self.observation))
        for name, value in (("length", self.length), ("stack", stack), ("n_step", self.n_step)):
            if value < 1:
                raise ValueError(f"{self.kind} layout: {name} is {value}, it must be at least 1")
        for column in self.observation:
            if any(size < 1 for size in column.shape):
                raise ValueError(
                    f"{self.kind} layout: {column.name} have the shape {column.shape}, every side must be at least 1"
                )
            if column.dtype.hasobject:
                raise ValueError(
                    f"{self.kind} layout: {column.name} of dtype {column.dtype} cannot be sent, use a numeric dtype"
                )
        # Every step of an exact one may end an episode, and each episode brings the S frames of its first observation.
        of_ends = stack * (self.length + 1)
        frames = of_ends if self.exact else stack - 1 + self.length + self.n_step + self.boundary_slack
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
        """Columns worth an LZ4 pass, as the wire calls them: repetitive integers, and versions that hardly change.
        Floating-point numbers hardly shrink."""
        observed = tuple(column.name for column in self.observation if column.dtype.kind in "iub")
        return (*observed, *(column.wire for column in self.columns if column.role is ColumnRole.VERSION))

    @property
    def leaves_column(self) -> dict[str, NDArray[np.uint8]]:
        """``leaves`` as a column of a message; none where they are not known."""
        return {"leaves": np.frombuffer("\n".join(self.leaves).encode(), np.uint8)} if self.leaves else {}

    def other_leaves(self, columns: Mapping[str, NDArray[Any]]) -> str | None:
        """The first leaf in which the sender of a message with these ``columns`` differs, in words; None where none does, and
        where either does not say."""
        if "leaves" not in columns or not self.leaves:
            return None
        theirs = columns["leaves"].tobytes().decode(errors="replace").split("\n")
        for ours, other in zip_longest(self.leaves, theirs, fillvalue="nothing"):
            if ours != other:
                return f"its environment has {other} where this one has {ours}"
        return None

    def with_role(self, role: ColumnRole) -> tuple[Column, ...]:
        """The columns of this role."""
        return tuple(column for column in self.columns if column.role is role)


def transition_layout(
    length: int, observation: Columns, n_step: int, actions: ActionSpace = _UNBOUNDED, leaves: tuple[str, ...] = ()
) -> SegmentLayout:
    """The layout of chunks of at most ``length`` n-step transitions."""
    return SegmentLayout(length, observation, n_step, False, transition_columns(actions), leaves)


def unroll_layout(
    length: int,
    observation: Columns,
    memory: int = 0,
    actions: ActionSpace = _UNBOUNDED,
    leaves: tuple[str, ...] = (),
) -> SegmentLayout:
    """The layout of unrolls of exactly ``length`` steps; ``memory``: units of a recurrent state (H, 0 for none)."""
    if memory < 0:
        raise ValueError(f"unroll layout: memory is {memory}, it must be at least 0")
    return SegmentLayout(length, observation, 1, True, unroll_columns(actions, memory), leaves)
