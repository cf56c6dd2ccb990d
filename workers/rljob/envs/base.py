"""The interface of every vector environment of this project, whichever backend computes it.

One rule for the end of an episode (Gymnasium calls it SAME_STEP): the step that ends an episode returns the first
observation of the next one in ``observation`` and the last one of the old in ``final_observation``. Every step of every
environment is therefore a real transition; there are no dummy steps that a caller must remember to mask.
"""

import hashlib
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rljob.envs.spec import EnvironmentSpec

Observation: TypeAlias = Any
"""What N environments show: [N, S, *F*], or a dict of such arrays by column (``rljob.observation``)."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One finished game, scored on the game's own unclipped rewards.

    A game ends when the environment says so or when its time limit is reached, never because a life was lost.
    ``raw_frames`` is the game's own frame count, no-operation frames of its start included; steps where it has none.
    ``metrics``: what the environment itself reports of it, by name.
    """

    environment: int
    game_return: float
    length_steps: int
    raw_frames: int
    truncated: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of one step of N environments; the arrays belong to the caller and are never written again.

    observation: [N, S, *F*], oldest frame first, or a dict of such by column; after an end, the first of the next episode.
    reward: f4[N], clipped to [-1, 1] if so configured.
    terminated, truncated: bool[N], never both in one row; truncated: time ran out, and bootstrapping is right.
    life_lost: bool[N]: a life went and the game goes on; never set on a row that ended.
    final_observation: as ``observation``, valid only in rows where terminated or truncated; None when no row ended.
    raw_frames: frames emulated in this step by all N environments, those of resets included.
    episodes: the games that ended in this step, in order of environment.
    cut: bool[N], environments that failed instead of stepping and were begun anew: of their row only ``observation`` means
    anything, the first of a new episode. None when there were none.
    failures: why environments failed, one text each; a failing reset is among them and cuts nothing.
    """

    observation: Observation
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    life_lost: NDArray[np.bool_]
    final_observation: Observation | None
    raw_frames: int
    episodes: tuple[EpisodeRecord, ...]
    cut: NDArray[np.bool_] | None = None
    failures: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps that happened: one in every environment that was not cut."""
        return len(self.reward) - (0 if self.cut is None else int(self.cut.sum()))


class VectorEnvironment(Protocol):
    """N copies of one environment, stepped together by one thread. Not thread-safe; ``close`` may be called twice."""

    @property
    def spec(self) -> EnvironmentSpec: ...

    @property
    def num_envs(self) -> int: ...

    def reset(self, seed: int | None = None) -> Observation:
        """Start N new episodes and return their observations [N, S, *F*].

        ``seed`` gives environment i the seed ``seed + i`` (a vector class with one generator takes ``seed`` itself);
        None gives the seeds of the constructor the first time and lets the generators run on afterwards.
        """
        ...

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        """Act in every environment: ``actions`` [N], or [N, choices] where there are several or none, and, where the
        environment has any, ``controls`` [N, controls]. Raises ValueError on a wrong shape or an action outside its range."""
        ...

    def close(self) -> None: ...


class EnvironmentProblem(RuntimeError):
    """An environment cannot be made or has stopped working.

    The first line of the message says what is wrong, where, and what would be right; it is meant to be shown as it is.
    ``environment`` is the index of the environment at fault inside its vector, or ``None`` when all are.
    """

    def __init__(self, message: str, *, environment: int | None = None) -> None:
        super().__init__(message)
        self.environment = environment

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions travel from worker processes by pickle, which would forget the keyword argument.
        return partial(type(self), environment=self.environment), (str(self),)


class UnknownEnvironment(EnvironmentProblem):
    """Nothing registers an environment of that id here."""


def seed_of(*whose: int | str) -> int:
    """A seed in [0, 2^31) that follows from ``whose``, the job's seed first, and is another one for all others."""
    digest = hashlib.sha256(":".join(map(str, whose)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_generators(seed: int) -> None:
    """Seed this process's generators, which many environments use instead of their own: those of Python, NumPy and, where it is
    loaded, torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # callers of reset may give it a longer one
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
