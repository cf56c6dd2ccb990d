"""A judged policy's action for a game does not depend on the games beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.api import EnvironmentParameters
from rljob.evaluation.player import ROWS, judged_policy

from tests.support.specs import spec_of

OBSERVATIONS = 40


def _spying(shapes: list[tuple[int, ...]]) -> Any:
    """An algorithm that notes what its network is shown; its action is the first number of the observation."""

    def evaluation_action(parameters: Any, module: Any, observation: np.ndarray, games: Any) -> np.ndarray:
        shapes.append(observation.shape)
        assert len(games) == len(observation)
        for game in games:
            game.memory = (game.memory or 0) + int(game.random.integers(1, 2))
        return observation[:, 0, 0].astype(np.int64)

    return SimpleNamespace(evaluation_action=evaluation_action)


@pytest.mark.parametrize("count", [1, 2, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS])
def test_the_network_always_sees_as_many_rows(count: int) -> None:
    shapes: list[tuple[int, ...]] = []
    policy = judged_policy(_spying(shapes), torch.nn.Identity(), None)
    games = [SimpleNamespace(random=np.random.default_rng(k), memory=None) for k in range(count)]
    observation = np.arange(3 * count, dtype=np.float32).reshape(count, 3, 1)
    for _ in range(2):
        assert policy(observation, games).tolist() == list(range(0, 3 * count, 3))
    assert set(shapes) == {(ROWS, 3, 1)}
    assert [game.memory for game in games] == [2] * count, "each game is asked once a step and keeps its own memory"


@pytest.mark.parametrize(
    ("kind", "shape", "stack", "lstm", "layer_norm"),
    [
        ("Compact", (42, 42), 4, 0, False),
        ("Compact", (42, 42), 4, 64, True),
        ("Nature", (84, 84), 4, 0, False),
        ("Deep", (42, 42), 4, 0, False),
        ("MLP", (4,), 1, 0, False),
        ("MLP", (4,), 1, 32, False),
    ],
)
def test_a_row_comes_out_the_same_wherever_it_stands(
    kind: str, shape: tuple[int, ...], stack: int, lstm: int, layer_norm: bool
) -> None:
    """What a fixed number of rows rests on: with one thread a row's result is the same to the last bit in any place and beside
    any others. (With another number of rows it is not.)"""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        spec, seen_as = spec_of("Test", shape, "float32", stack, 6), EnvironmentParameters(input_scale=1 / 255)
        network = PolicyNetwork(PolicyConfig(kind, spec, seen_as, 128, lstm, layer_norm)).eval()
        observation = torch.randint(0, 255, (OBSERVATIONS, stack, *shape)).float()
        state = torch.randn(OBSERVATIONS, 2, lstm)
        seen: dict[int, torch.Tensor] = {}
        compared = 0
        with torch.inference_mode():
            for _ in range(20):
                rows = torch.randperm(OBSERVATIONS)[:ROWS]
                logits, value, after = network(observation[rows], state[rows])
                results = torch.cat([logits, value[:, None], after.flatten(1)], dim=1)
                for row, result in zip(rows.tolist(), results, strict=True):
                    compared += row in seen
                    assert torch.equal(seen.setdefault(row, result.clone()), result)
        assert compared > OBSERVATIONS
    finally:
        torch.set_num_threads(threads)
