"""Scores of whole games in one process, without players."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import gymnasium
from rljob.envs.restarting import RestartLimit
from rljob.envs.spec import EnvironmentSpec
from rljob.evaluation.score import Env, JudgedPolicy, Played, Score, Sitting, tally


def score(
    policy: JudgedPolicy,
    env: Env | Sequence[Env],
    episodes: int,
    seed: int,
    epsilon: float = 0.0,
    each_step: Callable[[], None] | None = None,
    failures: RestartLimit | None = None,
    spec: EnvironmentSpec | None = None,
) -> Score:
    """What ``policy`` reaches in ``episodes`` whole games; see ``play``."""
    envs = [env] if isinstance(env, gymnasium.Env) else list(env)
    return tally(play(policy, envs, range(episodes), seed, epsilon, each_step, failures, spec))


def play(
    policy: JudgedPolicy,
    envs: Sequence[Env],
    games: Sequence[int],
    seed: int,
    epsilon: float = 0.0,
    each_step: Callable[[], None] | None = None,
    failures: RestartLimit | None = None,
    spec: EnvironmentSpec | None = None,
) -> Iterator[Played]:
    """Play ``games`` (their numbers) in their order, as many at once as there are ``envs``; yields each as it ends. See
    ``Sitting``. each_step: called before every step; may raise to leave."""
    sitting = Sitting(policy, envs, epsilon, failures, spec)
    sitting.begin(seed)
    to_come = deque(games)
    while to_come or sitting.playing:
        while to_come and sitting.free:
            sitting.deal(to_come.popleft())
        if each_step is not None:
            each_step()
        yield from sitting.step()
