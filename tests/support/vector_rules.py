"""The rules of ``VectorEnvironment`` as a check that any environment can be put through, one's own included.

In a test: ``check_environment(lambda: make_vector_environment("module:factory", EnvironmentParameters(), 3, 0))``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rljob.envs.base import Observation, StepResult, VectorEnvironment
from rljob.observation import arrays_of, by_column, each


class NonConforming(AssertionError):
    """A rule that an environment breaks; ``rule`` is the rule, the message adds what was seen."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"{rule}; seen: {seen}")
        self.rule = rule


def check_environment(make: Callable[[], VectorEnvironment], *, steps: int = 300, seed: int = 0) -> int:
    """Play ``steps`` uniformly random steps on two copies and raise NonConforming with the first rule broken.

    ``make`` must give equal environments with at least two rows. Returns the number of episodes that ended, so that the
    caller can see whether the rules about ends were exercised at all.
    """
    first, second = make(), make()
    try:
        return _check(first, second, steps, seed)
    finally:
        for env in (first, second):
            env.close()
            env.close()  # rule: twice does no harm


def _check(env: VectorEnvironment, twin: VectorEnvironment, steps: int, seed: int) -> int:
    _demand(env.spec == twin.spec, "equal environments have equal specs", f"{env.spec} and {twin.spec}")
    rng = np.random.default_rng(seed)
    observation = _observation(env, env.reset(seed), "reset")
    _demand(_same(observation, twin.reset(seed)), "a seed decides the first observation", "two different ones")
    _bad_actions(env)
    ledger = _Ledger(env.num_envs)
    kept: list[tuple[Observation, Observation]] = []
    for _ in range(steps):
        actions = rng.integers(0, env.spec.num_actions, env.num_envs)
        before = actions.copy()
        result, mirrored = env.step(actions), twin.step(actions)
        _demand(np.array_equal(before, actions), "actions are only read", "actions written to")
        _same_step(result, mirrored)
        _shapes(env, result)
        _ends(env, result)
        ledger.step(env, result)
        kept.append((result.observation, each(np.copy, result.observation)))
    for given, copy in kept:
        _demand(_same(given, copy), "arrays belong to the caller", "an observation overwritten by a later step")
    return ledger.episodes


class _Ledger:
    """Counts steps and episodes on its own and compares."""

    def __init__(self, num_envs: int) -> None:
        self.lengths: NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self.episodes = 0

    def step(self, env: VectorEnvironment, result: StepResult) -> None:
        self.lengths += 1
        ended = result.terminated | result.truncated
        rows = [record.environment for record in result.episodes]
        _demand(rows == np.flatnonzero(ended).tolist(), "each end has one record, in order", f"{rows} for {ended}")
        for record in result.episodes:
            i = record.environment
            _demand(
                record.length_steps == self.lengths[i],
                "a record's length is the number of its steps, without dummy steps",
                f"{record.length_steps} where {self.lengths[i]} were taken",
            )
            _demand(record.truncated == bool(result.truncated[i]), "a record knows whether it was cut", f"{record}")
            most = env.spec.raw_frames_per_step * record.length_steps
            _demand(record.raw_frames > most - env.spec.raw_frames_per_step, "raw frames are counted", f"{record}")
        self.lengths[ended] = 0
        self.episodes += len(rows)


def _observation(env: VectorEnvironment, value: Observation, where: str) -> Observation:
    for column, array in zip(env.spec.columns, by_column(env.spec.columns, value).values(), strict=True):
        shape = (env.num_envs, *column.observed)
        _demand(array.shape == shape, f"{where}() observes [N, S, *F*] = {shape}", str(array.shape))
        _demand(array.dtype == column.dtype, f"{where}() observes {column.dtype}", str(array.dtype))
    return value


def _shapes(env: VectorEnvironment, result: StepResult) -> None:
    _observation(env, result.observation, "step")
    for name, dtype in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool"), ("life_lost", "bool")):
        value = getattr(result, name)
        right = value.shape == (env.num_envs,) and str(value.dtype) == dtype
        _demand(right, f"{name} is {dtype}[N]", f"{value.dtype}{value.shape}")
    _demand(bool(np.isfinite(result.reward).all()), "rewards are finite", str(result.reward))
    _demand(result.raw_frames >= env.num_envs, "every step takes raw frames", str(result.raw_frames))


def _ends(env: VectorEnvironment, result: StepResult) -> None:
    ended = result.terminated | result.truncated
    _demand(not (result.terminated & result.truncated).any(), "an end is terminated or truncated, not both", "both")
    _demand(not (result.life_lost & ended).any(), "a life is lost only where the game goes on", "lost at an end")
    if not ended.any():
        _demand(result.final_observation is None, "final_observation is None without an end", "an array")
        return
    final = result.final_observation
    if final is None:
        raise NonConforming("an end comes with its final observation", "None")
    _observation(env, final, "step's final")
    for i in np.flatnonzero(ended):
        last, first = (each(lambda array, i=i: array[i], seen) for seen in (final, result.observation))
        different = not _same(last, first)
        _demand(different, "an end returns the last observation and, apart from it, the next episode's first", "one")


def _bad_actions(env: VectorEnvironment) -> None:
    actions = env.spec.num_actions
    wrong: tuple[NDArray[np.int64], ...] = (
        np.full(env.num_envs, actions),
        np.full(env.num_envs, -1),
        np.zeros(env.num_envs + 1, np.int64),
    )
    for bad in wrong:
        try:
            env.step(bad)
        except ValueError:
            continue
        raise NonConforming("a wrong action is refused with ValueError and changes nothing", f"{bad.tolist()} accepted")


def _same_step(result: StepResult, other: StepResult) -> None:
    for name in ("observation", "reward", "terminated", "truncated", "life_lost"):
        _demand(_same(getattr(result, name), getattr(other, name)), "a seed and actions decide everything", name)
    _demand(result.episodes == other.episodes, "a seed and actions decide everything", "episodes")
    _demand(result.raw_frames == other.raw_frames, "a seed and actions decide everything", "raw_frames")


def _same(a: Observation, b: Observation) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(arrays_of(a), arrays_of(b), strict=True))


def _demand(holds: bool, rule: str, seen: str) -> None:
    if not holds:
        raise NonConforming(rule, seen)
