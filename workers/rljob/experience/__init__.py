"""Experience: what an actor records, as self-contained pieces of a stream: chunks of n-step transitions, or unrolls."""

from typing import Any

from rljob.experience.builder import SegmentBuilder
from rljob.experience.columns import LIFE_LOST, TERMINATED, TRUNCATED, ActionSpace, ColumnRole, Decision, Rows
from rljob.experience.ring import SegmentRing, Slots, batch_key, part_of, take_stacks, transition_arrays, unroll_arrays
from rljob.experience.segment import InvalidSegment, Segment, SegmentLayout, transition_layout, unroll_layout
from rljob.experience.transitions_and_unrolls import TransitionBuilder, UnrollBuilder


def make_builder(layout: SegmentLayout, *args: Any, **named: Any) -> SegmentBuilder:
    """The builder for a layout; arguments as for ``SegmentBuilder``."""
    return (UnrollBuilder if layout.exact else TransitionBuilder)(layout, *args, **named)


__all__ = [
    "LIFE_LOST",
    "TERMINATED",
    "TRUNCATED",
    "ActionSpace",
    "ColumnRole",
    "Decision",
    "InvalidSegment",
    "Rows",
    "Segment",
    "SegmentBuilder",
    "SegmentLayout",
    "SegmentRing",
    "Slots",
    "batch_key",
    "make_builder",
    "part_of",
    "take_stacks",
    "transition_arrays",
    "transition_layout",
    "unroll_arrays",
    "unroll_layout",
]
