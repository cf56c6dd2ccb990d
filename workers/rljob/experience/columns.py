"""What a segment of experience consists of, as data: the columns of transitions and of unrolls.

A column is named once, here. Builders record it, the wire carries it, a ring keeps it, a batch shows it; all of them go through
the list of a layout and know no column by name but those that they compute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import StepResult

TERMINATED: Final = 1
TRUNCATED: Final = 2
LIFE_LOST: Final = 4

_SMALLEST: Final = float(np.finfo(np.float32).smallest_subnormal)


class Rows(StrEnum):
    """How many rows a column has in a segment of T steps."""

    STEPS = "T"
    OBSERVATIONS = "T + 1"
    """One for the observation behind the last step, too."""
    SEGMENT = "1"
    """The column is of the whole segment and has no rows."""


class ColumnRole(StrEnum):
    """What becomes of a column behind the wire."""

    STACK = "stack"
    """Positions of newest rows of observations: a batch has the observations that end there."""
    LEARNED = "learned"
    """Goes into batches as it is."""
    VERSION = "version"
    """Goes with a batch and stays in the host's memory."""
    PRIORITY = "priority"
    """Says how often a replay draws the step."""
    NOTED = "noted"
    """Is in no batch."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a segment.

    Attributes:
        name: in code and in batches (``TransitionBatch``, ``UnrollBatch``); of a ``STACK`` that of the observations.
        wire: in messages and in the log of a replay shard.
        dtype: of an element.
        shape: of a row.
        low, high: the smallest and the largest value that is allowed; of floats every finite number unless they are given.
        most: the largest in each place of a row, where that is not everywhere the same.
        source: what a builder records, [N, *shape] or one number for all streams. None for what it computes.
        limits: the smallest and the largest value; None where every value of the type is allowed. NaN lies in no limits.
    """

    name: str
    wire: str
    dtype: np.dtype[Any]
    rows: Rows = Rows.STEPS
    role: ColumnRole = ColumnRole.LEARNED
    shape: tuple[int, ...] = ()
    low: float | None = None
    high: float | None = None
    most: tuple[int, ...] = ()
    source: "Callable[[Decision, StepResult], Any] | None" = field(default=None, compare=False)
    limits: tuple[float, float] | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", _limits(self))

    def extent(self, steps: int) -> tuple[int, ...]:
        """The shape of this column in a segment of ``steps``."""
        return self.shape if self.rows is Rows.SEGMENT else (steps + (self.rows is Rows.OBSERVATIONS), *self.shape)


def _limits(column: Column) -> tuple[float, float] | None:
    if column.dtype.kind == "f":
        largest = float(np.finfo(column.dtype).max)
        return -largest if column.low is None else column.low, largest if column.high is None else column.high
    if column.low is None and column.high is None:
        return None
    return -np.inf if column.low is None else column.low, np.inf if column.high is None else column.high


def _column(name: str, wire: str, dtype: str, *args: Any, **options: Any) -> Column:
    return Column(name, wire, np.dtype(dtype), *args, **options)


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """What actions are made of: choices of ``sizes`` values each, and ``controls`` continuous numbers. None: a single choice that
    is not bounded, for a table that no network learns from."""

    sizes: tuple[int, ...] | None = None
    controls: int = 0


def _action_columns(actions: ActionSpace) -> tuple[Column, ...]:
    """``action``: the number of each choice, [] of a single one and else [choices]. ``control``, where there are any: numbers."""
    sizes = actions.sizes or ()
    # A learner would look the value of an action beyond these up beyond the network's outputs.
    high = max(sizes) - 1 if sizes else None
    shape = () if actions.sizes is None or len(sizes) == 1 else (len(sizes),)
    most = tuple(size - 1 for size in sizes) if len(set(sizes)) > 1 else ()
    choices = _column(
        "action", "action", "i4", low=0, high=high, most=most, shape=shape, source=lambda decision, _: decision.action
    )
    if not actions.controls:
        return (choices,)
    shape = (actions.controls,)
    return choices, _column("control", "control", "f4", shape=shape, source=lambda decision, _: decision.control)


