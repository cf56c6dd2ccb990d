"""PPO against a plain one in a single function, its ratio where nothing is old, and its minibatches.

The parts of a batch: single steps with their own targets, whole unrolls with their time together.
"""

from functools import partial
from typing import Any

import pytest
import torch
from rljob.algorithms.batches import UnrollBatch, minibatches_of_steps, minibatches_of_unrolls
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.ppo.loss import PPO, with_advantages
from rljob.api import EnvironmentParameters, PPOParameters
from rljob.learner.optim.updater import make_updater

from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import IMAGES, unroll_parameters, unrolls_with_ends

METHOD = PPO()
SPEC = spec_of("Test/Vectors-v0", (4,), "float32", 1, 3, 1, "f")
CPU = torch.device("cpu")


def parameters(**changes: Any) -> PPOParameters:
    return unroll_parameters("PPO", **{"unroll_length": 6, "epochs": 2, "minibatches": 3, **changes})


def updater(params: PPOParameters) -> Any:
    return make_updater(METHOD, params, network(params), CPU)


def network(params: PPOParameters) -> PolicyNetwork:
    torch.manual_seed(0)
    return METHOD.build(SPEC, params, EnvironmentParameters())


def iteration(params: PPOParameters, net: PolicyNetwork | None = None, seed: int = 1) -> UnrollBatch:
    """Unrolls with episodes that end both ways; of the policy of ``net``, or of another one."""
    batch = unrolls_with_ends(params, SPEC, seed)
    return batch if net is None else batch._replace(log_prob=policy_of(net, batch).log_prob(batch.action))


@torch.no_grad()
def policy_of(net: PolicyNetwork, batch: UnrollBatch) -> torch.distributions.Categorical:
    logits, _ = net.unroll(batch.observation, batch.state, batch.ended)
    return torch.distributions.Categorical(logits=logits)


def plain_ppo(net: PolicyNetwork, batch: UnrollBatch, params: PPOParameters) -> None:
    """All updates of an iteration, step by step, by Schulman et al. 2017 and torch's own optimiser."""
    optimizer = torch.optim.Adam(net.parameters(), lr=params.learning_rate, eps=params.optimizer_epsilon)
    steps, unrolls = batch.action.shape
    for epoch in range(params.epochs):
        if epoch == 0 or params.recompute_advantages:
            advantage, target = torch.zeros(2, steps, unrolls)
            for b in range(unrolls):
                with torch.no_grad():
                    value = [net(batch.observation[b, t : t + 1]).value.item() for t in range(steps + 1)]
                ahead = 0.0
                for t in reversed(range(steps)):
                    reward = (batch.reward[t, b] + params.gamma * batch.final_value[t, b]).item()
                    discount = batch.discount[t, b].item()
                    ahead = reward + discount * value[t + 1] - value[t] + discount * params.gae_lambda * ahead
                    advantage[t, b], target[t, b] = ahead, ahead + value[t]
        for part in torch.randperm(steps * unrolls).split(steps * unrolls // params.minibatches):
            chosen = [divmod(int(index), unrolls) for index in part]
            scaled = torch.stack([advantage[t, b] for t, b in chosen])
            scaled = (scaled - scaled.mean()) / (scaled.std(correction=0) + 1e-8)
            total = torch.zeros(())
            for (t, b), its in zip(chosen, scaled, strict=True):
                logits, value_now, _ = net(batch.observation[b, t : t + 1])
                policy = torch.distributions.Categorical(logits=logits[0])
                ratio = (policy.log_prob(batch.action[t, b]) - batch.log_prob[t, b]).exp()
                bounded = ratio.clamp(1 - params.clip_range, 1 + params.clip_range)
                total = total - torch.min(ratio * its, bounded * its) - params.entropy_cost * policy.entropy()
                total = total + params.value_cost * 0.5 * (target[t, b] - value_now[0]) ** 2
            optimizer.zero_grad()
            (total / len(chosen)).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), params.gradient_clip_norm)
            optimizer.step()


@pytest.mark.parametrize("recompute", [False, True])
def test_an_iteration_is_that_of_a_plain_ppo(recompute: bool) -> None:
    params = parameters(recompute_advantages=recompute, entropy_cost=0.02, learning_rate=1e-2)
    ours, theirs = updater(params), network(params)
    batch = iteration(params)
    torch.manual_seed(7)
    updates = list(ours.updates_from(batch, 0))
    torch.manual_seed(7)
    plain_ppo(theirs, batch, params)
    assert len(updates) == 6
    torch.testing.assert_close(ours.online.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)


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
    monkeypatch.setattr("rljob.algorithms.ppo.loss.MOST_OBSERVATIONS", 10)
    apart = with_advantages(params, net, batch)
    torch.testing.assert_close((apart.advantage, apart.value_target), (whole.advantage, whole.value_target))


def test_an_episode_that_ran_out_of_time_is_worth_what_was_expected_of_its_end() -> None:
    params = parameters(gae_lambda=1.0)
    net, nothing = network(params), torch.zeros(6, 4)
    for parameter in net.parameters():
        torch.nn.init.zeros_(parameter)
    quiet = iteration(params)._replace(reward=nothing, discount=nothing, final_value=nothing)
    ran_out = with_advantages(params, net, quiet._replace(final_value=nothing + 10.0)).value_target
    assert with_advantages(params, net, quiet).value_target.abs().max() == 0
    torch.testing.assert_close(ran_out, nothing + 10.0 * params.gamma)


