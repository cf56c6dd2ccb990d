"""What the acting loop writes experience with, whichever kind the algorithm learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from rljob.algorithms.decision import Decision
from rljob.envs.base import StepResult
from rljob.experience import Chunk, ChunkBuilder, ChunkLayout, Unroll, UnrollBuilder, UnrollLayout

Array = NDArray[Any]


class Recorder(Protocol):
    """Steps in, pieces of experience out. ``pending`` steps are recorded and not yet part of a piece; ``cut_steps`` never will
    be, because the environment failed before they were complete."""

    epoch: int
    cut_steps: int

    @property
    def num_envs(self) -> int: ...
    @property
    def produced(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def steps_into_unroll(self) -> int:
        """Steps since the current unroll began; 0 between unrolls, and always where there are none."""
        ...

    def begin(self, observation: Array) -> int: ...
    def record(
        self, decision: Decision, result: StepResult, final_values: Array | None
    ) -> Sequence[Chunk | Unroll]: ...
    def flush(self) -> Sequence[Chunk | Unroll]: ...
    def episode_ends(self, result: StepResult) -> Array:
        """bool[N]: where an episode ends with this step, in whatever way, a lost life included where the job says so."""
        ...


class TransitionRecorder(ChunkBuilder):
    """Records n-step transitions."""

    @property
    def steps_into_unroll(self) -> int:
        return 0

    def record(self, decision: Decision, result: StepResult, final_values: Array | None) -> Sequence[Chunk]:
        """One step of all environments; the chunks that it closed."""
        return self.step(
            decision.action,
            result.reward,
            result.terminated,
            result.truncated,
            result.life_lost,
            result.observation,
            result.final_observation,
            decision.taken,
            decision.value,
            final_values,
            decision.version,
            result.cut,
        )

    def episode_ends(self, result: StepResult) -> Array:
        return _ends(result, life_loss=self.life_loss_ends_episode)


class UnrollRecorder(UnrollBuilder):
    """Records unrolls."""

    def record(self, decision: Decision, result: StepResult, final_values: Array | None) -> Sequence[Unroll]:
        """One step of all environments; the unrolls that it completed."""
        return self.step(
            decision.action,
            result.reward,
            result.terminated,
            result.truncated,
            result.life_lost,
            result.observation,
            decision.taken,
            decision.value,
            final_values,
            decision.version,
            decision.state,
            result.cut,
        )

    def episode_ends(self, result: StepResult) -> Array:
        return _ends(result, life_loss=self.life_loss_ends_episode)


def make_recorder(
    layout: ChunkLayout | UnrollLayout,
    num_envs: int,
    gamma: float,
    life_loss_ends_episode: bool,
    actor: str,
    incarnation: str,
    epoch: int,
) -> Recorder:
    """The recorder for a layout; arguments as for the builders."""
    if isinstance(layout, UnrollLayout):
        return UnrollRecorder(layout, num_envs, gamma, life_loss_ends_episode, actor, incarnation, epoch)
    return TransitionRecorder(layout, num_envs, gamma, life_loss_ends_episode, actor, incarnation, epoch)


def _ends(result: StepResult, *, life_loss: bool) -> Array:
    ended: Array = result.terminated | result.truncated
    if result.cut is not None:
        ended = ended | result.cut
    return ended | result.life_lost if life_loss else ended
