"""A policy of continuous numbers: what its network has, how it acts and is judged, and what V-trace makes of it."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.conformance import check
from rljob.algorithms.distributions import LARGEST_LOG_STD
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.api.networks import NetworkProblem
from rljob.envs import EnvironmentSpec, describe_environment
from torch import nn

from tests.support.every_space import CONTINUOUS, OPEN

CPU = torch.device("cpu")
METHOD: Any = algorithm("IMPALA")
PARAMETERS = ImpalaParameters(batch_size=4, unroll_length=6, hidden_units=8, orthogonal_init=True)


def described(action: str, **more: Any) -> tuple[EnvironmentSpec, EnvironmentParameters]:
    env_params = EnvironmentParameters(kwargs={"action": action}, **more)
    return describe_environment("tests.support.every_space:EverySpace", env_params), env_params


def built(action: str, **more: Any) -> tuple[EnvironmentSpec, PolicyNetwork]:
    spec, env_params = described(action)
    torch.manual_seed(0)
    return spec, METHOD.build(spec, PARAMETERS.model_copy(update=more), env_params)


def test_the_deviation_is_a_weight_of_its_own_and_only_where_there_is_one() -> None:
    spec, net = built("mixed")
    assert dict(net.named_parameters())["log_std"].tolist() == [0.0, 0.0]
    assert built("mixed", log_std_init=-2.0)[1].log_std.tolist() == [-2.0, -2.0]
    assert net.policy.out_features == sum(spec.action_sizes) + spec.controls
    assert float(torch.linalg.matrix_norm(net.policy.weight.detach(), 2)) == pytest.approx(0.01)
    assert net.state_dict().keys() - built("several")[1].state_dict().keys() == {"log_std"}


def test_a_deviation_that_drifts_away_is_bounded_where_it_is_used() -> None:
    _, net = built("number")
    net.log_std.data.fill_(40.0)
    assert net(torch.zeros(2, 1, 3)).logits[:, -1].tolist() == [LARGEST_LOG_STD] * 2


@pytest.mark.parametrize("beyond", [-9.0, -5.0, 2.0, 9.0])
def test_beyond_its_bounds_a_deviation_still_learns_to_come_back(beyond: float) -> None:
    _, net = built("number")
    net.log_std.data.fill_(beyond)
    inwards = math.copysign(1.0, -beyond)
    for way in (inwards, -inwards):
        (gradient,) = torch.autograd.grad(-way * net(torch.zeros(2, 1, 3)).logits[:, -1].sum(), [net.log_std])
        assert (gradient == -2.0 * way).all() if way == inwards else not gradient.any()


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
@pytest.mark.parametrize("action", [*CONTINUOUS, *OPEN])
def test_it_gives_the_loops_what_they_expect(action: str, recurrent: str) -> None:
    spec, env_params = described(action)
    check("IMPALA", METHOD, PARAMETERS.model_copy(update={"recurrent": recurrent}), spec, env_params)


def layers(inputs: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs[0], 5), nn.Tanh())


def test_a_network_of_ones_own_needs_nothing_for_it() -> None:
    spec, env_params = described("mixed")
    own = PARAMETERS.model_copy(update={"network": f"{__name__}:layers"})
    check(own.network, METHOD, own, spec, env_params)


def test_an_algorithm_says_that_it_takes_them() -> None:
    spec, env_params = described("number")

    class Own(type(METHOD)):  # type: ignore[misc]
        takes = METHOD.takes - {"controls"}

    with pytest.raises(NetworkProblem, match="Own learns choices alone, but there are continuous actions: action: Box"):
        check("Own", Own(), PARAMETERS, spec, env_params)


def test_what_acts_and_what_learns_agree_on_the_policy() -> None:
    spec, net = built("mixed", orthogonal_init=False)
    seen = np.random.default_rng(0).normal(size=(64, 1, 3)).astype(np.float32)
    outputs, _ = METHOD.infer(net, seen, np.zeros((64, 2, 0), np.float32))
    decision = METHOD.decide(outputs.numpy(), 0.0, np.random.default_rng(1), spec.all_choices)
    policies = net.distribution
    judged = policies.log_prob(
        policies.normalised(net(torch.from_numpy(seen)).logits),
        torch.from_numpy(decision.action),
        torch.from_numpy(decision.control),
    )
    torch.testing.assert_close(judged, torch.from_numpy(decision.taken), rtol=0, atol=1e-5)
    first = METHOD.random_decision(64, spec.all_choices, np.random.default_rng(2))
    standard = -0.5 * (first.control**2 + np.log(2 * np.pi)).sum(axis=1) - np.log(spec.action_sizes).sum()
    assert first.taken == pytest.approx(standard, abs=1e-5)


def test_a_temperature_scales_the_deviation_and_0_takes_the_mean() -> None:
    _, net = built("table", orthogonal_init=False)
    seen = np.random.default_rng(0).normal(size=(4, 1, 3)).astype(np.float32)

    def acted(temperature: float) -> Any:
        games = [SimpleNamespace(random=np.random.default_rng(row), memory=None) for row in range(4)]
        params = PARAMETERS.model_copy(update={"evaluation_temperature": temperature})
        return METHOD.evaluation_action(params, net, seen, games)

    mean = net(torch.from_numpy(seen)).logits[:, :6].detach().numpy()
    np.testing.assert_allclose(acted(0.0), mean, atol=1e-6)
    np.testing.assert_allclose(acted(1.0) - mean, 4 * (acted(0.25) - mean), atol=1e-5)


def off_policy(spec: EnvironmentSpec, gap: float, reward: float) -> Any:
    batch = METHOD.example_batch(spec, PARAMETERS, CPU)
    control = torch.full_like(batch.control, 0.5)
    return batch._replace(control=control, reward=torch.full_like(batch.reward, reward), log_prob=batch.log_prob - gap)


@pytest.mark.parametrize(("reward", "up"), [(10.0, True), (-10.0, False)])
def test_the_mean_moves_to_what_was_rewarded(reward: float, up: bool) -> None:
    spec, net = built("number")
    net.policy.weight.data.zero_()  # a mean of 0, below what was done
    net.value.weight.data.zero_()
    METHOD.loss(PARAMETERS, net, off_policy(spec, 0.0, reward)).value.backward()
    assert (net.policy.bias.grad.item() < 0.0) == up


def test_the_penalty_on_leaving_the_acting_policy_is_there_unless_it_is_written() -> None:
    def loss(net: PolicyNetwork, batch: Any, cost: float | None) -> float:
        return METHOD.loss(PARAMETERS.model_copy(update={"policy_kl_cost": cost}), net, batch).value.item()

    spec, net = built("number")
    batch = off_policy(spec, 0.7, 1.0)
    assert loss(net, batch, None) == loss(net, batch, 0.1) > loss(net, batch, 0.0)
    choices, net = built("discrete")
    batch = METHOD.example_batch(choices, PARAMETERS, CPU)
    batch = batch._replace(log_prob=batch.log_prob - 0.7)
    assert loss(net, batch, None) == loss(net, batch, 0.0)


@pytest.mark.parametrize("kind", ["IMPALA", "PPO"])
def test_the_logarithm_of_the_deviation_is_a_figure_where_there_is_one(kind: str) -> None:
    method: Any = algorithm(kind)
    params = method.parameters(batch_size=4, unroll_length=6, hidden_units=8, minibatches=1)
    spec, env_params = described("table")
    net = method.build(spec, params, env_params)
    net.log_std.data.copy_(torch.linspace(-1.0, 2.0, spec.controls))
    metrics = method.loss(params, net, method.example(spec, params, net, CPU)).metrics
    assert (tuple(metrics)[-1], metrics["log_std"].item()) == ("log_std", pytest.approx(0.5))
    spec, env_params = described("several")
    assert "log_std" not in method.metrics_of(method.build(spec, params, env_params))


@pytest.mark.parametrize("gap", [-500.0, 500.0])
def test_a_policy_far_from_the_one_that_acted_gives_finite_gradients(gap: float) -> None:
    spec, net = built("table")
    result = METHOD.loss(PARAMETERS, net, off_policy(spec, gap, 1.0))
    result.value.backward()
    assert all(torch.isfinite(metric) for metric in result.metrics.values())
    assert all(torch.isfinite(weight.grad).all() for weight in net.parameters() if weight.grad is not None)
