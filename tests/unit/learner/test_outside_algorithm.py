"""An algorithm, a network and parameters that this package has never heard of, through every loop that uses them.

Quantile regression on transitions, and a policy gradient on unrolls; neither is registered.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from rljob.actor.policy import Policy
from rljob.algorithms.base import TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import LossResult, TransitionBatch, UnrollBatch
from rljob.algorithms.compute import Compute, Measured, Place
from rljob.algorithms.decision import Game, Inference
from rljob.algorithms.minibatches import minibatches_of_steps
from rljob.algorithms.parameters import TransitionParameters
from rljob.algorithms.trunk import FrameNetwork, dense_layers
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.api.parameters import ParameterSet
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import PolicyIdentity
from rljob.choices import Choices, RandomNumbers
from rljob.envs import EnvironmentSpec
from rljob.evaluation.player import judged_policy
from rljob.experience import Decision
from rljob.inference.batching import Request
from rljob.inference.model import ServedModel
from rljob.learner.loop import Learner
from rljob.learner.loop_config import LoopConfig
from rljob.learner.optim import precision
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.updater import TransitionUpdater, make_updater, trial_update
from rljob.learner.saver import Saver
from rljob.weights.exchange import WeightServer
from rljob.weights.flat import snapshot
from torch import Tensor, nn

from tests.unit.learner.learner_builders import ENV_PARAMS, SPEC, batches, unroll_batches

CPU = torch.device("cpu")
QUANTILES = 5


class OwnParameters(ParameterSet):
    """Fields that the loops read, and none of another algorithm."""

    seed: int = 1
    gamma: float = 0.9
    batch_size: int = 16
    prefetch_batches: int = 1
    publish_interval: int = 5
    precision: Literal["FP32"] = "FP32"
    compile: bool = False
    optimizer: Literal["Adam"] = "Adam"
    optimizer_epsilon: float = 1e-8
    rmsprop_decay: float = 0.9
    rmsprop_momentum: float = 0.0
    gradient_clip_norm: float = 0.0
    learning_rate: float = 1e-2
    learning_rate_final: float = 1e-2
    learning_rate_decay_steps: int = 0
    evaluation_weights_decay: float = 0.5
    n_step: int = 2
    chunk_length: int = 10
    target_update_interval: int = 3
    target_update_tau: float = 0.0
    greedy_epsilon: float = 0.1
    unroll_length: int = 5
    kappa: float = 1.0


class QuantileNetwork(FrameNetwork):
    """``forward(observation [B, S, *F]) -> float32 [B, A, QUANTILES]``."""

    def __init__(self, spec: EnvironmentSpec, units: int = 16) -> None:
        super().__init__(spec, ENV_PARAMS)
        self.dense = dense_layers(4, units, 1, layer_norm=False)
        self.head = nn.Linear(units, spec.num_actions * QUANTILES)

    def forward(self, observation: Tensor) -> Tensor:
        return self.head(self.features(observation)).unflatten(1, (-1, QUANTILES))


class QuantileRegression(TransitionAlgorithm[OwnParameters, QuantileNetwork]):
    name = "QuantileRegression"
    parameters = OwnParameters
    metrics = ("spread",)

    def build(self, spec: EnvironmentSpec, params: OwnParameters, env_params: EnvironmentParameters) -> QuantileNetwork:
        return QuantileNetwork(spec)

    def output_size(self, params: OwnParameters, num_actions: int) -> int:
        return num_actions

    def infer(self, net: QuantileNetwork, observation: Any, state: Any) -> Inference:
        with torch.inference_mode():
            return Inference(net(torch.as_tensor(observation)).mean(2), torch.as_tensor(state))

    def decide(self, outputs: np.ndarray, epsilon: Any, generator: RandomNumbers, choices: Choices) -> Decision:
        action = np.where(generator.random(len(outputs)) < epsilon, 0, outputs.argmax(1))
        return Decision(action, outputs[np.arange(len(outputs)), action], outputs.max(1))

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        unknown = np.full(num_envs, np.nan, np.float32)
        return Decision(choices.uniform(num_envs, generator), unknown, unknown)

    def state_values(self, outputs: np.ndarray, choices: Choices) -> np.ndarray:
        return outputs.max(1)

    def evaluation_action(
        self, params: OwnParameters, net: QuantileNetwork, observation: np.ndarray, games: Sequence[Game]
    ) -> np.ndarray:
        return self.infer(net, observation, np.zeros((len(games), 2, 0), np.float32)).outputs.argmax(1).numpy()

    def loss(
        self, params: OwnParameters, online: QuantileNetwork, target: QuantileNetwork, batch: TransitionBatch
    ) -> LossResult:
        rows = torch.arange(len(batch.action))
        taken = online(batch.observation)[rows, batch.action]
        with torch.no_grad():
            ahead = target(batch.next_observation)
            best = ahead[rows, ahead.mean(2).argmax(1)]
            wanted = batch.n_step_return.unsqueeze(1) + batch.discount.unsqueeze(1) * best
        error = wanted.unsqueeze(1) - taken.unsqueeze(2)
        middle = (torch.arange(QUANTILES) + 0.5).div(QUANTILES).view(1, -1, 1)
        huber = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=params.kappa)
        each = ((middle - (error.detach() < 0).float()).abs() * huber).sum(1).mean(1)
        off = (wanted.mean(1) - taken.detach().mean(1)).abs()
        return LossResult((batch.weight * each).mean(), {"spread": taken.detach().std(1).mean()}, td_abs=off)


class PolicyGradient(UnrollAlgorithm[Any, QuantileNetwork]):
    """Its loss is a sum over steps; it names a divergence, and parameters of another algorithm are as good as any."""

    name = "PolicyGradient"
    parameters = ImpalaParameters
    metrics = ("ratio",)
    build = QuantileRegression.build
    output_size = QuantileRegression.output_size
    infer = QuantileRegression.infer
    decide = QuantileRegression.decide
    random_decision = QuantileRegression.random_decision
    state_values = QuantileRegression.state_values
    evaluation_action = QuantileRegression.evaluation_action

    def target_divergence(self, params: Any) -> float:
        return 1e-6

    def loss(self, params: Any, online: QuantileNetwork, batch: UnrollBatch) -> LossResult:
        steps = batch.observation[:, :-1].transpose(0, 1)
        logits = online(steps.flatten(0, 1)).mean(2).view(*batch.action.shape, -1)
        taken = logits.log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        gap = (taken - batch.log_prob).detach()
        return LossResult(
            -(taken * batch.reward).sum(), {"ratio": gap.exp().mean()}, divergence=gap.square().mean(), summed=True
        )


def updater(threads: DataParallelThreads | None = None) -> TransitionUpdater:
    torch.manual_seed(0)
    method, params = QuantileRegression(), OwnParameters()
    made = make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU, threads)
    assert isinstance(made, TransitionUpdater)
    return made


@pytest.fixture
def two_threads() -> Any:
    threads = torch.get_num_threads()
    yield DataParallelThreads(2)
    torch.set_num_threads(threads)


def test_it_learns_on_one_core_and_on_two(two_threads: DataParallelThreads) -> None:
    assert isinstance(OwnParameters(), TransitionParameters)
    alone, divided = updater(), updater(two_threads)
    assert alone.figures == ("loss", "gradient_norm", "spread")
    (batch,) = batches(1)
    batch = batch._replace(discount=torch.zeros(16))
    losses = []
    for update in range(200):
        priorities, figures = alone.update(batch, 0)
        also_priorities, also_figures = divided.update(batch, 0)
        losses.append(float(figures[0]))
        if update < 5:
            torch.testing.assert_close(also_priorities, priorities, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(also_figures[:2], figures[:2], rtol=1e-4, atol=1e-5)
    assert losses[-1] < 0.2 * losses[0]
    assert float(priorities.mean()) < 0.3, "priorities are made of its errors, which have become small"


class FallingEntropy(PolicyGradient):
    """Its loss follows a schedule over the steps of the run."""

    metrics = ("entropy_cost",)

    def minibatches(self, params: Any, online: QuantileNetwork, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        flat = torch.zeros_like(batch.reward)
        yield from minibatches_of_steps(batch._replace(advantage=flat, value_target=flat), 1, 2)

    def loss(self, params: Any, online: QuantileNetwork, batch: UnrollBatch) -> LossResult:
        log_policy = online(batch.observation).mean(2).log_softmax(1)
        assert batch.steps is not None
        cost = 0.1 * (1.0 - batch.steps / 1000).clamp(min=0.0)
        entropy = -(log_policy.exp() * log_policy).sum(1).mean()
        return LossResult(-cost * entropy, {"entropy_cost": cost})


@pytest.mark.parametrize("cores", [1, 2])
def test_a_loss_knows_how_far_the_run_is(cores: int, two_threads: DataParallelThreads) -> None:
    method, params = FallingEntropy(), ImpalaParameters(unroll_length=5, batch_size=4)
    network = method.build(SPEC, params, ENV_PARAMS)
    learner = make_updater(method, params, network, CPU, two_threads if cores == 2 else None)
    (batch,) = unroll_batches(params, 1)
    costs = [
        [round(float(figures[2]), 4) for _, figures in learner.updates_from(batch, steps)] for steps in (0, 500, 2000)
    ]
    assert costs == [[0.1, 0.1], [0.05, 0.05], [0.0, 0.0]]
    trial_update(method, params, network, method.example(SPEC, params, network, CPU))


def test_a_summed_loss_on_unrolls_and_its_divergence(two_threads: DataParallelThreads) -> None:
    method = PolicyGradient()
    params = ImpalaParameters(
        unroll_length=5, batch_size=4, optimizer="RMSProp", optimizer_epsilon=0.1, learning_rate=1e-2
    )
    both = []
    for threads in (None, two_threads):
        torch.manual_seed(0)
        both.append(make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU, threads))
    for batch in unroll_batches(params, 3):
        figures = [[found for _, found in each.updates_from(batch, 0)] for each in both]
        assert len(figures[0]) == 1
        torch.testing.assert_close(figures[1][0], figures[0][0], rtol=1e-4, atol=1e-5)
    assert both[0].learning_rate.scale < 0.6, "a divergence far above the target lowers the learning rate"
    for mine, its in zip(both[1].online.parameters(), both[0].online.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [QuantileRegression(), PolicyGradient()])
def test_it_is_timed_acts_is_served_and_is_evaluated(method: Any) -> None:
    params: Any = OwnParameters() if isinstance(method, QuantileRegression) else ImpalaParameters(batch_size=2)
    torch.manual_seed(0)
    network = method.build(SPEC, params, ENV_PARAMS)
    example = method.example(SPEC, params, network, CPU)
    chosen = precision.choose("FP32", network, lambda net, batch: trial_update(method, params, net, batch), example)
    assert chosen.place.compute == Compute()
    weights = snapshot(network, 3, 1, {})

    policy = Policy(method, SPEC, params, ENV_PARAMS, 6, np.random.default_rng(0))
    policy.take_slot(0, 1)
    observation = np.random.default_rng(0).normal(size=(6, 1, 4)).astype(np.float32)
    assert np.isnan(policy.act(observation).value).all()
    policy.load(weights)
    decision = policy.act(observation)
    values = network(torch.from_numpy(observation)).mean(2)
    assert decision.action.tolist() == values.argmax(1).tolist()

    served = ServedModel(network, SPEC, method, method.memory_units(params), Measured(Place(CPU, Compute()), {}), 8)
    served.load(weights)
    request = Request("actor", "life", 0, 1, observation, np.zeros((6, 2, 0), np.float32), 0.0)
    outputs, _ = served.evaluate([request])
    assert outputs.shape == (6, method.output_size(params, SPEC.num_actions))
    torch.testing.assert_close(torch.from_numpy(outputs), values)

    class Seat:
        random = np.random.default_rng(0)
        memory: Any = None

    act = judged_policy(method, network, params)
    assert act(observation, [Seat() for _ in range(6)]).tolist() == values.argmax(1).tolist()


class Ready:
    """One batch, with its number as the version that acted."""

    def __init__(self, batch: TransitionBatch) -> None:
        self.policy_version = np.zeros(16, np.int64)
        self.batch = batch

    def wait(self) -> TransitionBatch:
        return self.batch

    def newest_frames(self) -> Tensor:
        return self.batch.observation[:, -1]


class Given:
    """A source of 30 batches, which then sets ``stop``."""

    needs_weights_first = False
    ready_batches = resubscriptions = heard_epoch = 0
    counted = None
    produced = consumed = 0.0

    def __init__(self, stop: threading.Event) -> None:
        self._left, self._stop = iter([Ready(batch) for batch in batches(30)]), stop
        self.priorities: list[np.ndarray] = []
        self.published_epochs: list[int] = []

    def next(self, timeout_seconds: float) -> Ready | None:
        ready = next(self._left, None)
        if ready is None:
            self._stop.set()
        return ready

    def learned(self, batch: Ready, priority: np.ndarray) -> None:
        self.priorities.append(priority)

    def published(self, epoch: int) -> None:
        self.published_epochs.append(epoch)

    def give_back(self, batch: Ready) -> None: ...
    def pass_over(self, batch: Ready) -> None: ...
    def statuses(self) -> list[dict[str, Any]]:
        return []

    def section(self) -> dict[str, Any]:
        return {}


_names = itertools.count()


def test_the_learner_trains_publishes_and_saves_it(tmp_path: Path) -> None:
    stop, name = threading.Event(), f"inproc://outside-{next(_names)}"
    source, records, params = Given(stop), [], OwnParameters()
    made = updater()
    server, saver = WeightServer(f"{name}-weights", f"{name}-notice"), Saver(tmp_path, keep=1)
    config = LoopConfig(
        QuantileRegression().steps_per_batch(params), params.publish_interval, 60.0, tmp_path, record_seconds=0.0
    )
    identity = PolicyIdentity("QuantileRegression", SPEC, params, ENV_PARAMS)
    learner = Learner(config, identity, made, source, server, saver, records.append, {})
    learner.run(stop)
    server.close()
    saver.close()
    assert made.updates == 30
    assert learner.counters.samples == 30 * 16
    assert [len(priority) for priority in source.priorities] == [16] * 30
    assert len(source.published_epochs) == 1 + 30 // 5
    spreads = [record.update_figures["spread"] for record in records if "spread" in record.update_figures]
    assert spreads, "what its loss measures is reported"
    assert np.isfinite(spreads).all()
    saved = checkpoint.latest_valid(tmp_path)
    assert saved is not None
    assert saved.manifest["algorithm"] == "QuantileRegression"
    assert torch.equal(saved.section("online")["head.bias"], made.online.state_dict()["head.bias"])


def test_what_is_no_algorithm_is_refused() -> None:
    with pytest.raises(TypeError, match="neither a TransitionAlgorithm nor an UnrollAlgorithm"):
        make_updater(object(), OwnParameters(), QuantileNetwork(SPEC), CPU)  # type: ignore[arg-type]