def transition_columns(actions: ActionSpace) -> tuple[Column, ...]:
    """The columns of n-step transitions, one row a transition.

    ``n_step_return``: the discounted rewards up to the state that it bootstraps from, which ``next_observation`` shows.
    ``discount``: gamma^m for a bootstrap m steps ahead, 0 where the window met a terminal. ``priority``: the initial one.
    ``flags``: ``TERMINATED``, ``TRUNCATED``, ``LIFE_LOST`` of the transition's own step.
    """
    return (
        _column("observation", "obs_at", "u2", role=ColumnRole.STACK),
        _column("next_observation", "boot_at", "u2", role=ColumnRole.STACK),
        *_action_columns(actions),
        _column("n_step_return", "ret", "f4"),
        _column("discount", "disc", "f4", low=0.0, high=1.0),
        # A transition of priority 0 could never be drawn.
        _column("priority", "prio", "f4", role=ColumnRole.PRIORITY, low=_SMALLEST),
        _column("flags", "flags", "u1", role=ColumnRole.NOTED),
    )


def unroll_columns(actions: ActionSpace, memory: int) -> tuple[Column, ...]:
    """The columns of unrolls, one row a step; ``memory``: units H of a recurrent state, 0 for none.

    ``state``: the recurrent state before the first observation. ``discount``: gamma, or 0 where the step ended an episode.
    ``ended``: how it did, ``TERMINATED`` or ``TRUNCATED``, 0 where it did not. ``log_prob``: log mu(a|s). ``final_value``: what
    the acting policy expected of the final observation where the step truncated an episode, else 0, and 0 without weights.
    ``policy_version``: the version that chose the action, 0 for a random one.
    """
    return (
        _column("state", "state", "f4", Rows.SEGMENT, shape=(2, memory)),
        _column("observation", "obs_at", "u2", Rows.OBSERVATIONS, ColumnRole.STACK),
        *_action_columns(actions),
        _column("reward", "reward", "f4", source=lambda decision, result: result.reward),
        _column("discount", "disc", "f4", low=0.0, high=1.0),
        # A probability is 1 at most, but for rounding; a density may be any finite number.
        _column(
            "log_prob",
            "logp",
            "f4",
            high=None if actions.controls else 1e-4,
            source=lambda decision, result: decision.taken,
        ),
        _column("final_value", "final", "f4"),
        _column("ended", "ended", "u1", low=0, high=TRUNCATED),
        _column(
            "policy_version",
            "pvs",
            "i8",
            role=ColumnRole.VERSION,
            low=0,
            source=lambda decision, result: decision.version,
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Actions int64 [N], or [N, choices] where there are several, with what experience has to say of them.

    ``taken`` float32 [N]: Q(s, a) where actions have values, log mu(a|s) where a policy was sampled. ``value`` float32 [N]: the
    value of the state, max_a Q(s, a) or V(s). Both NaN where unknown. ``version`` int64 [N], or one number for all: the weights
    that chose, 0 for none. ``state`` float32 [N, 2, H]: the memory *before* the observation was seen; None without a memory.
    ``control`` float32 [N, controls]: the continuous numbers of the actions, None without any.
    """

    action: NDArray[np.int64]
    taken: NDArray[np.float32]
    value: NDArray[np.float32]
    version: NDArray[np.int64] | int = 0
    state: NDArray[np.float32] | None = None
    control: NDArray[np.float32] | None = None

    @classmethod
    def joined(cls, parts: "Sequence[Decision]") -> Self:
        """The decisions for groups of environments as one for all of them, in this order."""
        states = [part.state for part in parts if part.state is not None]
        controls = [part.control for part in parts if part.control is not None]
        return cls(
            np.concatenate([part.action for part in parts]),
            np.concatenate([part.taken for part in parts]),
            np.concatenate([part.value for part in parts]),
            np.concatenate([np.broadcast_to(part.version, part.action.shape[:1]) for part in parts]),
            np.concatenate(states) if states else None,
            np.concatenate(controls) if controls else None,
        )
