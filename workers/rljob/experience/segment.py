"""A segment: consecutive steps of one environment stream, self-contained, every frame stored once.

All segments of a run have one shape: what an actor fills, a table reserves and a learner gathers from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rljob import wire
from rljob.experience.columns import ActionSpace, Column, ColumnRole, Rows, transition_columns, unroll_columns
from rljob.observation import Array, Columns


class InvalidSegment(ValueError):
    """A segment whose columns contradict each other or the layout of the run; the text says which and how."""


_ORIGIN: tuple[tuple[str, str], ...] = (
    # (attribute, field on the wire)
    ("actor", "actor"),
    ("incarnation", "inc"),
    ("sequence", "seq"),
    ("environment", "env"),
    ("policy_version", "pv"),
    ("epoch", "epoch"),
    ("steps", "steps"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Up to T steps of one stream, exactly T of an unroll. It owns its arrays; receivers must not write to them.

    ``columns``: those of observations and the others of the layout, by name. Those of an observation, such as ``frames``, are
    ``[P, *F*]``: consecutive frames, or rows, of the stream, each once. The first observation of an episode contributes all of
    its S frames, any later one its newest frame, and, of transitions, the final observation of an episode one more. What ends
    with frame p is ``frames[p - S + 1 : p + 1]``, oldest first; columns of the role ``STACK`` hold such p.

    ``policy_version`` is the version that chose the first action, the oldest one. ``sequence`` counts the segments of one
    incarnation of one actor. ``epoch``: the life of the learner that the weights came from.
    """

    layout: SegmentLayout
    actor: str
    incarnation: str
    sequence: int
    environment: int
    policy_version: int
    epoch: int
    steps: int
    columns: Mapping[str, Array]

    def __getitem__(self, name: str) -> Array:
        """A column."""
        return self.columns[name]

    @property
    def origin(self) -> str:
        """A name that it has in the actor and wherever it goes from there. ``sequence`` is that of one shard, so segments of
        different environments may share it."""
        return f"{self.actor} {self.incarnation} {self.environment} {self.sequence}"

    def to_message(self) -> wire.Message:
        """The ``chunk`` or ``unroll`` message; its columns share memory with the segment."""
        fields = {field: getattr(self, attribute) for attribute, field in _ORIGIN}
        observed = {column.name: self.columns[column.name] for column in self.layout.observation}
        columns = {column.wire: self.columns[column.name] for column in self.layout.columns}
        return wire.Message(kind=self.layout.kind, fields=fields, columns=observed | columns)

    @classmethod
    def from_message(cls, message: wire.Message, layout: SegmentLayout) -> Self:
        """Read a segment from any message that carries its fields and columns (``chunk``, ``unroll``, ``mirror``).

        Raises ``InvalidSegment`` when a field or column is missing, or when the segment does not satisfy the layout.
        The arrays are those of the message, not copies.
        """
        return cls.from_parts(message.fields, message.columns, layout)

    @classmethod
    def from_parts(cls, fields: Mapping[str, Any], columns: Mapping[str, Array], layout: SegmentLayout) -> Self:
        """A segment of what a message has; raises as ``from_message`` does."""
        try:
            found = {column.name: columns[column.name] for column in layout.observation}
            for column in layout.columns:
                found[column.name] = columns[column.wire]
            origin = {attribute: fields[field] for attribute, field in _ORIGIN}
            segment = cls(layout=layout, columns=found, **origin)
        except KeyError as missing:
            raise InvalidSegment(f"{layout.kind} lacks {missing.args[0]!r}") from None
        segment.check()
        return segment

    def check(self) -> None:
        """Raise ``InvalidSegment`` unless every array agrees with the others and with the layout.

        After this, gathering any step reads inside ``frames``, and no value can poison a priority or a target.
        """
        layout = self.layout
        least = layout.length if layout.exact else 1
        if not least <= self.steps <= layout.length:
            raise InvalidSegment(f"{layout.kind} of {self.steps} steps, the layout allows {least} to {layout.length}")
        count = len(self.columns[layout.observation[0].name])
        for observed in layout.observation:
            problem = observed.problem(self.columns[observed.name], (count, *observed.shape))
            if problem is not None:
                raise InvalidSegment(problem)
        if not layout.stack <= count <= layout.max_frames:
            raise InvalidSegment(f"{count} frames, the layout allows {layout.stack} to {layout.max_frames}")
        rows = {Rows.STEPS: (self.steps,), Rows.OBSERVATIONS: (self.steps + 1,), Rows.SEGMENT: ()}
        for column in layout.columns:
            self._check(column, rows[column.rows] + column.shape, count)

    def _check(self, column: Column, expected: tuple[int, ...], frames: int) -> None:
        array = self.columns[column.name]
        if array.dtype != column.dtype or array.shape != expected:
            raise InvalidSegment(
                f"column {column.wire} is {array.dtype}{list(array.shape)}, expected {column.dtype}{list(expected)}"
            )
        if column.role is ColumnRole.STACK:
            if int(array.min()) < self.layout.stack - 1 or int(array.max()) >= frames:
                raise InvalidSegment(f"{column.wire} leaves the {frames} frames of the {self.layout.kind}")
            return
        limits = column.limits
        if limits is None or not array.size:
            return
        smallest, largest = array.min(), array.max()
        inside = limits[0] <= smallest and largest <= limits[1]  # not so where one of them is NaN
        if not inside or (column.most and (array > np.array(column.most)).any()):
            if not np.isfinite([smallest, largest]).all():
                raise InvalidSegment(f"{column.name} is not finite")
            allowed = f"{_bound(column.low)} to {_bound(column.high)}"
            raise InvalidSegment(f"{column.name} holds {smallest} to {largest}; allowed: {allowed}")


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"


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
        # Of others two boundaries always fit, and about one every eight steps when a boundary costs a single frame. A stream with
        # more of them closes its chunks early; it loses nothing but some compression.
        slack = max(2 * stack, self.length // 8)
        frames = of_ends if self.exact else stack - 1 + self.length + self.n_step + slack
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
    return SegmentLayout(length, observation, 1, True, unroll_columns(actions, memory), leaves)
