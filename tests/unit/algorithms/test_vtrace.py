"""V-trace and GAE against their definitions, as double loops in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rljob.algorithms.vtrace import explained_variance, gae, vtrace
from torch import Tensor

Array = NDArray[np.float64]


def by_definition(
    log_ratio: Array,
    discount: Array,
    reward: Array,
    value: Array,
    bootstrap: Array,
    rho_clip: float,
    c_clip: float,
    decay: float,
) -> tuple[Array, Array]:
    """v_s = V_s + sum over t >= s of (product of discounts and c before t) * delta_t, written out for every s and t."""
    steps, streams = reward.shape
    ratio = np.exp(log_ratio)
    targets, advantages = np.zeros((steps + 1, streams)), np.zeros((steps, streams))
    values = np.concatenate([value, bootstrap[None]])
    for b in range(streams):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                weight = 1.0
                for i in range(s, t):
                    weight *= discount[i, b] * decay * min(c_clip, ratio[i, b])
                rho = min(rho_clip, ratio[t, b])
                total += weight * rho * (reward[t, b] + discount[t, b] * values[t + 1, b] - values[t, b])
            targets[s, b] = value[s, b] + total
        targets[steps, b] = bootstrap[b]
        for s in range(steps):
            rho = min(rho_clip, ratio[s, b])
            advantages[s, b] = rho * (reward[s, b] + discount[s, b] * targets[s + 1, b] - value[s, b])
    return targets[:-1], advantages


def case(steps: int, streams: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    discount = np.full((steps, streams), 0.97)
    discount[random.random((steps, streams)) < 0.2] = 0.0
    return {
        "log_ratio": random.uniform(-2.5, 2.5, (steps, streams)),
        "discount": discount,
        "reward": random.normal(size=(steps, streams)),
        "value": random.normal(size=(steps, streams)),
        "bootstrap": random.normal(size=streams),
    }


def tensors(given: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: torch.tensor(array, dtype=dtype) for name, array in given.items()}


@pytest.mark.parametrize("streams", [1, 5])
@pytest.mark.parametrize(
    ("rho_clip", "c_clip", "decay"),
    [(1.0, 1.0, 1.0), (3.7, 2.2, 1.0), (0.4, 0.3, 0.9), (math.inf, 1.0, 1.0), (1.0, 5.0, 0.5)],
)
def test_vtrace_is_its_definition(streams: int, rho_clip: float, c_clip: float, decay: float) -> None:
    for seed in range(4):
        given = case(5, streams, seed)
        expected_value, expected_advantage = by_definition(**given, rho_clip=rho_clip, c_clip=c_clip, decay=decay)
        found = vtrace(**tensors(given), rho_clip=rho_clip, c_clip=c_clip, trace_decay=decay)
        np.testing.assert_allclose(found.value.numpy(), expected_value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.advantage.numpy(), expected_advantage, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.ratio.numpy(), np.exp(given["log_ratio"]), rtol=1e-5)


def on_policy(steps: int, streams: int, seed: int) -> dict[str, Any]:
    return case(steps, streams, seed) | {"log_ratio": np.zeros((steps, streams))}


def test_on_policy_vtrace_is_the_n_step_return() -> None:
    given = on_policy(7, 3, 1)
    found = vtrace(**tensors(given)).value.numpy()
    for b in range(3):
        following = given["bootstrap"][b]
        for t in reversed(range(7)):
            following = given["reward"][t, b] + given["discount"][t, b] * following
            assert found[t, b] == pytest.approx(following, rel=1e-4, abs=1e-5)


def test_nothing_reaches_back_over_the_end_of_an_episode() -> None:
    given = case(6, 1, 2)
    given["discount"][:] = 0.9
    given["discount"][2] = 0.0
    changed = {name: array.copy() for name, array in given.items()}
    for name in ("reward", "value", "log_ratio"):
        changed[name][3:] += 5.0
    changed["bootstrap"] += 5.0
    before, after = vtrace(**tensors(given)), vtrace(**tensors(changed))
    for name in ("value", "advantage"):
        assert torch.equal(getattr(before, name)[:3], getattr(after, name)[:3])
        assert not torch.equal(getattr(before, name)[3:], getattr(after, name)[3:])


def test_inputs_in_bf16_are_computed_in_float32() -> None:
    rounded = tensors(case(20, 4, 3), torch.bfloat16)
    exact = {name: tensor.double().numpy() for name, tensor in rounded.items()}
    expected, _ = by_definition(**exact, rho_clip=1.0, c_clip=1.0, decay=1.0)
    found = vtrace(**rounded)
    assert found.value.dtype == torch.float32
    np.testing.assert_allclose(found.value.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_no_gradient_flows_through_the_targets() -> None:
    given = tensors(case(5, 2, 4))
    for tensor in given.values():
        tensor.requires_grad_(True)
    assert not any(each.requires_grad for each in vtrace(**given))


def test_gae_is_its_definition() -> None:
    given = case(8, 4, 5)
    del given["log_ratio"]
    found = gae(**tensors(given), trace_decay=0.9)
    values = np.concatenate([given["value"], given["bootstrap"][None]])
    for b in range(4):
        for s in range(8):
            total, weight = 0.0, 1.0
            for t in range(s, 8):
                total += weight * (given["reward"][t, b] + given["discount"][t, b] * values[t + 1, b] - values[t, b])
                weight *= 0.9 * given["discount"][t, b]
            assert found.advantage[s, b].item() == pytest.approx(total, rel=1e-4, abs=1e-5)
            assert found.value[s, b].item() == pytest.approx(total + values[s, b], rel=1e-4, abs=1e-5)


def test_gae_with_a_full_trace_is_on_policy_vtrace() -> None:
    whole = tensors(on_policy(8, 4, 6))
    trace = vtrace(**whole).value
    del whole["log_ratio"]
    torch.testing.assert_close(gae(**whole, trace_decay=1.0).value, trace)


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ([1.0, 2.0, 3.0], [6.0, 7.0, 8.0], 1.0),  # a constant error is no lack of explanation
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], 0.0),
        ([0.0, 2.0], [1.0, 2.0], 0.75),
        ([0.0, 1.0], [9.0, 0.0], -1.0),
        ([0.0, 0.0], [9.0, 0.0], 0.0),  # rewards of nothing
        ([3.0], [1.0], 0.0),
    ],
)
def test_explained_variance_is_a_number_from_minus_1_to_1(
    target: list[float], value: list[float], expected: float
) -> None:
    assert explained_variance(torch.tensor(target), torch.tensor(value)).item() == pytest.approx(expected)
