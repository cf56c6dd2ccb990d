"""The plainest chunks and unrolls that a layout allows, for tests that care for the way they go and not for what is in them; and
steps for builders, from bare arrays."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from rljob.envs.base import StepResult
from rljob.experience import Decision, Segment, SegmentBuilder, SegmentLayout, transition_layout, unroll_layout
from rljob.observation import frames

CHUNKS = transition_layout(10, frames((6, 6), np.uint8, 4), 3)
UNROLLS = unroll_layout(3, frames((2, 2), np.uint8, 2))
_FIELDS = {field.name for field in fields(Segment)}


def make_chunk(
    actor: str, number: int, layout: SegmentLayout = CHUNKS, steps: int | None = None, **changes: Any
) -> Segment:
    """The ``number``th of an actor: as many steps as the layout allows unless ``steps`` says fewer, inside one episode, zeros
    where zero is allowed and ones elsewhere; ``changes`` replace fields and columns."""
    steps = steps or layout.length
    at = np.arange(steps, dtype=np.uint16) + np.uint16(layout.stack - 1)
    columns = {
        **_frames(layout, steps + layout.stack - 1 + layout.n_step),
        "observation": at,
        "next_observation": at + np.uint16(layout.n_step),
        "discount": np.ones(steps, np.float32),
        "priority": np.ones(steps, np.float32),
    }
    return changed(_segment(actor, number, layout, steps, columns), **changes)


def make_unroll(actor: str, number: int, layout: SegmentLayout = UNROLLS, **changes: Any) -> Segment:
    """The ``number``th of an actor: inside one episode, zeros but for the version, which is that of all steps; ``changes``
    replace fields and columns."""
    steps = layout.length
    columns = {
        **_frames(layout, steps + layout.stack),
        "observation": np.arange(steps + 1, dtype=np.uint16) + np.uint16(layout.stack - 1),
        "policy_version": np.full(steps, changes.get("policy_version", 1), np.int64),
    }
    return changed(_segment(actor, number, layout, steps, columns), **changes)


def changed(segment: Segment, **changes: Any) -> Segment:
    """A copy with other fields or columns."""
    of_segment = {name: value for name, value in changes.items() if name in _FIELDS}
    columns = {name: value for name, value in changes.items() if name not in _FIELDS}
    return replace(segment, **of_segment, columns={**segment.columns, **columns})


def recorded(
    builder: SegmentBuilder,
    action: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    life_lost: Any,
    observation: Any,
    final_observation: Any = None,
    *,
    taken: Any,
    value: Any,
    final_value: Any = None,
    version: Any = 1,
    state: Any = None,
    cut: Any = None,
    control: Any = None,
) -> list[Segment]:
    """What a builder emits for a step that is given by its arrays."""
    result = StepResult(observation, reward, terminated, truncated, life_lost, final_observation, 0, (), cut)
    return builder.record(Decision(action, taken, value, version, state, control), result, final_value)


def _frames(layout: SegmentLayout, count: int) -> dict[str, Any]:
    return {column.name: np.zeros((count, *column.shape), column.dtype) for column in layout.observation}


def _segment(actor: str, number: int, layout: SegmentLayout, steps: int, columns: dict[str, Any]) -> Segment:
    zeros = {column.name: np.zeros(column.extent(steps), column.dtype) for column in layout.columns}
    return Segment(layout, actor, "life", number, 0, 1, 1, steps, zeros | columns)
