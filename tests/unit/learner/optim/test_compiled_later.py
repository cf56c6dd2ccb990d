"""An update that is compiled while others are made: when, with what effect, and when not."""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms import algorithm
from rljob.errors import UsageError
from rljob.learner.optim import compiled_later
from rljob.learner.optim.compiled_later import AFTER_SECONDS, CompiledLater, check_compiler
from rljob.learner.optim.updater import AnyUpdater

from tests.unit.learner.learner_builders import SPEC, unroll_batches
from tests.unit.learner.optim.test_unroll_updater import CPU, parameters, updater

LONGEST_SECONDS = 120.0

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")


class Story:
    """A learner that makes an update a turn, and one that makes the same without a compiler."""

    def __init__(self) -> None:
        self.params = parameters("IMPALA")
        self.seconds = 0.0
        self.mine, self.plain = updater(self.params), updater(self.params)
        self._batches = itertools.cycle(unroll_batches(self.params, 3))
        self.later = CompiledLater(self.mine, self._example, lambda: self.seconds)

    def _example(self) -> Any:
        return algorithm("IMPALA").example_batch(SPEC, self.params, CPU)

    def turn(self) -> None:
        batch = next(self._batches)
        for each in (self.mine, self.plain):
            for _ in each.updates_from(batch, 0):
                pass
        self.later()

    def turns_until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + LONGEST_SECONDS
        while not holds():
            assert time.monotonic() < end
            self.turn()

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
    for _ in range(5):
        story.turn()
    story.seconds = AFTER_SECONDS - 1.0
    story.turn()
    assert not story.over
    story.seconds = 1.1 * AFTER_SECONDS
    story.turns_until(lambda: story.over)
    assert story.mine.compiled
    for _ in range(5):
        story.turn()
    assert story.mine.recompiles == 0
    torch.testing.assert_close(weights(story.mine), weights(story.plain), rtol=1e-4, atol=1e-4)


def test_before_the_first_update_no_time_counts() -> None:
    story = Story()
    story.later()
    story.seconds = 10 * AFTER_SECONDS
    story.later()
    story.turn()
    story.turn()
    assert not story.over


def test_a_long_update_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_later, "SHORT_SECONDS", 0.0)
    story = ended(monkeypatch, lambda updater: pytest.fail("it is compiled"))
    assert not story.mine.compiled


def test_one_that_cannot_be_compiled_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled_later, "SHORT_SECONDS", LONGEST_SECONDS)

    def refused(*_: Any) -> Any:
        raise RuntimeError("no such header")

    story = ended(monkeypatch, lambda updater: setattr(updater, "_loss", refused))
    assert not story.mine.compiled
    assert "no such header" in caplog.text


def test_one_that_learns_something_else_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled_later, "SHORT_SECONDS", LONGEST_SECONDS)

    def other(updater: Any) -> None:
        loss = updater._loss
        updater._loss = lambda *given: (found := loss(*given))._replace(value=found.value * 1.1)

    story = ended(monkeypatch, other)
    assert not story.mine.compiled
    assert "these differ" in caplog.text


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


def ended(monkeypatch: pytest.MonkeyPatch, compile: Callable[[Any], None]) -> Story:
    """A story that is over, with something else in the place of the compiler."""
    story = Story()
    monkeypatch.setattr(type(story.mine), "compile", compile)
    monkeypatch.setattr(compiled_later, "fastest", lambda *_: pytest.fail("it may be taken"))
    story.turn()
    story.turn()
    story.seconds = 1.1 * AFTER_SECONDS
    story.turns_until(lambda: story.over)
    torch.testing.assert_close(weights(story.mine), weights(story.plain), rtol=0, atol=0)
    return story
