"""A graph is used only where it does what an update does, and leaves no trace of having been tried.

On a CPU a stand-in replays by calling (``ByCalling``); what is wrong with a graph is made here, and must be found.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rljob.algorithms.registry import algorithm
from rljob.learner import state
from rljob.learner.optim import update_trial
from rljob.learner.optim.on_device import Batch, CapturedUpdate, Learned
from rljob.learner.optim.update_trial import (
    CaptureProblem,
    capture_if_it_learns_the_same,
    captured_and_checked,
    differences,
    first_minibatch,
    unlike,
)
from rljob.learner.plan import example_batch

from tests.support.devices import DEVICES, ByCalling, needs_cuda
from tests.unit.learner.learner_builders import CPU, IMAGES, OPTIMIZERS, assert_equal
from tests.unit.learner.optim.test_captured_update import (
    CLOSE,
    CUDA,
    UNROLLS,
    Data,
    assert_same,
    capturer,
    learn,
    transitions,
    unrolls,
    with_loss,
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [transitions, unrolls])
def test_trying_leaves_no_trace(make: Callable[..., Data], device: torch.device) -> None:
    (tried, data), (plain, _) = make(device, evaluation_weights_decay=0.9), make(device, evaluation_weights_decay=0.9)
    learn(tried, data[:2]), learn(plain, data[:2])
    kept = {name: tensor.clone() for name, tensor in state.capture(tried).items()}
    rate = tried.learning_rate.scale
    captured_and_checked(tried, data[0], capturer(device))
    assert_equal(state.capture(tried), kept)  # random numbers included
    assert (tried.updates, tried.learning_rate.scale, tried.captured) == (plain.updates, rate, None)
    learn(tried, data[2:]), learn(plain, data[2:])
    assert_same(plain, tried, rtol=0.0 if device.type == "cpu" else 1e-3, atol=0.0 if device.type == "cpu" else 1e-5)


def told(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [record.getMessage() for record in caplog.records if record.name == update_trial.__name__]
    return line


class OldMinibatch(CapturedUpdate[Batch]):
    """A graph that goes on reading the memory of the minibatch that it was recorded with."""

    def __call__(self, minibatch: Any, rate: float) -> Learned:
        return super().__call__(self.__dict__.setdefault("first", minibatch), rate)


class OldColumn(CapturedUpdate[Batch]):
    """One that does so for a single column of it."""

    def __call__(self, minibatch: Any, rate: float) -> Learned:
        first = self.__dict__.setdefault("first", minibatch)
        column = "discount" if getattr(minibatch, "value_target", None) is None else "value_target"
        return super().__call__(minibatch._replace(**{column: getattr(first, column)}), rate)


class OldRate(CapturedUpdate[Batch]):
    """One in which the learning rate is a number of the host's."""

    def __call__(self, minibatch: Any, rate: float) -> Learned:
        return super().__call__(minibatch, self.__dict__.setdefault("first", rate))


class OnlyOnce(CapturedUpdate[Batch]):
    """One whose second replay does nothing."""

    def __call__(self, minibatch: Any, rate: float) -> Learned:
        if self.__dict__.setdefault("calls", 0) == 1:
            self._replay = lambda: None
        self.__dict__["calls"] += 1
        return super().__call__(minibatch, rate)


def of_a_start(make: Callable[..., Data], changes: dict[str, Any]) -> tuple[Any, Any]:
    """A learner, and the batch that it starts with: before anything was played, rewards and actions are all the same."""
    learner, _ = make(CPU, **changes)
    method = algorithm("ApeXDQN" if make is transitions else changes.get("kind", "IMPALA"))
    return learner, example_batch(method, learner.params, IMAGES, learner.online, CPU)


EACH = [
    *((transitions, {"optimizer": each}) for each in OPTIMIZERS),
    *((unrolls, {"optimizer": each}) for each in OPTIMIZERS),
    *((unrolls, each) for each in UNROLLS),
]


