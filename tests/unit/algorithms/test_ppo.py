"""PPO against a plain one in a single function, its ratio where nothing is old, its minibatches and its early end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rljob.algorithms.batches import UnrollBatch
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.ppo import PPO, with_advantages
from rljob.api import EnvironmentParameters, PPOParameters
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.updater import make_updater

from tests.support.specs import spec_of

METHOD = PPO()
SPEC = spec_of("Test/Vectors-v0", (4,), "float32", 1, 3, 1, "f")
CPU = torch.device("cpu")


def parameters(**changes: Any) -> PPOParameters:
    values = {"network": "MLP", "hidden_units": 8, "unroll_length": 6, "batch_size": 4, "precision": "FP32"}
    return PPOParameters.model_validate({**values, "epochs": 2, "minibatches": 3, **changes})


def network(params: PPOParameters) -> PolicyNetwork:
    torch.manual_seed(0)
    return METHOD.build(SPEC, params, EnvironmentParameters())


def iteration(params: PPOParameters, net: PolicyNetwork | None = None, seed: int = 1) -> UnrollBatch:
    """Unrolls with episodes that end both ways; of the policy of ``net``, or of another one."""
    random = torch.Generator().manual_seed(seed)
    steps, unrolls = params.unroll_length, params.batch_size

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    discount = torch.full((steps, unrolls), params.gamma)
    discount[torch.rand(steps, unrolls, generator=random) < 0.2] = 0.0
    units = params.lstm_units if params.recurrent == "LSTM" else 0
    batch = UnrollBatch(
        observation=normal(unrolls, steps + 1, 1, 4),
        action=torch.randint(0, 3, (steps, unrolls), generator=random),
        reward=normal(steps, unrolls),
        discount=discount,
        log_prob=-normal(steps, unrolls).abs() - 0.1,
        final_value=normal(steps, unrolls) * (discount == 0),
        state=normal(unrolls, 2, units),
    )
    if net is None:
        return batch
    with torch.no_grad():
        logits, _ = net.unroll(batch.observation, batch.state, batch.discount)
    return batch._replace(log_prob=torch.log_softmax(logits, 2).gather(2, batch.action.unsqueeze(2)).squeeze(2))


def plain_ppo(net: PolicyNetwork, batch: UnrollBatch, params: PPOParameters) -> None:
    """All updates of an iteration, step by step, by Schulman et al. 2017 and torch's own optimiser."""
    optimizer = torch.optim.Adam(net.parameters(), lr=params.learning_rate, eps=params.optimizer_epsilon)
    steps, unrolls = batch.action.shape
    for epoch in range(params.epochs):
        if epoch == 0 or params.recompute_advantages:
            advantage = torch.zeros(steps, unrolls)
            target = torch.zeros(steps, unrolls)
            for b in range(unrolls):
                with torch.no_grad():
                    value = [net(batch.observation[b, t : t + 1]).value.item() for t in range(steps + 1)]
                ahead = 0.0
                for t in reversed(range(steps)):
                    reward = (batch.reward[t, b] + params.gamma * batch.final_value[t, b]).item()
                    discount = batch.discount[t, b].item()
                    ahead = reward + discount * value[t + 1] - value[t] + discount * params.gae_lambda * ahead
                    advantage[t, b], target[t, b] = ahead, ahead + value[t]
        order = torch.randperm(steps * unrolls)
        for part in order.split(steps * unrolls // params.minibatches):
            chosen = [divmod(int(index), unrolls) for index in part]
            scaled = torch.stack([advantage[t, b] for t, b in chosen])
            scaled = (scaled - scaled.mean()) / (scaled.std(correction=0) + 1e-8)
            total = torch.zeros(())
            for (t, b), its in zip(chosen, scaled, strict=True):
                logits, value_now, _ = net(batch.observation[b, t : t + 1])
                policy = torch.distributions.Categorical(logits=logits[0])
                ratio = (policy.log_prob(batch.action[t, b]) - batch.log_prob[t, b]).exp()
                low, high = 1 - params.clip_range, 1 + params.clip_range
                total = total - torch.min(ratio * its, ratio.clamp(low, high) * its)
                total = total + params.value_cost * 0.5 * (target[t, b] - value_now[0]) ** 2
                total = total - params.entropy_cost * policy.entropy()
            optimizer.zero_grad()
            (total / len(chosen)).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), params.gradient_clip_norm)
            optimizer.step()


