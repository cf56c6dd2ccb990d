"""A chunk: consecutive steps of one environment stream, self-contained, every frame stored once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rljob import wire
from rljob.experience.layout import ChunkLayout

TERMINATED = 1
TRUNCATED = 2
LIFE_LOST = 4

Array = NDArray[Any]

_STEP_COLUMNS: tuple[tuple[str, str, str], ...] = (
    # (attribute, column on the wire, dtype)
    ("observation_at", "obs_at", "u2"),
    ("bootstrap_at", "boot_at", "u2"),
    ("action", "action", "i4"),
    ("n_step_return", "ret", "f4"),
    ("discount", "disc", "f4"),
    ("priority", "prio", "f4"),
    ("flags", "flags", "u1"),
)


class InvalidChunk(ValueError):
    """A chunk whose columns contradict each other or the layout of the run; the text says which and how."""


class HasOrigin(Protocol):
    """What chunks and unrolls say of where they come from."""

    @property
    def actor(self) -> str: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def environment(self) -> int: ...
    @property
    def policy_version(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def steps(self) -> int: ...


# (attribute, field on the wire)
_ORIGIN: tuple[tuple[str, str], ...] = (
    ("actor", "actor"),
    ("incarnation", "inc"),
    ("sequence", "seq"),
    ("environment", "env"),
    ("policy_version", "pv"),
    ("epoch", "epoch"),
)


def fields_of(experience: HasOrigin) -> dict[str, Any]:
    """The wire fields of a chunk or an unroll."""
    return {field: getattr(experience, attribute) for attribute, field in _ORIGIN} | {"steps": experience.steps}


def origin_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that stand in wire fields. Raises ``KeyError`` when one lacks."""
    return {attribute: fields[field] for attribute, field in _ORIGIN}


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Up to T transitions of one stream. The chunk owns its arrays; receivers must not write to them.

    ``frames`` is ``[P, *F*]``: consecutive frames of the stream, each once. The first observation of an episode
    contributes all of its S frames, any later one its newest frame, and the final observation of an episode one more.
    The observation of transition i is ``frames[observation_at[i] - S + 1 : observation_at[i] + 1]`` (oldest first) and
    the state it bootstraps from is found the same way at ``bootstrap_at[i]``.

    Columns, one row a transition: ``observation_at``, ``bootstrap_at`` u2; ``action`` i4; ``n_step_return`` f4 (the
    discounted rewards up to the bootstrap state); ``discount`` f4 (gamma^m for a bootstrap m steps ahead, 0 when the
    window met a terminal); ``priority`` f4 (initial, > 0); ``flags`` u1 (``TERMINATED``, ``TRUNCATED``, ``LIFE_LOST``
    of the transition's own step).

    ``policy_version`` is the version that chose the first action, the oldest one in the chunk. ``sequence`` counts the
    chunks of one incarnation of one actor.
    """

    actor: str
    incarnation: str
    sequence: int
    environment: int
    policy_version: int
    epoch: int
    frames: Array
    observation_at: Array
    bootstrap_at: Array
    action: Array
    n_step_return: Array
    discount: Array
    priority: Array
    flags: Array

    @property
    def steps(self) -> int:
        """Transitions in this chunk."""
        return int(self.action.shape[0])

    def to_message(self) -> wire.Message:
        """The ``chunk`` message of this chunk; its columns share memory with the chunk."""
        columns = {"frames": self.frames}
        for attribute, column, _ in _STEP_COLUMNS:
            columns[column] = getattr(self, attribute)
        return wire.Message(
            kind="chunk",
            fields=fields_of(self),
            columns=columns,
        )

    @classmethod
    def from_message(cls, message: wire.Message, layout: ChunkLayout | None = None) -> Chunk:
        """Read a chunk from any message that carries its fields and columns (``chunk``, ``mirror``).

        Raises ``InvalidChunk`` when a field or column is missing or, with a layout, when the chunk does not satisfy it.
        The arrays are those of the message, not copies.
        """
        chunk = cls.from_parts(message.fields, message.columns)
        if layout is not None:
            chunk.check(layout)
        return chunk

    @classmethod
    def from_parts(cls, fields: Mapping[str, Any], columns: Mapping[str, Array]) -> Chunk:
        """Assemble a chunk from wire fields and columns without checking it. Raises ``InvalidChunk`` when one lacks."""
        try:
            values: dict[str, Any] = {attribute: columns[column] for attribute, column, _ in _STEP_COLUMNS}
            return cls(frames=columns["frames"], **(origin_of(fields) | values))
        except KeyError as missing:
            raise InvalidChunk(f"chunk lacks {missing.args[0]!r}") from None

    def check(self, layout: ChunkLayout) -> None:
        """Raise ``InvalidChunk`` unless every array agrees with the others and with ``layout``.

        After this, gathering any transition reads inside ``frames``, and no value can poison a priority or a target.
        """
        steps = self.steps
        if not 1 <= steps <= layout.length:
            raise InvalidChunk(f"chunk of {steps} steps, the layout allows 1 to {layout.length}")
        for attribute, column, dtype in _STEP_COLUMNS:
            array = getattr(self, attribute)
            if array.dtype != np.dtype(dtype) or array.shape != (steps,):
                raise InvalidChunk(f"column {column} is {array.dtype}{list(array.shape)}, expected {dtype}[{steps}]")
        frames = self.frames
        if frames.dtype != layout.frame_dtype or frames.shape[1:] != layout.frame_shape:
            raise InvalidChunk(
                f"frames are {frames.dtype}{list(frames.shape)}, "
                f"expected {layout.frame_dtype}[P, {', '.join(map(str, layout.frame_shape))}]"
            )
        if not layout.stack <= len(frames) <= layout.max_frames:
            raise InvalidChunk(f"{len(frames)} frames, the layout allows {layout.stack} to {layout.max_frames}")
        for column, positions in (("obs_at", self.observation_at), ("boot_at", self.bootstrap_at)):
            if int(positions.min()) < layout.stack - 1 or int(positions.max()) >= len(frames):
                raise InvalidChunk(f"{column} leaves the {len(frames)} frames of the chunk")
        if not (np.isfinite(self.n_step_return).all() and np.isfinite(self.priority).all()):
            raise InvalidChunk("a return or a priority is not finite")
        if float(self.priority.min()) <= 0.0:
            raise InvalidChunk("a priority is not positive; such a transition could never be sampled")
        if not (float(self.discount.min()) >= 0.0 and float(self.discount.max()) <= 1.0):
            raise InvalidChunk("a discount lies outside [0, 1]")
        check_actions(self.action, layout.num_actions)


def check_actions(action: Array, num_actions: int | None) -> None:
    """Raise ``InvalidChunk`` for an action (int[T], T > 0) that the environment does not have: a learner would look its value
    up beyond the network's outputs."""
    if int(action.min()) < 0 or (num_actions is not None and int(action.max()) >= num_actions):
        allowed = "0 or more" if num_actions is None else f"0..{num_actions - 1}"
        raise InvalidChunk(f"actions are {int(action.min())} to {int(action.max())}; allowed: {allowed}")
