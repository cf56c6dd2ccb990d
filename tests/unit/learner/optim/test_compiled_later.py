"""An update that is compiled while others are made: when, with what effect, and when not."""

import itertools
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.registry import algorithm
from rljob.errors import UsageError
from rljob.learner.optim import compiled_later
from rljob.learner.optim.compiled_later import AFTER_SECONDS, CompiledLater, check_compiler
from rljob.learner.optim.updater import AnyUpdater

from tests.unit.learner.learner_builders import CPU, SPEC, parameters, unroll_batches, unroll_parameters, updater
from tests.unit.learner.optim.test_unroll_updater import assert_learned_alike, learned

LONGEST_SECONDS = 120.0

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "params",
    [
        parameters(hidden_units=8),
        unroll_parameters(unroll_length=3, recurrent="LSTM", lstm_units=3),
        unroll_parameters("PPO", unroll_length=3, epochs=2, minibatches=2),
    ],
)
def test_compiled_updates_equal_eager_ones_and_compile_once(params: Any) -> None:
    eager, compiled = updater(params), updater(params)
    compiled.compile()
    torch.testing.assert_close(learned(compiled, params, 4), learned(eager, params, 4), rtol=1e-4, atol=1e-5)
    assert_learned_alike(compiled, eager)
    assert compiled.recompiles == 0


class Story:
    """A learner that makes an update a turn, and one that makes the same without a compiler."""

    def __init__(self) -> None:
        self.params = unroll_parameters(optimizer_epsilon=1e-5)
        self.seconds = 0.0
        self.mine, self.plain = updater(self.params), updater(self.params)
        self._batches = itertools.cycle(unroll_batches(self.params, 3))
        self.later = CompiledLater(self.mine, self._example, lambda: self.seconds)

    def _example(self) -> Any:
        return algorithm("IMPALA").example_batch(SPEC, self.params, CPU)

    def turns(self, count: int = 1) -> None:
        for batch in itertools.islice(self._batches, count):
            for each in (self.mine, self.plain):
                list(each.updates_from(batch, 0))
            self.later()

    def turns_until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + LONGEST_SECONDS
        while not holds():
            assert time.monotonic() < end
            self.turns()

    @property
    def over(self) -> bool:
        return self.later._turns.gi_frame is None  # type: ignore[attr-defined]


def weights(of: AnyUpdater) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in of.online.parameters()])


def test_it_is_taken_where_it_is_faster_and_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which is faster is not asked of a machine that runs other tests.
    monkeypatch.setattr(compiled_later, "SHORT_SECONDS", LONGEST_SECONDS)
    monkeypatch.setattr(compiled_later, "fastest", lambda runs, *_: (list(runs)[1], {}))
    story = Story()
    story.turns(5)
    story.seconds = AFTER_SECONDS - 1.0
    story.turns()
    assert not story.over
    story.seconds = 1.1 * AFTER_SECONDS
    story.turns_until(lambda: story.over)
    assert story.mine.compiled
    story.turns(5)
    assert story.mine.recompiles == 0
    torch.testing.assert_close(weights(story.mine), weights(story.plain), rtol=1e-4, atol=1e-4)


def test_before_the_first_update_no_time_counts() -> None:
    story = Story()
    story.later()
    story.seconds = 10 * AFTER_SECONDS
    story.later()
    story.turns(2)
    assert not story.over


def refused(updater: Any) -> None:
    def loss(*_: Any) -> Any:
        raise RuntimeError("no such header")

    updater._loss = loss


def another_loss(updater: Any) -> None:
    loss = updater._loss
    updater._loss = lambda *given: (found := loss(*given))._replace(value=found.value * 1.1)


def no_compiler(updater: Any) -> None:
    pytest.fail("it is compiled")


@pytest.mark.parametrize(
    ("short_seconds", "compiler", "said"),
    [
        (0.0, no_compiler, ""),
        (LONGEST_SECONDS, refused, "no such header"),
        (LONGEST_SECONDS, another_loss, "these differ"),
    ],
    ids=["a long update", "one that can't be compiled", "one that learns something else"],
)
def test_an_update_stays_as_it_was(
    short_seconds: float,
    compiler: Callable[[Any], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    monkeypatch.setattr(compiled_later, "SHORT_SECONDS", short_seconds)
    monkeypatch.setattr(type(story.mine), "compile", compiler)
    monkeypatch.setattr(compiled_later, "fastest", lambda *_: pytest.fail("it may be taken"))
    story.turns(2)
    story.seconds = 1.1 * AFTER_SECONDS
    story.turns_until(lambda: story.over)
    torch.testing.assert_close(weights(story.mine), weights(story.plain), rtol=0, atol=0)
    assert not story.mine.compiled
    assert said in caplog.text


@pytest.mark.parametrize("named", ["g++", "/opt/other/c++"])
def test_a_compiler_that_is_missing_is_named_where_one_is_asked_for(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_compiler(CPU)
    if named != "g++":
        monkeypatch.setenv("CXX", named)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=re.escape(f"the C++ compiler {named}, which is not found")):
        check_compiler(CPU)
    check_compiler(torch.device("cuda"))