@pytest.mark.parametrize("recompute", [False, True])
def test_an_iteration_is_that_of_a_plain_ppo(recompute: bool) -> None:
    params = parameters(recompute_advantages=recompute, entropy_cost=0.02, learning_rate=1e-2)
    ours, theirs = make_updater(METHOD, params, network(params), CPU), network(params)
    batch = iteration(params)
    torch.manual_seed(7)
    updates = list(ours.updates_from(batch, 0))
    torch.manual_seed(7)
    plain_ppo(theirs, batch, params)
    assert len(updates) == 6
    for mine, its in zip(ours.online.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
def test_the_ratio_is_1_where_the_policy_that_learns_is_the_one_that_acted(recurrent: str) -> None:
    params = parameters(recurrent=recurrent, lstm_units=6, epochs=1, minibatches=2)
    net = network(params)
    for minibatch in METHOD.minibatches(params, net, iteration(params, net)):
        result = METHOD.loss(params, net, minibatch)
        assert abs(result.metrics["policy_kl"].item()) < 1e-5
        assert result.metrics["clip_share"].item() == 0.0


def test_values_are_those_of_the_learner_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    params = parameters()
    net, batch = network(params), iteration(params)
    whole = with_advantages(params, net, batch)
    monkeypatch.setattr("rljob.algorithms.ppo.MOST_OBSERVATIONS", 10)
    apart = with_advantages(params, net, batch)
    assert whole.advantage is not None
    assert apart.advantage is not None
    torch.testing.assert_close(apart.advantage, whole.advantage)
    torch.testing.assert_close(apart.value_target, whole.value_target)


def test_an_episode_that_ran_out_of_time_is_worth_what_was_expected_of_its_end() -> None:
    params = parameters(gae_lambda=1.0)
    net, nothing = network(params), torch.zeros(6, 4)
    for parameter in net.parameters():
        torch.nn.init.zeros_(parameter)
    quiet = iteration(params)._replace(reward=nothing, discount=nothing, final_value=nothing)
    ended = with_advantages(params, net, quiet).value_target
    ran_out = with_advantages(params, net, quiet._replace(final_value=nothing + 10.0)).value_target
    assert ended is not None
    assert ended.abs().max() == 0
    torch.testing.assert_close(ran_out, nothing + 10.0 * params.gamma)


def test_it_does_not_matter_how_many_threads_share_an_update() -> None:
    params = parameters()
    threads = torch.get_num_threads()
    whole, shared = (make_updater(METHOD, params, network(params), CPU, DataParallelThreads(count)) for count in (1, 3))
    for updater in (whole, shared):
        torch.manual_seed(3)
        list(updater.updates_from(iteration(params), 0))
    for mine, its in zip(shared.online.parameters(), whole.online.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-6)
    torch.set_num_threads(threads)


def test_an_iteration_is_left_once_the_policy_has_gone_too_far() -> None:
    free, bound = parameters(learning_rate=0.1, epochs=5), parameters(learning_rate=0.1, epochs=5, target_kl=0.05)
    net = network(free)
    made = {}
    for params in (free, bound):
        updater = make_updater(METHOD, params, network(params), CPU)
        figures = [found for _, found in updater.updates_from(iteration(params, net), 0)]
        made[params.target_kl] = [float(found[updater.figures.index("policy_kl")]) for found in figures]
    assert len(made[0.0]) == 15
    assert len(made[0.05]) < 15
    assert made[0.05][-1] > 0.05
    assert max(made[0.05][:-1], default=0.0) <= 0.05


@pytest.mark.parametrize("normalize", [True, False])
def test_figures_are_those_of_a_plain_computation(normalize: bool) -> None:
    params = parameters(normalize_advantages=normalize, epochs=1, minibatches=1)
    net, batch = network(params), iteration(params)
    (minibatch,) = METHOD.minibatches(params, net, batch)
    found = {name: float(each) for name, each in METHOD.loss(params, net, minibatch).metrics.items()}
    whole = with_advantages(params, net, batch)
    assert whole.advantage is not None
    assert whole.value_target is not None
    assert found.keys() == set(METHOD.metrics_of(net)) == set(METHOD.metrics) - {"log_std"}
    advantage, target = whole.advantage.numpy(), whole.value_target.numpy()
    assert found["value"] == pytest.approx((target - advantage).mean(), rel=1e-5)
    assert found["advantage_std"] == pytest.approx(advantage.std(), rel=1e-5)
    unexplained = (target - (target - advantage)).var() / target.var()
    assert found["explained_variance"] == pytest.approx(max(-1.0, 1.0 - unexplained), rel=1e-4)
    with torch.no_grad():
        logits, _ = net.unroll(batch.observation, batch.state, batch.discount)
    policy = torch.distributions.Categorical(logits=logits)
    log_ratio = policy.log_prob(batch.action) - batch.log_prob
    assert found["entropy"] == pytest.approx(policy.entropy().mean().item(), rel=1e-5)
    assert found["policy_kl"] == pytest.approx((log_ratio.exp() - 1 - log_ratio).mean().item(), rel=1e-4)
    assert found["clip_share"] == pytest.approx(((log_ratio.exp() - 1).abs() > params.clip_range).float().mean().item())


@pytest.mark.parametrize(
    ("observation", "reward"),
    [
        (lambda given: given, torch.zeros_like),
        (lambda given: given, lambda given: 1e6 * given),
        (lambda given: 1e30 * given, lambda given: given),
        (lambda given: torch.where(given > 2.0, 3e38, given), lambda given: given),
        (torch.ones_like, torch.zeros_like),
    ],
    ids=["nothing is rewarded", "a million", "huge", "huge now and then", "nothing changes"],
)
def test_statistics_and_weights_stay_finite(observation: Any, reward: Any) -> None:
    params = parameters(batch_size=8, minibatches=4)
    updater = make_updater(METHOD, params, network(params), CPU)
    assert updater.normalizer is not None
    for seed in range(4):
        batch = iteration(params, seed=seed)
        batch = batch._replace(observation=observation(batch.observation), reward=reward(batch.reward))
        updater.normalizer.take(batch)
        for _, figures in updater.updates_from(batch, 0):
            assert torch.isfinite(figures).all()
        updater.normalizer.apply(updater.networks().values())
    assert int(updater.normalizer.left_out) == 0
    for tensor in (*updater.normalizer.state().values(), *updater.online.state_dict().values()):
        assert torch.isfinite(tensor).all()


def test_rewards_of_nothing_and_constant_advantages_are_finite() -> None:
    params = parameters()
    updater = make_updater(METHOD, params, network(params), CPU)
    batch = iteration(params)
    batch = batch._replace(reward=torch.zeros_like(batch.reward), final_value=torch.zeros_like(batch.reward))
    for _, figures in updater.updates_from(batch, 0):
        assert torch.isfinite(figures).all()
