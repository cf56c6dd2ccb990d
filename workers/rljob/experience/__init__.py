"""Experience: what an actor records, as self-contained pieces of a stream: chunks of n-step transitions, or unrolls."""

from typing import Any

from rljob.experience.builder import SegmentBuilder
from rljob.experience.columns import LIFE_LOST, TERMINATED, TRUNCATED, ColumnRole, Decision
from rljob.experience.segment import InvalidSegment, Segment, SegmentLayout, transition_layout, unroll_layout
from rljob.experience.transitions_and_unrolls import TransitionBuilder, UnrollBuilder


def make_builder(layout: SegmentLayout, *args: Any, **named: Any) -> SegmentBuilder:
    """The builder for a layout; arguments as for ``SegmentBuilder``."""
    return (UnrollBuilder if layout.exact else TransitionBuilder)(layout, *args, **named)


__all__ = [
    "LIFE_LOST",
    "TERMINATED",
    "TRUNCATED",
    "ColumnRole",
    "Decision",
    "InvalidSegment",
    "Segment",
    "SegmentBuilder",
    "SegmentLayout",
    "make_builder",
    "transition_layout",
    "unroll_layout",
]
