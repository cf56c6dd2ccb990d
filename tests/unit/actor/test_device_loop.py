"""What is recorded of a simulator in whole blocks is what a loop records that steps it one by one on the host."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting import ActorIdentity
from rljob.actor.device import DeviceEnvironment, DevicePolicy
from rljob.actor.device_loop import DeviceLoop
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import ActorLoop
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.impala.loss import IMPALA
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import Choices
from rljob.envs import KeepsFailing, StepResult, make_device_vector
from rljob.envs.meter import EpisodeMeter
from rljob.experience import Decision, make_builder

from tests.support.devices import DEVICES, needs_cuda
from tests.support.inference import SEED, Given, Kept, Setup, assert_equal_segments
from tests.support.paths import PLUGINS
from tests.unit.learner.optim.test_no_waiting import Waits, waiting_is_an_error

CARTPOLE = f"{PLUGINS / 'torch_cartpole.py'}:make"
ENVS, STEPS = 6, 10
NEVER = threading.Event()
APEX = ApeXDQNParameters(precision="FP32", network="MLP", hidden_units=16, chunk_length=STEPS, n_step=3)


def impala(**changes: Any) -> ImpalaParameters:
    values = {"precision": "FP32", "network": "MLP", "hidden_units": 16, "unroll_length": STEPS, "lstm_units": 8}
    return ImpalaParameters.model_validate({**values, **changes})


class Greedy(ApeXDQN):
    """Nothing is drawn."""

    def exploration(self, params: Any, slot: int, slots: int, num_envs: int) -> Any:
        return np.zeros(num_envs, np.float32)


class OnHost(IMPALA):
    """Decides in what counts as a way of its own, on the host: with the same draws wherever the rest is computed."""

    def decide(self, outputs: Any, epsilon: Any, generator: Any, choices: Choices) -> Decision:
        return super().decide(outputs, epsilon, generator, choices)


class StepByStep:
    """The same simulator as every other vector environment is, written down plainly."""

    def __init__(self, env: DeviceEnvironment) -> None:
        self._env, self.spec, self.num_envs = env, env.spec, env.num_envs
        self._meter = EpisodeMeter(env.num_envs)

    def reset(self, seed: int | None = None) -> Any:
        return self._env.reset().numpy()[:, None].copy()

    def step(self, actions: Any, controls: Any = None) -> StepResult:
        step = self._env.step(torch.from_numpy(actions))
        terminated = step.terminated.numpy().astype(bool)
        truncated = step.truncated.numpy().astype(bool) & ~terminated
        reward = step.reward.numpy().astype(np.float32)
        final = step.final_frames.numpy()[:, None].copy() if (terminated | truncated).any() else None
        return StepResult(
            observation=step.frames.numpy()[:, None].copy(),
            reward=np.clip(reward, -1.0, 1.0) if self._env.reward_clipping else reward,
            terminated=terminated,
            truncated=truncated,
            life_lost=np.zeros(self.num_envs, bool),
            final_observation=final,
            raw_frames=self.num_envs,
            episodes=self._meter.step(reward, 1, terminated, truncated),
        )

    def close(self) -> None: ...


class Actor:
    """A loop of either kind, with what it made."""

    def __init__(self, setup: Setup, *, in_blocks: bool, weights: int | None = 1) -> None:
        method, spec, parameters, env_params = setup.method, setup.spec, setup.parameters, setup.environment_parameters
        env = DeviceEnvironment(make_device_vector(spec, env_params, ENVS), SEED)
        self.sink, self.figures = Kept(), ActorFigures(ActorIdentity("actor-0", "life", ENVS))
        sink: Any = self.sink
        layout = method.layout(spec, parameters)
        self.recorder = make_builder(layout, ENVS, 0.99, False, "actor-0", "life", 0)
        self.given = given = Given(setup.weights(weights) if weights else None)
        self.loop: Any
        if in_blocks:
            policy = DevicePolicy(method, spec, parameters, env_params, ENVS, env.device, SEED)
            self.loop = DeviceLoop(env, policy, self.recorder, sink, given, self.figures, layout.length)
        else:
            acting = ActingPolicy(method, spec, parameters, env_params, ENVS, np.random.default_rng(SEED))
            self.loop = ActorLoop(StepByStep(env), acting, self.recorder, sink, given, self.figures)
        self.loop.start()

    def play(self, turns: int) -> Actor:
        for _ in range(turns):
            self.loop.turn(NEVER)
        return self


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def clocks(method: Any, parameters: Any, **settings: Any) -> Setup:
    return Setup(method, parameters, "tests.support.device_games:clocks", EnvironmentParameters(**settings))


def cartpole(method: Any, parameters: Any, device: torch.device | str = "cpu") -> Setup:
    return Setup(method, parameters, CARTPOLE, EnvironmentParameters(kwargs={"device": str(device)}))


SETUPS: dict[str, Callable[[], Setup]] = {
    "transitions": lambda: clocks(Greedy(), APEX),
    "clipped rewards": lambda: clocks(Greedy(), APEX, reward_clipping="Enabled"),
    "unrolls": lambda: clocks(OnHost(), impala()),
    "a memory": lambda: clocks(OnHost(), impala(recurrent="LSTM")),
    "CartPole": lambda: cartpole(OnHost(), impala()),
}


def reported(actor: Actor, name: str) -> np.ndarray:
    return np.concatenate([each.columns[name] for each in actor.sink.reported])


@pytest.mark.parametrize("kind", SETUPS)
def test_a_block_is_recorded_as_its_steps_would_be(kind: str) -> None:
    setup = SETUPS[kind]()
    blocks, steps = Actor(setup, in_blocks=True).play(6), Actor(setup, in_blocks=False).play(6 * STEPS)
    assert len(blocks.sink.chunks) > ENVS
    for chunk in blocks.sink.chunks:
        chunk.check()
    # The values of final observations are computed in another batch, which rounds otherwise.
    assert_equal_segments(blocks.sink, steps.sink, rounded=lambda name, _: name in ("priority", "final_value"))
    assert blocks.figures.steps == steps.figures.steps == blocks.figures.raw_frames == 6 * STEPS * ENVS
    assert blocks.recorder.pending == steps.recorder.pending
    for name in ("ret", "length", "env", "cut", "pv"):
        ours, theirs = (reported(actor, name) for actor in (blocks, steps))
        np.testing.assert_array_equal(ours, theirs)
        assert len(ours) > ENVS
    if kind in ("unrolls", "a memory"):
        cut = reported(blocks, "cut")
        assert 0 < cut.sum() < len(cut), "both kinds of end are among what is compared"
        assert any((unroll["final_value"] != 0).any() for unroll in blocks.sink.chunks)


def test_weights_are_taken_between_blocks_and_none_play_at_random() -> None:
    setup = clocks(IMPALA(), impala())
    actor = Actor(setup, in_blocks=True, weights=None).play(2)
    for version in (3, 4):
        actor.given.next = setup.weights(version)
        actor.play(1)
    versions = [unroll["policy_version"] for unroll in actor.sink.chunks]  # type: ignore[union-attr]
    assert [int(each[0]) for each in versions[::ENVS]] == [0, 0, 3, 4]
    assert all((each == each[0]).all() for each in versions)
    assert actor.figures.policy_version == 4


def test_weights_of_another_epoch_end_an_unroll_which_the_learner_would_refuse() -> None:
    setup = clocks(IMPALA(), impala())
    actor = Actor(setup, in_blocks=False, weights=3).play(4)
    for version, epoch in ((4, 7), (5, 8)):
        actor.given.next, actor.loop._next_exchange = setup.weights(version, epoch), 0.0
        actor.play(1)
    assert (actor.figures.cut_steps, actor.recorder.steps_into_unroll) == (5 * ENVS, 1)
    actor.play(STEPS - 1)
    played = {(each.epoch, *each["policy_version"]) for each in actor.sink.chunks}
    assert played == {(8, *[5] * STEPS)}


def test_weights_that_arrive_within_a_block_wait_for_its_end_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = clocks(IMPALA(), impala())
    actor = Actor(setup, in_blocks=True, weights=3)
    loop, newer = actor.loop, [setup.weights(4)]
    step = loop._environment.step

    def arriving(actions: torch.Tensor) -> Any:
        if newer and loop._block.steps == 4:
            actor.given.next = newer.pop()
        loop._next_exchange = 0.0
        return step(actions)

    monkeypatch.setattr(loop._environment, "step", arriving)
    actor.play(1)
    assert (newer, actor.given.next, actor.figures.policy_version) == ([], None, 3), "they were seen"
    monkeypatch.undo()
    loop._next_exchange = float("inf")
    actor.play(1)
    assert actor.figures.policy_version == 4, "however lately it was looked for them"


def test_a_block_begins_once_it_was_asked_for_in_all_environments_and_its_weights_are_there() -> None:
    setup = clocks(IMPALA(), impala())
    actor, stop = Actor(setup, in_blocks=True, weights=3), threading.Event()
    actor.sink.credits, actor.sink.least_version = ENVS - 1, 4
    happens = [
        lambda: setattr(actor.sink, "credits", ENVS),
        lambda: setattr(actor.given, "next", setup.weights(4)),
        lambda: setattr(actor.sink, "credits", 0),
    ]

    def polled(timeout_seconds: float = 0.0) -> None:
        if happens:
            happens.pop(0)()
        elif not actor.loop._builder.steps_into_unroll and actor.sink.chunks:
            stop.set()

    actor.sink.poll = polled  # type: ignore[method-assign]
    for _ in range(2):
        actor.loop.turn(stop)
    assert [int(unroll["policy_version"][0]) for unroll in actor.sink.chunks] == [4] * ENVS
    assert actor.figures.steps == ENVS * STEPS, "the second one was not asked for"


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
@pytest.mark.parametrize("device", DEVICES)
def test_unrolls_say_what_the_network_says(device: torch.device, recurrent: str) -> None:
    """With draws on the device: log-probabilities and memories are those that the learner would compute of them."""
    setup = cartpole(IMPALA(), impala(recurrent=recurrent), device)
    actor = Actor(setup, in_blocks=True, weights=5).play(6)
    network: Any = setup.network()
    setup.weights(5).load_into(network)
    assert len(actor.sink.chunks) == 6 * ENVS
    for unroll in actor.sink.chunks:
        unroll.check()
        frames = torch.from_numpy(unroll["vector"][unroll["observation"]])[None, :, None]  # type: ignore[union-attr]
        ended = torch.from_numpy(unroll["ended"])[:, None]
        with torch.inference_mode():
            logits, _ = network.unroll(frames, torch.from_numpy(unroll["state"])[None], ended)  # type: ignore[union-attr]
        expected = logits.log_softmax(-1).gather(-1, torch.from_numpy(unroll["action"]).long()[:, None, None])[:, 0, 0]
        np.testing.assert_allclose(unroll["log_prob"], expected.numpy(), atol=1e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("method", [Greedy(), ApeXDQN(), IMPALA()])
def test_the_host_reads_nothing_while_a_block_is_played(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Actor(cartpole(method, impala() if method.name == "IMPALA" else APEX), in_blocks=True).play(1).loop
    for name in ("numpy", "cpu", "item", "tolist", "__array__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("the host would wait here"))
    with Waits() as waits:
        loop._play(NEVER)
    monkeypatch.undo()
    assert waits.found == []


@needs_cuda
@pytest.mark.parametrize("method", [ApeXDQN(), IMPALA()])
def test_on_a_gpu_torch_itself_finds_no_wait(method: Any) -> None:
    loop = Actor(cartpole(method, impala() if method.name == "IMPALA" else APEX, "cuda"), in_blocks=True).play(1).loop
    with waiting_is_an_error():
        loop._play(NEVER)


def test_a_stop_ends_a_block_and_what_was_played_is_recorded() -> None:
    actor = Actor(clocks(Greedy(), APEX), in_blocks=True)
    stop = threading.Event()
    step = actor.loop._environment.step  # type: ignore[attr-defined]

    def stopping(actions: torch.Tensor) -> Any:
        if len(steps) == 3:
            stop.set()
        steps.append(actions)
        return step(actions)

    steps: list[torch.Tensor] = []
    actor.loop._environment.step = stopping  # type: ignore[attr-defined]
    actor.loop.turn(stop)
    assert len(steps) == 4
    assert actor.figures.steps == 4 * ENVS == actor.recorder.pending + actor.recorder.produced


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("late", "the plant caught fire"),
        ("nan", r"expected finite rewards \[step, environment\] less than 1e\+15 in size, got nan at \["),
        ("seen", r"expected finite observations \[step, environment, \.\.\.\], got inf at \["),
        ("last", r"expected finite observations of ends \[end, \.\.\.\], got nan at \["),
    ],
)
def test_a_simulator_that_fails_ends_its_actor(bad: str, said: str) -> None:
    actor = Actor(clocks(Greedy(), APEX, kwargs={"bad": bad}), in_blocks=True)
    with pytest.raises(KeepsFailing, match=f"{said}.*restarts with its actor"):
        actor.play(1)
    assert not actor.sink.chunks
