"""Several vector environments as one: N environments in groups that can be stepped one after the other."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import Observation, StepResult, VectorEnvironment
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import each


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