@pytest.mark.parametrize("normalize", [True, False])
def test_figures_are_those_of_a_plain_computation(normalize: bool) -> None:
    params = parameters(normalize_advantages=normalize, epochs=1, minibatches=1)
    net, batch = network(params), iteration(params)
    (minibatch,), whole = METHOD.minibatches(params, net, batch), with_advantages(params, net, batch)
    found = {name: float(each) for name, each in METHOD.loss(params, net, minibatch).metrics.items()}
    assert found.keys() == set(METHOD.metrics_of(net)) == set(METHOD.metrics) - {"log_std"}
    advantage, target = whole.advantage.numpy(), whole.value_target.numpy()
    policy = policy_of(net, batch)
    log_ratio = policy.log_prob(batch.action) - batch.log_prob
    expected = {
        "value": (target - advantage).mean(),
        "advantage_std": advantage.std(),
        "explained_variance": max(-1.0, 1.0 - advantage.var() / target.var()),
        "entropy": policy.entropy().mean().item(),
        "policy_kl": (log_ratio.exp() - 1 - log_ratio).mean().item(),
        "clip_share": ((log_ratio.exp() - 1).abs() > params.clip_range).float().mean().item(),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("spec", "changes", "separate"),
    [
        (SPEC, {}, True),
        (SPEC, {"separate_critic": False}, False),
        (SPEC, {"recurrent": "LSTM"}, False),
        (IMAGES, {}, False),
        (IMAGES, {"separate_critic": True}, True),
    ],
)
def test_with_vectors_values_have_hidden_layers_of_their_own(spec: Any, changes: Any, separate: bool) -> None:
    net = METHOD.build(spec, parameters(network="Auto", **changes), EnvironmentParameters())
    net(torch.ones(2, *spec.observation_shape)).value.sum().backward()
    assert (net.dense[0].weight.grad is None) == separate


STEPS, UNROLLS = 5, 4
NUMBERS = torch.arange(STEPS * UNROLLS).view(STEPS, UNROLLS)
"""A name for every step: t * B + b."""


def batch(*, targets: bool = True) -> UnrollBatch:
    """A batch of random numbers; the actions name the steps."""
    normal = partial(torch.randn, generator=torch.Generator().manual_seed(1))
    return UnrollBatch(
        observation={"one": normal(UNROLLS, STEPS + 1, 1, 4), "two": normal(UNROLLS, STEPS + 1, 2, 3, 3)},
        action=NUMBERS,
        reward=normal(STEPS, UNROLLS),
        discount=torch.full((STEPS, UNROLLS), 0.9),
        log_prob=-normal(STEPS, UNROLLS).abs(),
        final_value=normal(STEPS, UNROLLS),
        ended=torch.zeros(STEPS, UNROLLS, dtype=torch.uint8),
        state=normal(UNROLLS, 2, 3),
        advantage=normal(STEPS, UNROLLS) if targets else None,
        value_target=normal(STEPS, UNROLLS) if targets else None,
        steps=torch.tensor(70.0),
        control=normal(STEPS, UNROLLS, 2),
    )


def test_passes_over_single_steps_visit_each_once_with_its_own_columns() -> None:
    given = batch()
    torch.manual_seed(0)
    found = list(minibatches_of_steps(given, 2, 4))
    assert [len(part.action) for part in found] == [5] * 8
    for epoch in (found[:4], found[4:]):
        assert sorted(int(a) for part in epoch for a in part.action) == NUMBERS.flatten().tolist()
    assert found[0].action.tolist() != found[4].action.tolist()
    for part in found:
        assert (part.single_steps, part.steps) == (True, given.steps)
        for row, name in enumerate(part.action.tolist()):
            t, b = divmod(name, UNROLLS)
            for column in ("one", "two"):
                assert torch.equal(part.observation[column][row], given.observation[column][b, t])
            for column in ("advantage", "value_target", "log_prob", "control"):
                assert torch.equal(getattr(part, column)[row], getattr(given, column)[t, b])


def test_what_does_not_divide_evenly_is_left_out_of_a_pass() -> None:
    found = list(minibatches_of_steps(batch(), 1, 3))
    assert [len(part.action) for part in found] == [6, 6, 6]
    assert len({int(a) for part in found for a in part.action}) == 18


def test_single_steps_need_targets() -> None:
    with pytest.raises(ValueError, match=r"single steps need advantage \[T, B\] of the batch, \[5, 4\] here, got None"):
        next(minibatches_of_steps(batch(targets=False), 1, 2))


@pytest.mark.parametrize("targets", [True, False])
def test_passes_over_unrolls_keep_time_together(targets: bool) -> None:
    given = batch(targets=targets)
    found = list(minibatches_of_unrolls(given, 2, 2))
    assert len(found) == 4
    for epoch in (found[:2], found[2:]):
        assert sorted(int(a) for part in epoch for a in part.action[0]) == list(range(UNROLLS))
    for part in found:
        assert not part.single_steps
        assert (part.advantage is None) != targets
        for column, b in enumerate(part.action[0].tolist()):
            for name in ("action", "reward", "discount", "log_prob", "final_value", "advantage", "value_target"):
                values = getattr(part, name)
                assert values is None or torch.equal(values[:, column], getattr(given, name)[:, b])
            assert torch.equal(part.observation["two"][column], given.observation["two"][b])
            assert torch.equal(part.state[column], given.state[b])


def test_one_minibatch_is_the_batch_itself() -> None:
    given = batch()
    assert all(part is given for part in minibatches_of_unrolls(given, 3, 1))
