"""The interface of every vector environment of this project, whichever backend computes it; and several of them as one.

One rule for the end of an episode (Gymnasium calls it SAME_STEP): the step that ends an episode returns the first
observation of the next one in ``observation`` and the last one of the old in ``final_observation``. Every step of every
environment is therefore a real transition; there are no dummy steps that a caller must remember to mask.
"""

import hashlib
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rljob.envs.spec import EnvironmentSpec
from rljob.observation import each

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
    def spec(self) -> EnvironmentSpec:
        """What the environment is."""

    @property
    def num_envs(self) -> int:
        """N."""

    def reset(self, seed: int | None = None) -> Observation:
        """Start N new episodes and return their observations [N, S, *F*].

        ``seed`` gives environment i the seed ``seed + i`` (a vector class with one generator takes ``seed`` itself);
        None gives the seeds of the constructor the first time and lets the generators run on afterwards.
        """

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        """Act in every environment: ``actions`` [N], or [N, choices] where there are several or none, and, where the
        environment has any, ``controls`` [N, controls]. Raises ValueError on a wrong shape or an action outside its range."""

    def close(self) -> None:
        """Release what it holds."""


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


class GroupedEnvironment:
    """``groups`` of the same environment, each with the same number of copies; owns them and closes them.

    Its environments are numbered through: environment ``i`` is environment ``i % n`` of group ``i // n``. ``reset``
    and ``step`` do all groups; ``step_group`` does one, and ``merged`` puts the groups' steps together again.
    """

    def __init__(self, groups: Sequence[VectorEnvironment]) -> None:
        sizes = {group.num_envs for group in groups}
        if len(sizes) != 1:
            raise ValueError(
                f"groups of {sorted(sizes)} environments; all must have the same number, and there must be one"
            )
        self.groups = tuple(groups)
        self.group_size = sizes.pop()
        self.num_envs = self.group_size * len(self.groups)

    @property
    def spec(self) -> EnvironmentSpec:
        return self.groups[0].spec

    def rows(self, group: int) -> slice:
        """The places of a group among all environments."""
        return slice(group * self.group_size, (group + 1) * self.group_size)

    def reset(self, seed: int | None = None) -> Observation:
        size = self.group_size
        seeds = [None if seed is None else seed + size * index for index in range(len(self.groups))]
        return _joined([group.reset(one) for group, one in zip(self.groups, seeds, strict=True)])

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        each_rows = [self.rows(group) for group in range(len(self.groups))]
        parts = [(actions[rows], None if controls is None else controls[rows]) for rows in each_rows]
        return merged([self.step_group(group, *part) for group, part in enumerate(parts)])

    def step_group(
        self, group: int, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None
    ) -> StepResult:
        """Act in the environments of one group; the result has its rows only, episodes carry the number among all."""
        result = self.groups[group].step(actions, controls)
        if not group or not result.episodes:
            return result
        first = group * self.group_size
        episodes = [replace(episode, environment=episode.environment + first) for episode in result.episodes]
        return replace(result, episodes=tuple(episodes))

    def close(self) -> None:
        for group in self.groups:
            group.close()


def _joined(observations: Sequence[Observation]) -> Observation:
    return each(lambda *arrays: np.concatenate(arrays), *observations)


def merged(results: Sequence[StepResult]) -> StepResult:
    """One step of all groups, from a step of each, in their order."""
    finals = [result.final_observation for result in results]
    final = None
    if any(one is not None for one in finals):
        # Rows that did not end hold whatever there is, as in a single environment.
        pairs = zip(finals, results, strict=True)
        final = _joined([result.observation if one is None else one for one, result in pairs])
    cut = None
    if any(result.cut is not None for result in results):
        cut = np.concatenate([np.zeros(len(r.reward), np.bool_) if r.cut is None else r.cut for r in results])
    return StepResult(
        observation=_joined([result.observation for result in results]),
        reward=np.concatenate([result.reward for result in results]),
        terminated=np.concatenate([result.terminated for result in results]),
        truncated=np.concatenate([result.truncated for result in results]),
        life_lost=np.concatenate([result.life_lost for result in results]),
        final_observation=final,
        raw_frames=sum(result.raw_frames for result in results),
        episodes=tuple(episode for result in results for episode in result.episodes),
        cut=cut,
        failures=tuple(failure for result in results for failure in result.failures),
    )
