"""Replayed updates learn what started ones do, whatever the algorithm, the optimiser and the arithmetic.

On a CPU a stand-in replays by calling (``ByCalling``); the same tests take real CUDA graphs where there is a GPU.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.batches import LossResult, TransitionBatch
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters
from rljob.checkpoints import store as checkpoint
from rljob.envs import describe_environment
from rljob.learner import state
from rljob.learner.optim.on_device import Capturer, cuda_graph
from rljob.learner.optim.update_trial import captured_and_checked, tensors_of
from rljob.learner.optim.updater import AnyUpdater, make_updater
from rljob.learner.plan import example_batch
from torch.utils._pytree import tree_map_only

from tests.support.devices import DEVICES, ByCalling, needs_cuda
from tests.unit.learner.learner_builders import (
    CPU,
    IMAGES,
    OPTIMIZERS,
    batches_of,
    image_parameters,
    on,
    parameters,
    updater,
)
from tests.unit.learner.optim.test_no_waiting import as_on_a_device, waiting_is_an_error

CUDA = torch.device("cuda")
TRANSITIONS: list[dict[str, Any]] = [
    {"target_update_interval": 3},
    {"target_update_tau": 0.1, "target_update_interval": 0, "evaluation_weights_decay": 0.9},
]
UNROLLS: list[dict[str, Any]] = [
    {"rmsprop_momentum": 0.5},
    {"recurrent": "LSTM", "lstm_units": 6, "minibatches": 2},
    {"epochs": 2, "minibatches": 4, "target_policy_kl": 0.02},
    {"kind": "PPO", "epochs": 2, "minibatches": 4},
    {"kind": "PPO", "epochs": 2, "minibatches": 2, "recurrent": "LSTM", "lstm_units": 6, "recompute_advantages": True},
]
Data = tuple[Any, list[Any]]
FALLING = {"learning_rate_final": 1e-4, "learning_rate_decay_steps": 100}


def transitions(device: torch.device, arithmetic: Arithmetic = "fp32", **changes: Any) -> Data:
    return _ready(parameters(**{**FALLING, **changes}), device, arithmetic)


def unrolls(device: torch.device, arithmetic: Arithmetic = "fp32", kind: str = "IMPALA", **changes: Any) -> Data:
    reduction = {"loss_reduction": "Mean"} if kind == "IMPALA" else {}
    return _ready(image_parameters(kind, **{**FALLING, **reduction, **changes}), device, arithmetic)


def _ready(params: Any, device: torch.device, arithmetic: Arithmetic) -> Data:
    learner = _on_a_device(updater(params, IMAGES, plan=Compute(arithmetic, channels_last=True), device=device))
    return learner, [on(device, batch) for batch in batches_of(params, 6, IMAGES)]


def _on_a_device(learner: Any) -> Any:
    if learner.device.type == "cpu":
        as_on_a_device(learner)
    return learner


def capturer(device: torch.device) -> Capturer:
    return cuda_graph if device.type == "cuda" else ByCalling()


def replaying(learner: Any, data: list[Any]) -> Any:
    learner.captured, _ = captured_and_checked(learner, data[0], capturer(learner.device))
    return learner


def learn(learner: AnyUpdater, data: list[Any], first_step: int = 0) -> list[torch.Tensor]:
    """What the updates from some batches give; shuffles are the same each time."""
    torch.manual_seed(2)
    return [
        torch.cat([priorities, figures]).clone()
        for index, batch in enumerate(data)
        for priorities, figures in learner.updates_from(batch, first_step + 10 * index)
    ]


def assert_same(one: AnyUpdater, other: AnyUpdater, **tolerance: float) -> None:
    first, second = (
        {name: tensor for name, tensor in state.capture(each).items() if tensor.is_floating_point()}
        for each in (one, other)
    )
    torch.testing.assert_close(second, first, **tolerance)


CLOSE = {"rtol": 1e-3, "atol": 1e-5}


def with_loss(learner: AnyUpdater, change: Callable[[LossResult], torch.Tensor]) -> None:
    own = learner._loss
    learner._loss = lambda *given: (result := own(*given))._replace(value=change(result))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("make", "changes"), [*((transitions, each) for each in TRANSITIONS), *((unrolls, each) for each in UNROLLS)]
)
def test_replayed_updates_learn_what_started_ones_do(
    make: Callable[..., Data],
    changes: dict[str, Any],
    optimizer: str,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Target networks, averages, the falling learning rate and its adaptation included."""
    monkeypatch.setattr(
        "rljob.learner.optim.on_device.DEPTH", 0
    )  # a rate follows what has arrived: here always all of it
    settings = {"optimizer": optimizer, "optimizer_epsilon": 1e-3, **changes}
    (plain, data), (graphed, _) = (make(device, **settings) for _ in range(2))
    replaying(graphed, data)
    torch.testing.assert_close(learn(graphed, data), learn(plain, data), **CLOSE)
    assert graphed.updates == plain.updates > 0
    assert_same(plain, graphed, **CLOSE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("arithmetic", ["bf16", "fp16"])
@pytest.mark.parametrize("make", [transitions, unrolls])
def test_weights_in_16_bits_and_the_scale_of_a_loss_follow(
    make: Callable[..., Data], arithmetic: Arithmetic, device: torch.device
) -> None:
    settings = {"layer_norm": True, "optimizer": "Adam", "optimizer_epsilon": 1e-3}
    (plain, data), (graphed, _) = (make(device, arithmetic, **settings) for _ in range(2))
    first = {name: tensor.clone() for name, tensor in state.capture(plain).items()}
    for each in (plain, graphed) if arithmetic == "fp16" else ():
        each.loss_scale._growth_updates = 2  # a number of the host's, which a graph keeps
    replaying(graphed, data)
    learn(plain, data), learn(graphed, data)
    # One that had computed with the first weights all along would be as far away as it has moved (0.6 to 1.3 of that way; these
    # are 0.001 apart). Single elements tell less: a weight rounded to the other side in 16 bits changes some gradients by 10 %.
    reached = state.capture(graphed)
    for name, tensor in state.capture(plain).items():
        if tensor.is_floating_point():
            moved = (tensor - first.get(name, torch.zeros_like(tensor))).norm()
            assert (reached[name] - tensor).norm() <= 0.1 * moved + 1e-6, name
    if arithmetic == "fp16":
        assert torch.equal(graphed.loss_scale.factor, plain.loss_scale.factor)


def losses(learner: AnyUpdater, data: list[Any], first_step: int = 0) -> list[float]:
    return [float(each[-len(learner.figures)]) for each in learn(learner, data, first_step)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [transitions, unrolls])
def test_a_replayed_loss_finds_the_steps_of_its_update(make: Callable[..., Data], device: torch.device) -> None:
    learner, data = make(device)
    own = learner._loss

    def steps_as_the_loss(*given: Any) -> LossResult:
        result = own(*given)
        return result._replace(value=result.value - result.value.detach() + given[-1].steps)

    learner._loss = steps_as_the_loss
    assert losses(replaying(learner, data), data[:3], 100) == [100.0, 110.0, 120.0]


@pytest.mark.parametrize("device", DEVICES)
def test_the_device_itself_keeps_weights_in_16_bits_up_to_date(device: torch.device) -> None:
    """A replay changes weights, and the host, which counts its own changes, does not see it."""
    learner, data = transitions(device, "bf16", **TRANSITIONS[1])
    learner._refresh_copies()
    learner.compute(data[0]._replace(steps=torch.zeros((), device=device)), 1e-2)
    for copied, network in ((learner._computed, learner.online), (learner._computed_target, learner.target)):
        copies = list(copied.module.parameters())
        torch.testing.assert_close(
            copies,
            [master.to(each.dtype) for each, master in zip(copies, network.parameters(), strict=True)],
            rtol=0,
            atol=0,
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("optimizer", "arithmetic"), [*((each, "fp32") for each in OPTIMIZERS), ("Adam", "fp16")])
def test_a_checkpoint_goes_where_a_replay_looks_for_it(
    tmp_path: Path, optimizer: str, arithmetic: Arithmetic, device: torch.device
) -> None:
    changes = {"optimizer": optimizer, "optimizer_epsilon": 1e-3, "evaluation_weights_decay": 0.9}
    plain, data = transitions(device, arithmetic, **changes)
    learn(plain, data[:3])
    path, _ = checkpoint.write(tmp_path, "step-3", state.capture(plain), {})
    resumed = replaying(transitions(device, arithmetic, **changes)[0], data)
    places = {name: tensor.data_ptr() for name, tensor in tensors_of(resumed).items()}
    learn(resumed, data[4:])  # something else is there before
    state.restore(resumed, checkpoint.read(path), plain.updates)
    learn(plain, data[3:], 30), learn(resumed, data[3:], 30)
    assert {name: tensor.data_ptr() for name, tensor in tensors_of(resumed).items()} == places
    assert resumed.updates == plain.updates
    assert_same(plain, resumed, **(CLOSE if arithmetic == "fp32" else {"rtol": 0.05, "atol": 2e-4}))


@pytest.mark.parametrize("kind", ["ApeXDQN", "IMPALA", "PPO"])
def test_what_arrives_is_replayed_by_what_was_captured_from_the_learner_s_example(kind: str) -> None:
    """A graph is made from ``example_batch`` before there is experience; batches that arrive know no count of steps yet."""
    learner, arriving = transitions(CPU) if kind == "ApeXDQN" else unrolls(CPU, kind=kind)
    assert all(batch.steps is None for batch in arriving)
    learn(replaying(learner, [example_batch(algorithm(kind), learner.params, IMAGES, learner.online, CPU)]), arriving)
    assert learner.replayed


def test_minibatches_of_another_shape_are_learned_from_without_it() -> None:
    (plain, data), (graphed, _) = transitions(CPU), transitions(CPU)
    capture = ByCalling()
    graphed.captured, _ = captured_and_checked(graphed, data[0], capture)  # type: ignore[assignment]
    before = capture.replays
    shorter = TransitionBatch(*(None if tensor is None else tensor[:5] for tensor in data[1]))
    mixed = [data[0], shorter, data[2]]
    learn(plain, mixed), learn(graphed, mixed)
    assert capture.replays == before + 2
    assert_same(plain, graphed, **CLOSE)


@needs_cuda
def test_on_a_gpu_a_loss_may_draw_there() -> None:
    learner, data = transitions(CUDA)
    with_loss(learner, lambda result: result.value * (0.5 + torch.rand((), device="cuda")))
    assert len(set(losses(replaying(learner, data), [data[0]] * 3))) == 3, "the same number was drawn again"


@needs_cuda
@pytest.mark.parametrize("make", [transitions, unrolls])
def test_on_a_gpu_nobody_waits_for_a_replay(make: Callable[..., Data]) -> None:
    learner, data = make(CUDA)
    replaying(learner, data)
    list(learner.updates_from(data[0], 0))
    with waiting_is_an_error():
        for batch in data[1:]:
            list(learner.updates_from(batch, 0))


@needs_cuda
def test_on_a_gpu_a_compiled_update_is_captured_too() -> None:
    (compiled, data), (plain, _) = transitions(CUDA), transitions(CUDA)
    compiled.compile()
    replaying(compiled, data)
    learn(compiled, data), learn(plain, data)
    assert compiled.recompiles == 0
    assert_same(plain, compiled, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("kind", ["ApeXDQN", "IMPALA"])
def test_observations_of_several_columns_are_replayed_too(kind: str) -> None:
    env_params = EnvironmentParameters(kwargs={"observation": "nested", "action": "tuple", "masked": True})
    spec = describe_environment("tests.support.every_space:EverySpace", env_params)
    method = algorithm(kind)
    values: dict[str, Any] = {"ApeXDQN": {"batch_size": 8}, "IMPALA": {"batch_size": 4, "unroll_length": 3}}
    params = method.parameters.model_validate({"hidden_units": 8, **values[kind]})

    def made_anew() -> AnyUpdater:
        torch.manual_seed(0)
        return _on_a_device(make_updater(method, params, method.build(spec, params, env_params), CPU))

    batch = method.example(spec, params, made_anew().online, CPU)
    again = tree_map_only(torch.Tensor, torch.clone, batch)
    again.observation["vector"].mul_(0.5)
    learner, other = replaying(made_anew(), [batch]), made_anew()
    learn(learner, [batch, again]), learn(other, [batch, again])
    assert_same(learner, other, **CLOSE)


@needs_cuda
def test_what_a_gpu_draws_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    learner, _ = transitions(CUDA)
    path, _ = checkpoint.write(tmp_path, "step-0", state.capture(learner), {})
    drawn = torch.randn(3, device=CUDA)
    state.restore(learner, checkpoint.read(path), 0)
    assert torch.equal(torch.randn(3, device=CUDA), drawn)
