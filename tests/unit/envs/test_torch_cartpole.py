"""The example's CartPole is Gymnasium's."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rljob.loading import loaded

from tests.support.devices import DEVICES
from tests.support.paths import PLUGINS

make = loaded(f"{PLUGINS / 'torch_cartpole.py'}:make")
ROWS = 400


def states(seed: int) -> torch.Tensor:
    """As games have them, and some beyond the ends."""
    spread = torch.tensor([2.5, 2.0, 0.22, 2.0])
    return spread * (2 * torch.rand(ROWS, 4, generator=torch.Generator().manual_seed(seed)) - 1.0)


def reference(state: Any, action: int) -> tuple[Any, float, bool]:
    """One step of Gymnasium's."""
    game: Any = gymnasium.make("CartPole-v1").unwrapped
    game.reset(seed=0)
    game.state = np.asarray(state, np.float64)
    observation, reward, terminated, _, _ = game.step(action)
    return observation, reward, terminated


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_is_gymnasiums(device: torch.device, any_seed: Any) -> None:
    env = make(ROWS, device=str(device))
    env.reset(seed=1)
    env._state = states(any_seed(3)).to(device)
    before, actions = env._state.cpu().numpy(), torch.arange(ROWS) % 2
    observation, reward, terminated, truncated, info = (
        {key: value.cpu() for key, value in each.items()} if isinstance(each, dict) else each.cpu()
        for each in env.step(actions.to(device))
    )
    expected = [reference(row, int(action)) for row, action in zip(before, actions, strict=True)]
    final = np.stack([each for each, _, _ in expected])
    np.testing.assert_allclose(info["final_obs"].numpy(), final, atol=2e-6)
    near = (np.abs(np.abs(final[:, 0]) - 2.4) < 1e-5) | (np.abs(np.abs(final[:, 2]) - 0.2094395) < 1e-5)
    ended = np.array([each for _, _, each in expected])
    np.testing.assert_array_equal(terminated.numpy()[~near], ended[~near])
    assert 20 < ended.sum() < ROWS - 20
    assert (reward.tolist(), truncated.any()) == ([value for _, value, _ in expected], False)
    np.testing.assert_array_equal(observation[~terminated].numpy(), info["final_obs"][~terminated].numpy())
    assert observation[terminated].abs().max() <= 0.05, "those begin anew at once"


def test_games_are_truncated_where_gymnasium_truncates_them() -> None:
    env = make(2)
    env.reset(seed=1)
    env._steps[0] = gymnasium.spec("CartPole-v1").max_episode_steps - 2
    for expected in ([False, False], [True, False], [False, False]):
        _, _, terminated, truncated, _ = env.step(torch.tensor([0, 0]))
        assert (truncated.tolist(), terminated.any()) == (expected, False)
    assert env._steps.tolist() == [1, 3]


def test_a_seed_decides_everything_and_rows_differ() -> None:
    seen = []
    for seed in (5, 5, 6):
        env = make(50)
        first, _ = env.reset(seed=seed)
        for step in range(60):
            last = env.step(torch.full((50,), step % 3 == 0).long())[0]
        seen.append((first, last))
    (first, last), again, (other, _) = seen
    assert (torch.equal(first, again[0]), torch.equal(last, again[1]), torch.equal(first, other)) == (True, True, False)
    assert len(first.unique(dim=0)) == 50


def test_without_a_number_it_is_the_one_that_judges() -> None:
    game = make()
    assert (game.spec.id, game.observation_space) == ("CartPole-v1", make(3).single_observation_space)
