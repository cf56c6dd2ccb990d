"""An unroll: exactly T consecutive steps of one environment stream, self-contained, every frame stored once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob import wire
from rljob.experience.chunk import InvalidChunk, check_actions, fields_of, origin_of
from rljob.experience.layout import MAX_POSITION

Array = NDArray[Any]

# (attribute and column on the wire, dtype, rows beyond T)
_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("observation_at", "obs_at", "u2", 1),
    ("action", "action", "i4", 0),
    ("reward", "reward", "f4", 0),
    ("discount", "disc", "f4", 0),
    ("log_prob", "logp", "f4", 0),
    ("value", "value", "f4", 1),
    ("final_value", "final", "f4", 0),
    ("policy_versions", "pvs", "i8", 0),
)


@dataclass(frozen=True, slots=True)
class UnrollLayout:
    """The shape of every unroll of a run: ``length`` steps (T), ``frame_shape`` (F*) and dtype of a frame, ``stack`` frames an
    observation (S), ``memory`` units of a recurrent state (H, 0 for none), ``num_actions`` as in ``ChunkLayout``.

    Raises ``ValueError`` when a bound is not positive or positions would not fit their 16-bit columns.
    """

    length: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype[np.generic]
    stack: int
    memory: int = 0
    num_actions: int | None = None
    max_frames: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame_dtype", np.dtype(self.frame_dtype))
        object.__setattr__(self, "frame_shape", tuple(int(size) for size in self.frame_shape))
        for name, value in (("unrollLength", self.length), ("frameStack", self.stack)):
            if value < 1:
                raise ValueError(f"unroll layout: {name} is {value}, it must be at least 1")
        if self.memory < 0 or any(size < 1 for size in self.frame_shape) or self.frame_dtype.hasobject:
            raise ValueError(f"unroll layout: {self} is impossible; sizes must be positive and frames numeric")
        # Every step may end an episode, and each episode brings the S frames of its first observation.
        frames = self.stack * (self.length + 1)
        if frames > MAX_POSITION:
            raise ValueError(
                f"unroll layout: up to {frames} frames an unroll, positions hold at most {MAX_POSITION}; "
                "lower unrollLength or frameStack"
            )
        object.__setattr__(self, "max_frames", frames)

    @property
    def compressed_columns(self) -> tuple[str, ...]:
        """Columns worth an LZ4 pass: repetitive integer frames, and versions that hardly change."""
        return ("frames", "pvs") if self.frame_dtype.kind in "ub" else ("pvs",)


@dataclass(frozen=True, slots=True, eq=False)
class Unroll:
    """T steps of one stream, and the observation behind the last one. Owns its arrays; receivers must not write to them.

    ``frames`` ``[P, *F*]``: consecutive frames, each once; the first observation of an episode contributes all of its S.
    Observation t (of T + 1) is ``frames[observation_at[t] - S + 1 : observation_at[t] + 1]``, oldest first.

    Columns: ``observation_at`` u2[T + 1]; ``action`` i4[T]; ``reward`` f4[T]; ``discount`` f4[T], gamma, or 0 where the step
    ended an episode; ``log_prob`` f4[T], log mu(a|s); ``value`` f4[T + 1], what the acting policy expected of each observation;
    ``final_value`` f4[T], what it expected of the final observation where the step *truncated* an episode, else 0;
    ``policy_versions`` i8[T], the version that chose each action (0: uniformly random). ``state`` f4[2, H]: the recurrent state
    before the first observation.

    ``policy_version`` is the version of the first step, the oldest; ``epoch`` the life of the learner that those weights came
    from; ``sequence`` counts the unrolls of one incarnation of one actor.
    """

    actor: str
    incarnation: str
    sequence: int
    environment: int
    policy_version: int
    epoch: int
    frames: Array
    observation_at: Array
    action: Array
    reward: Array
    discount: Array
    log_prob: Array
    value: Array
    final_value: Array
    policy_versions: Array
    state: Array

    @property
    def steps(self) -> int:
        """Steps in this unroll."""
        return int(self.action.shape[0])

    def to_message(self) -> wire.Message:
        """The ``unroll`` message; its columns share memory with the unroll."""
        columns = {"frames": self.frames, "state": self.state}
        for attribute, column, _, _ in _COLUMNS:
            columns[column] = getattr(self, attribute)
        return wire.Message(
            kind="unroll",
            fields=fields_of(self),
            columns=columns,
        )

    @classmethod
    def from_parts(cls, fields: Mapping[str, Any], columns: Mapping[str, Array]) -> Unroll:
        """Assemble an unroll from wire fields and columns without checking it. Raises ``InvalidChunk`` when one lacks."""
        try:
            values: dict[str, Any] = {attribute: columns[column] for attribute, column, _, _ in _COLUMNS}
            return cls(frames=columns["frames"], state=columns["state"], **(origin_of(fields) | values))
        except KeyError as missing:
            raise InvalidChunk(f"unroll lacks {missing.args[0]!r}") from None

    def check(self, layout: UnrollLayout) -> None:
        """Raise ``InvalidChunk`` unless every array agrees with ``layout``: nothing in it can then poison a target."""
        steps = layout.length
        for attribute, column, dtype, more in _COLUMNS:
            array = getattr(self, attribute)
            if array.dtype != np.dtype(dtype) or array.shape != (steps + more,):
                found = f"{array.dtype}{list(array.shape)}"
                raise InvalidChunk(f"column {column} is {found}, expected {dtype}[{steps + more}]")
        frames = self.frames
        if frames.dtype != layout.frame_dtype or frames.shape[1:] != layout.frame_shape:
            raise InvalidChunk(
                f"frames are {frames.dtype}{list(frames.shape)}, "
                f"expected {layout.frame_dtype}[P, {', '.join(map(str, layout.frame_shape))}]"
            )
        if not layout.stack <= len(frames) <= layout.max_frames:
            raise InvalidChunk(f"{len(frames)} frames, the layout allows {layout.stack} to {layout.max_frames}")
        if int(self.observation_at.min()) < layout.stack - 1 or int(self.observation_at.max()) >= len(frames):
            raise InvalidChunk(f"obs_at leaves the {len(frames)} frames of the unroll")
        if self.state.dtype != np.float32 or self.state.shape != (2, layout.memory):
            raise InvalidChunk(f"state is {self.state.dtype}{list(self.state.shape)}, expected f4[2, {layout.memory}]")
        for name in ("reward", "log_prob", "value", "final_value", "state"):
            if not np.isfinite(getattr(self, name)).all():
                raise InvalidChunk(f"{name} is not finite")
        if not (float(self.discount.min()) >= 0.0 and float(self.discount.max()) <= 1.0):
            raise InvalidChunk("a discount lies outside [0, 1]")
        if float(self.log_prob.max()) > 1e-4:
            raise InvalidChunk("a log-probability is positive")
        check_actions(self.action, layout.num_actions)
        if int(self.policy_versions.min()) < 0:
            raise InvalidChunk("a policy version is negative")
