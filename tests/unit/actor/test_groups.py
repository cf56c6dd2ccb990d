"""Acting in groups: shared draws, environments counted through, and which server an actor asks."""

from collections.abc import Callable

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.envs.grouped import GroupedEnvironment
from rljob.inference.remote_policy import GroupedDraws
from rljob.roles.actor import server_of


def test_groups_share_what_all_would_draw_at_once() -> None:
    alone, shared = np.random.default_rng(3), GroupedDraws(np.random.default_rng(3), 2)
    for _ in range(4):
        whole = alone.random(6), alone.integers(0, 5, 6), alone.random((6, 3))
        parts = []
        for group in range(2):
            shared.turn_of(group)
            parts.append((shared.random(3), shared.integers(0, 5, 3), shared.random((3, 3))))
        for index, expected in enumerate(whole):
            np.testing.assert_array_equal(np.concatenate([part[index] for part in parts]), expected)


def test_a_group_that_draws_otherwise_draws_afresh() -> None:
    """Weights that arrive between two groups: the first acted at random, the second by the network."""
    shared = GroupedDraws(np.random.default_rng(3), 2)
    shared.turn_of(0)
    shared.integers(0, 5, 3)
    shared.turn_of(1)
    assert (shared.random(3).shape, shared.integers(0, 5, 3).shape) == ((3,), (3,))


@pytest.mark.parametrize(
    ("actor", "servers", "asked"),
    [("actor-0", 1, 0), ("actor-7", 1, 0), ("actor-7", 3, 1), ("pong-actor-12", 5, 2), ("somebody", 4, 0)],
)
def test_actors_spread_over_servers(actor: str, servers: int, asked: int) -> None:
    assert server_of(actor, servers) == asked


def test_grouped_environments_play_as_one_vector(any_seed: Callable[[int], int]) -> None:
    parameters = EnvironmentParameters(atari={"frame_size": 42}, max_episode_raw_frames=60)
    whole = make_vector_environment("ALE/Pong-v5", parameters, 4, 9)
    groups = [make_vector_environment("ALE/Pong-v5", parameters, 2, 9 + 2 * group) for group in range(2)]
    grouped = GroupedEnvironment(groups)
    np.testing.assert_array_equal(whole.reset(), grouped.reset())
    random, ended = np.random.default_rng(any_seed(0)), 0
    for _ in range(40):
        actions = random.integers(0, whole.spec.num_actions, 4)
        one, other = whole.step(actions), grouped.step(actions)
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.truncated, other.truncated)
        assert (one.raw_frames, one.episodes) == (other.raw_frames, other.episodes)
        rows = one.terminated | one.truncated
        ended += int(rows.sum())
        if rows.any():
            np.testing.assert_array_equal(one.final_observation[rows], other.final_observation[rows])
    assert ended > 0
    whole.close()
    grouped.close()


def test_unequal_groups_are_refused() -> None:
    sizes = [make_vector_environment("CartPole-v1", EnvironmentParameters(), size, 0) for size in (1, 2)]
    with pytest.raises(ValueError, match=r"groups of \[1, 2\] environments"):
        GroupedEnvironment(sizes)