@pytest.mark.parametrize("wrong", [OldMinibatch, OldColumn, OldRate, OnlyOnce])
@pytest.mark.parametrize(("make", "changes"), EACH)
def test_a_graph_that_learns_something_else_is_not_used(
    make: Callable[..., Data],
    changes: dict[str, Any],
    wrong: type[CapturedUpdate[Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner, batch = of_a_start(make, changes)
    before = {name: tensor.clone() for name, tensor in state.capture(learner).items()}
    monkeypatch.setattr(update_trial, "CapturedUpdate", wrong)
    capture_if_it_learns_the_same(learner, batch, ByCalling())
    assert learner.captured is None
    assert "started one by one, without a CUDA graph: replayed, updates differ in what became of: " in told(caplog)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    after = state.capture(learner)
    assert_equal({name: after[name] for name in before}, before)


@pytest.mark.parametrize(("make", "changes"), EACH)
def test_a_graph_that_learns_the_same_is_used(make: Callable[..., Data], changes: dict[str, Any]) -> None:
    (learner, batch), (plain, _) = of_a_start(make, changes), of_a_start(make, changes)
    assert captured_and_checked(learner, batch, ByCalling())[1] < 1e-4
    capture_if_it_learns_the_same(learner, batch, ByCalling())
    assert learner.captured is not None
    learn(learner, [batch]), learn(plain, [batch])
    assert_same(plain, learner, **CLOSE)


def test_a_follower_that_stands_still_is_noticed() -> None:
    learner, data = transitions(CPU, evaluation_weights_decay=0.9)
    follow, capture = learner._follow, ByCalling()

    def forgets(work: Callable[[], Learned]) -> tuple[Learned, Callable[[], object]]:
        given, replay = capture(work)

        def without() -> None:
            learner._follow = lambda: None  # type: ignore[method-assign]
            replay()
            learner._follow = follow  # type: ignore[method-assign]

        return given, without

    with pytest.raises(CaptureProblem, match="became of: evaluation"):
        captured_and_checked(learner, data[0], forgets)


def test_what_can_not_be_captured_is_said_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    (learner, data), (plain, _) = transitions(CPU), transitions(CPU)

    def refuses(work: Callable[[], Learned]) -> tuple[Learned, Callable[[], object]]:
        work()
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nand a long explanation")
        finally:
            raise RuntimeError(
                "operation failed due to a previous error during capture"
            )  # as the end of a capture does

    capture_if_it_learns_the_same(learner, data[0], refuses)
    assert told(caplog) == (
        "the kernels of an update are started one by one, without a CUDA graph: it can't be captured (operation not permitted "
        "when stream is capturing)"
    )
    assert learner.captured is None
    learn(learner, data), learn(plain, data)
    assert_same(plain, learner, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda result: result.value * (0.5 + torch.rand(())), "draws random numbers on the host"),
        (lambda result: result.value * float("nan"), "moved no weight"),  # which proves nothing
    ],
)
def test_a_loss_that_draws_on_the_host_or_moves_nothing_is_not_captured(change: Any, said: str) -> None:
    learner, data = transitions(CPU)
    with_loss(learner, change)
    with pytest.raises(CaptureProblem, match=said):
        captured_and_checked(learner, data[0], ByCalling())


def test_minibatches_on_trial_differ_in_every_number_but_the_actions() -> None:
    (_, transition_data), (learner, unroll_data) = transitions(CPU), unrolls(CPU, kind="PPO")
    for minibatch in (transition_data[0], unroll_data[0], first_minibatch(learner, unroll_data[0])):
        other = unlike(minibatch)
        for name, before, after in zip(minibatch._fields, minibatch, other, strict=True):
            if name not in ("action", "update") and before is not None:  # the update numbers itself
                assert (before.shape, before.dtype) == (after.shape, after.dtype)
                assert (before != after).all(), name
        assert torch.equal(minibatch.action, other.action)


def test_outcomes_are_compared_as_shares_of_what_was_done() -> None:
    one = {"online": torch.tensor([3.0, 4.0]), "loss": torch.tensor([float("inf")]), "target": torch.zeros(2)}
    other = {"online": torch.tensor([3.0, 4.5]), "loss": torch.tensor([float("inf")]), "target": torch.zeros(2)}
    assert differences(one, other) == {"online": pytest.approx(0.1), "loss": 0.0, "target": 0.0}
    for number in (1.0, float("nan")):
        assert differences(one, {**other, "loss": torch.tensor([number])})["loss"] >= 1.0


@needs_cuda
def test_on_a_gpu_a_loss_that_waits_is_not_captured_and_goes_on() -> None:
    (learner, data), (plain, _) = transitions(CUDA), transitions(CUDA)
    for each in (learner, plain):
        with_loss(each, lambda result: result.value * (1.0 if result.value.item() > -1.0 else 2.0))
    stream = torch.cuda.current_stream()
    capture_if_it_learns_the_same(learner, data[0])
    assert learner.captured is None
    assert torch.cuda.current_stream() == stream
    learn(learner, data), learn(plain, data)
    assert_same(plain, learner, **CLOSE)
