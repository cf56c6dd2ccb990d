"""SAC against a plain one in a single function, what each of its losses moves, how it acts, and what of it is published."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.base import ParameterGroup
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.conformance import check
from rljob.algorithms.registry import algorithm
from rljob.algorithms.sac.network import SACNetwork
from rljob.algorithms.shapes import shapes_of
from rljob.algorithms.suits import check_suits
from rljob.api import EnvironmentParameters, SACParameters, load_manifest
from rljob.api.networks import NetworkProblem
from rljob.checkpoints import store
from rljob.checkpoints.saved_policy import acting_state
from rljob.choices import Choices
from rljob.envs import EnvironmentSpec, describe_environment
from rljob.learner.optim.sharded_optimizer import DataParallelThreads, ShardedOptimizer
from rljob.learner.optim.updater import AnyUpdater, make_updater
from rljob.learner.state import capture, restore, start_from
from rljob.loading import PluginProblem
from rljob.weights.flat import snapshot
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from tests.support.paths import EXAMPLES
from tests.unit.learner.learner_builders import assert_equal

CPU = torch.device("cpu")
METHOD: Any = algorithm("SAC")
ENV = EnvironmentParameters(actions="Squashed")
SPEC = describe_environment("Pendulum-v1", ENV)
SMALL = SACParameters(batch_size=32, hidden_units=16, learning_rate=1e-3, critic_learning_rate=3e-3)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


EVERY_SPACE = "tests.support.every_space:EverySpace"


def every_space(
    *, action: str, observation: str = "vector", leaves: dict[str, str] | None = None
) -> tuple[EnvironmentSpec, EnvironmentParameters]:
    env_params = EnvironmentParameters(
        kwargs={"action": action, "observation": observation}, actions="Squashed", leaves=leaves or {}
    )
    return describe_environment(EVERY_SPACE, env_params), env_params


def updater(params: SACParameters = SMALL, threads: int = 1, spec: EnvironmentSpec = SPEC) -> AnyUpdater:
    torch.manual_seed(0)
    return make_updater(METHOD, params, METHOD.build_learner(spec, params, ENV), CPU, DataParallelThreads(threads))


def batch_of(rows: int = 32, spec: EnvironmentSpec = SPEC) -> TransitionBatch:
    drawn = partial(torch.randn, generator=torch.Generator().manual_seed(3))
    return TransitionBatch(
        observation=drawn(rows, *spec.observation_shape),
        next_observation=drawn(rows, *spec.observation_shape),
        action=torch.zeros(rows, 0, dtype=torch.int64),
        n_step_return=drawn(rows),
        discount=torch.where(torch.arange(rows) % 5 == 0, 0.0, 0.99),
        weight=torch.ones(rows),
        control=drawn(rows, spec.controls),
        noise=drawn(rows, 2, spec.controls),
    )


class Plain:
    """The networks of a ``SACNetwork`` in torch's own layers, and an update as it is written in the paper."""

    def __init__(self, net: SACNetwork, params: SACParameters) -> None:
        self.params = params
        self.policy = copy.deepcopy(net.policy.dense), copy.deepcopy(net.policy.head)
        self.critics = [self._critic(net, member) for member in range(2)]
        self.targets = copy.deepcopy(self.critics)
        self.log_temperature = net.log_temperature.detach().clone().requires_grad_()
        critics = [weight for critic in self.critics for weight in critic.parameters()]
        policy = [weight for part in self.policy for weight in part.parameters()]
        self.optimizers = [
            torch.optim.Adam(critics, lr=params.critic_learning_rate, eps=params.optimizer_epsilon),
            torch.optim.Adam(policy, lr=params.learning_rate, eps=params.optimizer_epsilon),
            torch.optim.Adam([self.log_temperature], lr=params.temperature_learning_rate, eps=params.optimizer_epsilon),
        ]

    @staticmethod
    def _critic(net: SACNetwork, member: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(net.critics.weights, net.critics.biases, strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[2])
            layer.weight.data.copy_(weight[member].detach().T)
            layer.bias.data.copy_(bias[member, 0].detach())
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def distribution(self, observation: Tensor) -> TransformedDistribution:
        dense, head = self.policy
        mean, spread = head(dense(observation)).chunk(2, dim=1)
        log_std = -5.0 + 3.5 * (torch.tanh(spread) + 1.0)
        return Independent(TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=1)]), 1)

    def sampled(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        policy = self.distribution(observation)
        base = policy.base_dist.base_dist
        action = policy.base_dist.transforms[0](base.loc + base.scale * noise)
        return action, policy.log_prob(action)

    def update(self, batch: TransitionBatch) -> dict[str, Tensor]:
        observation, following = batch.observation.flatten(1), batch.next_observation.flatten(1)
        alpha = self.log_temperature.detach().exp()
        with torch.no_grad():
            after, log_prob = self.sampled(following, batch.noise[:, 0])
            pair = torch.cat([following, after], dim=1)
            least = torch.minimum(*[target(pair).squeeze(1) for target in self.targets])
            wanted = batch.n_step_return + batch.discount * (least - alpha * log_prob)
        pair = torch.cat([observation, torch.tanh(batch.control)], dim=1)
        critic_loss = sum(0.5 * (critic(pair).squeeze(1) - wanted).square().mean() for critic in self.critics)
        action, log_prob = self.sampled(observation, batch.noise[:, 1])
        pair = torch.cat([observation, action], dim=1)
        policy_loss = (alpha * log_prob - torch.minimum(*[critic(pair).squeeze(1) for critic in self.critics])).mean()
        temperature_loss = -(self.log_temperature * (log_prob - batch.control.shape[1]).detach()).mean()
        gradients = [
            torch.autograd.grad(loss, optimizer.param_groups[0]["params"], retain_graph=True)
            for loss, optimizer in zip((critic_loss, policy_loss, temperature_loss), self.optimizers, strict=True)
        ]
        for optimizer, found in zip(self.optimizers, gradients, strict=True):
            for weight, gradient in zip(optimizer.param_groups[0]["params"], found, strict=True):
                weight.grad = gradient
            optimizer.step()
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                    old.lerp_(new, self.params.target_update_tau)
        norm = torch.cat([each.flatten() for found in gradients for each in found]).norm()
        return {"critic_loss": critic_loss.detach(), "policy_loss": policy_loss.detach(), "gradient_norm": norm}


@pytest.mark.parametrize("threads", [1, 2])
def test_updates_are_those_of_a_plain_sac(threads: int) -> None:
    own, batch = updater(threads=threads), batch_of()
    plain = Plain(own.online, SMALL)
    for _ in range(3):
        expected = plain.update(batch)
        _, figures = own.update(batch, 0)  # type: ignore[union-attr]
        found = dict(zip(own.figures, figures, strict=True))
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")
    online: Any = own.online
    torch.testing.assert_close(online.log_temperature.detach(), plain.log_temperature.detach(), **CLOSE)
    for critics, theirs in ((online.critics, plain.critics), (own.target.critics, plain.targets)):  # type: ignore[union-attr]
        for member in range(2):
            linear = [layer for layer in theirs[member] if isinstance(layer, nn.Linear)]
            for weight, bias, layer in zip(critics.weights, critics.biases, linear, strict=True):
                torch.testing.assert_close(weight[member].T, layer.weight, **CLOSE)
                torch.testing.assert_close(bias[member, 0], layer.bias, **CLOSE)
    torch.testing.assert_close(online.policy.head.weight, plain.policy[1].weight, **CLOSE)


def test_a_temperature_that_is_given_stays() -> None:
    own = updater(SMALL.model_copy(update={"temperature": 0.2}))
    own.update(batch_of(), 0)  # type: ignore[union-attr]
    assert float(own.online.temperature) == pytest.approx(0.2)  # type: ignore[arg-type]
    assert "log_temperature" not in dict(own.online.named_parameters())


def test_a_learned_temperature_falls_where_there_is_more_entropy_than_asked_for() -> None:
    for asked, way in ((-50.0, -1.0), (50.0, 1.0)):
        own = updater(SMALL.model_copy(update={"target_entropy": asked}))
        own.update(batch_of(), 0)  # type: ignore[union-attr]
        assert float(own.online.log_temperature) * way > 0.0  # type: ignore[arg-type]


def test_it_gives_the_loops_what_they_expect() -> None:
    for action in ("number", "table", "halves"):
        spec, env_params = every_space(action=action)
        check("SAC", METHOD, SMALL, spec, env_params)


@pytest.mark.parametrize("observation", ["picture", "dict", "nested"])
def test_policy_and_critics_see_every_kind_of_observation_each_with_layers_of_their_own(observation: str) -> None:
    leaves = {"hidden": "critic"} if observation == "nested" else {}
    spec, env_params = every_space(observation=observation, action="table", leaves=leaves)
    check("SAC", METHOD, SMALL, spec, env_params)
    net = METHOD.build_learner(spec, SMALL, env_params)
    for plan in net.compute_plans("FP32", native=("fp32",)):
        own = make_updater(METHOD, SMALL, copy.deepcopy(net).compute(plan), CPU)
        priorities, _ = own.update(METHOD.example(spec, SMALL, net, CPU), 0)  # type: ignore[union-attr]
        assert torch.isfinite(priorities).all()


def test_leaves_of_the_role_critic_reach_the_critics_alone() -> None:
    with_leaf, env_params = every_space(observation="nested", action="number", leaves={"hidden": "critic"})
    without, _ = every_space(observation="nested", action="number", leaves={"hidden": "ignored"})
    one, the_other = (shapes_of(METHOD.build(spec, SMALL, env_params)) for spec in (with_leaf, without))
    assert one == the_other
    own, other = (METHOD.build_learner(spec, SMALL, env_params) for spec in (with_leaf, without))
    assert own.critics.weights[0].shape[1] == other.critics.weights[0].shape[1] + 2


def test_an_entropy_that_no_policy_has_is_refused() -> None:
    for asked, allowed in ((5.0, False), (0.7, False), (0.69, True), (-3.0, True)):
        job = load_manifest(EXAMPLES / "pendulum-sac.yaml", [f"spec.algorithm.sac.targetEntropy={asked}"])
        said = r"has at most 0\.693 nats, log 2 for each.*unset it is -1"
        with nullcontext() if allowed else pytest.raises(NetworkProblem, match=said):
            check_suits(job, SPEC)


def test_draws_far_beyond_the_bounds_leave_losses_and_gradients_finite() -> None:
    own = updater()
    batch = batch_of()._replace(control=torch.full((32, 1), 1e4), noise=torch.full((32, 2, 1), -40.0))
    priorities, figures = own.update(batch, 0)  # type: ignore[union-attr]
    assert torch.isfinite(torch.cat([figures, priorities])).all()


def test_choices_are_refused_in_a_sentence() -> None:
    for action in ("discrete", "with_choices"):
        spec = describe_environment(EVERY_SPACE, EnvironmentParameters(kwargs={"action": action}))
        with pytest.raises(NetworkProblem, match="SAC learns continuous actions alone, but there are choices"):
            check("SAC", METHOD, SMALL, spec, EnvironmentParameters())


def test_a_random_action_is_uniform_between_the_bounds() -> None:
    decision = METHOD.random_decision(20_000, Choices((), controls=2), np.random.default_rng(0))
    action = np.tanh(decision.control)
    assert np.isfinite(decision.control).all()
    assert np.abs(action).max() <= 1.0
    shares, _ = np.histogram(action, bins=10, range=(-1.0, 1.0))
    assert np.abs(shares / 40_000 - 0.1).max() < 0.006  # four standard errors
    assert np.isnan(decision.taken).all()


def test_it_is_judged_by_the_means_and_draws_where_it_learns() -> None:
    net = METHOD.build(SPEC, SMALL, ENV).eval()
    observation = np.random.default_rng(0).normal(size=(4, *SPEC.observation_shape)).astype(np.float32)
    games = [SimpleNamespace(random=np.random.default_rng(k), memory=None) for k in range(4)]
    outputs = METHOD.infer(net, observation, np.zeros((4, 2, 0), np.float32)).outputs.numpy()
    np.testing.assert_array_equal(METHOD.evaluation_action(SMALL, net, observation, games), outputs[:, :1])
    many = np.repeat(outputs[:1], 20_000, axis=0)
    drawn = METHOD.decide(many, 0.0, np.random.default_rng(0), Choices((), controls=1)).control
    assert drawn.mean() == pytest.approx(outputs[0, 0], abs=4 * np.exp(outputs[0, 1]) / np.sqrt(20_000))
    assert drawn.std() == pytest.approx(np.exp(outputs[0, 1]), rel=0.03)


def test_the_policy_alone_is_published_and_its_weights_are_those_that_acting_builds() -> None:
    own = updater()
    weights = snapshot(own.acting, 1, 1, {})
    acting = METHOD.build(SPEC, SMALL, ENV)
    weights.load_into(acting)
    assert_equal(acting.state_dict(), own.acting.state_dict())
    assert len(weights.shapes) < len(own.online.state_dict()) / 2
    assert acting_state(own.online.state_dict(), METHOD.acting).keys() == acting.state_dict().keys()


def test_from_the_best_policy_alone_critics_begin_anew(tmp_path: Path) -> None:
    own = updater()
    own.update(batch_of(), 0)  # type: ignore[union-attr]
    best = {f"policy.{name}": tensor for name, tensor in own.acting.state_dict().items()}
    path, _ = store.write(tmp_path, store.BEST, best, {})
    other: Any = updater()
    critics = other.online.critics.weights[0].clone()
    start_from(other, store.read(path))
    assert torch.equal(other.online.critics.weights[0], critics)
    assert_equal(own.acting.state_dict(), other.acting.state_dict())
    assert_equal(own.acting.state_dict(), other.target.policy.state_dict())


def test_groups_hold_every_parameter_once() -> None:
    own, threads = updater(), DataParallelThreads()
    weights: Sequence[Tensor] = list(own.online.parameters())
    groups = METHOD.groups(SMALL, own.online)
    for wrong in (groups[:-1], [*groups, groups[0]]):
        with pytest.raises(ValueError, match="in one, and in one alone"):
            ShardedOptimizer(SMALL, weights, threads, wrong)
    with pytest.raises(ValueError, match="none of the network that learns"):
        ShardedOptimizer(SMALL, weights, threads, [*groups, ParameterGroup([torch.zeros(3)], 1.0, 0.0)])


def sac_with(name: str, change: Callable[..., Any]) -> Any:
    """SAC whose method of that name gives what ``change`` makes of SAC's own result and of the arguments."""
    method = {name: lambda self, *given: change(getattr(METHOD, name)(*given), *given)}
    return type("Own", (type(METHOD),), method)()


def first_replaced(**changes: Any) -> Callable[..., Any]:
    return lambda found, *_: [found[0]._replace(**changes), *found[1:]]


def smaller(found: Any, spec: EnvironmentSpec, params: SACParameters, env_params: EnvironmentParameters) -> Any:
    return METHOD.build(spec, params.model_copy(update={"hidden_units": 8}), env_params)


def remembering(found: Any, params: SACParameters, online: Any, target: Any, batch: TransitionBatch) -> Any:
    online.policy.last = batch.action
    return found


def scaled(found: Any, *_: Any) -> Any:
    found.return_scale = torch.ones(())
    return found


@pytest.mark.parametrize(
    ("method", "change", "said"),
    [
        ("groups", lambda found, *_: found[:-1], "groups: expected every weight.*in one group, got .*log_temperature in 0"),
        ("groups", lambda found, *_: [*found, found[1]], r"expected every weight.*in one group, got .*policy\.head\.bias in 2"),
        ("groups", first_replaced(every=0), "groups: every: expected an integer of 1 or more"),
        ("groups", first_replaced(optimizer=torch.optim.SGD), "groups: optimizer: expected what makes an Optimizer"),
        ("groups", first_replaced(optimizer=lambda weights: None), "expected what makes an Optimizer .* got TypeError"),
        ("build", smaller, "build_learner: expected policy of the network that learns to be what build gives"),
        ("loss", remembering, r"loss: expected a network that keeps nothing .* changed policy\.last"),
        ("memory_units", lambda found, *_: 8, r"memory_units: expected 0: transitions.*got 8"),
        ("build_learner", scaled, "build: expected a network without normalize_returns"),  # of which transitions say nothing
    ],
)  # fmt: skip
def test_an_author_is_told_of_a_mistake(method: str, change: Callable[..., Any], said: str) -> None:
    with pytest.raises(PluginProblem, match=said):
        check("own", sac_with(method, change), SMALL, SPEC, ENV)


def test_each_group_is_clipped_by_itself_and_moves_at_its_own_rate() -> None:
    one, two = torch.zeros(3), torch.zeros(2)
    groups = [ParameterGroup([one], 1.0, 1.0), ParameterGroup([two], 10.0, 0.0)]
    params = SMALL.model_copy(update={"optimizer": "RMSProp", "rmsprop_decay": 0.0, "optimizer_epsilon": 1e6})
    own = ShardedOptimizer(params, [one, two], DataParallelThreads(), groups)
    norm = own.step([[torch.full((3,), 100.0), torch.full((2,), 3.0)]], 1.0, lambda shard: None)
    assert float(norm) == pytest.approx((3 * 100.0**2 + 2 * 9.0) ** 0.5)
    assert one.tolist() == pytest.approx([-1 / 3**0.5 / 1e3] * 3, rel=1e-4)
    assert two.tolist() == pytest.approx([-10 * 3.0 / (1e6 + 9.0) ** 0.5] * 2, rel=1e-4)
    assert own._optimizers[0].learning_rate == 1.0


def test_a_loss_is_told_the_number_of_its_update_after_a_checkpoint_too(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    def told(found: Any, *given: Any) -> Any:
        seen.append((int(given[-1].update), float(given[-1].steps)))
        return found

    first, second = (
        make_updater(sac_with("loss", told), SMALL, updater().online, CPU, DataParallelThreads(1)) for _ in range(2)
    )
    for steps in (100, 200):
        first.update(batch_of(), steps)  # type: ignore[union-attr]
    path, _ = store.write(tmp_path, "one", capture(first), {})
    restore(second, store.read(path), first.updates)
    second.update(batch_of(), 300)  # type: ignore[union-attr]
    assert seen == [(1, 100.0), (2, 200.0), (3, 300.0)]
