"""How a learner computes is settled before it trains: on which device, and whether by a compiler.

There is one device here, for which torch has two names.
"""

import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.registry import algorithm
from rljob.api import RLJob
from rljob.errors import UsageError
from rljob.learner import plan, state
from rljob.learner.plan import Plan, check_compiler, compiled_if_it_pays, make_plan

from tests.support.jobs import job_of
from tests.unit.learner.learner_builders import (
    CPU,
    SPEC,
    assert_equal,
    parameters,
    unroll_batches,
    unroll_parameters,
    updater,
)
from tests.unit.learner.optim.test_unroll_updater import assert_learned_alike, learned

THERE = torch.device("cpu:0")
LONGEST_SECONDS = 120.0
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests do not decide whether anything is compiled."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def a_job(kind: str = "ApeXDQN", raw_frames: int | None = None, processes: int = 1, **of_algorithm: object) -> RLJob:
    written = {"type": kind, "hiddenUnits": 16, "batchSize": 16, "precision": "FP32", **of_algorithm}
    spec = {"environment": {"id": "CartPole-v1"}, "algorithm": written, "learner": {"processes": processes}}
    replay = {"replay": {"shards": processes}} if kind == "ApeXDQN" else {}
    return job_of({**spec, **replay, "successPolicy": {"rawFrames": raw_frames} if raw_frames else {}})


def planned(job: RLJob, candidates: tuple[torch.device, ...] = (CPU,), **options: bool) -> Plan:
    return make_plan(job, algorithm(job.spec.algorithm.name), SPEC, candidates, **options)


@pytest.mark.parametrize("kind", ["ApeXDQN", "IMPALA", "PPO"])
@pytest.mark.parametrize(("shortest", "expected"), [(LONGEST_SECONDS, CPU), (0.0, THERE)])
def test_only_an_update_that_is_shorter_than_any_on_a_gpu_stays_on_the_cpu(
    kind: str, shortest: float, expected: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SHORTEST_ON_A_GPU", shortest)
    found = planned(a_job(kind), (THERE, CPU))
    assert found.updater.device == expected
    assert 0.0 < found.measured.seconds["cpu instead of cpu:0"] < LONGEST_SECONDS


def test_trials_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHORTEST_ON_A_GPU", LONGEST_SECONDS)
    alone, tried = planned(a_job()), planned(a_job(precision="Auto"), (THERE, CPU))
    assert (tried.updater.updates, alone.measured.seconds) == (0, {})
    assert_equal(state.capture(tried.updater), state.capture(alone.updater))


def test_an_only_device_and_one_of_several_processes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_seconds", lambda *_: pytest.fail("it was timed"))
    assert planned(a_job(), (THERE,)).updater.device == THERE
    assert planned(a_job(processes=2), (THERE, CPU)).updater.device == THERE


# ------------------------------------------------------------------------------------------------------------- a compiler


@needs_compiler
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


@needs_compiler
@pytest.mark.timeout(240)
def test_a_compiled_update_is_taken_where_it_is_faster_and_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which is faster is not asked of a machine that runs other tests.
    monkeypatch.setattr(plan, "SHORT_SECONDS", LONGEST_SECONDS)
    monkeypatch.setattr(plan, "fastest", lambda runs, *_: (list(runs)[-1], {}))
    job = a_job("IMPALA", optimizerEpsilon=1e-5)
    mine, plain = planned(job, may_compile=True).updater, planned(job).updater
    assert (mine.compiled, plain.compiled) == (True, False)
    for batch in unroll_batches(job.spec.algorithm.parameters, 5):
        for each in (mine, plain):
            list(each.updates_from(batch, 0))
    assert mine.recompiles == 0
    assert_learned_alike(mine, plain)


@pytest.mark.parametrize(
    ("kind", "raw_frames", "updates"),
    [
        ("ApeXDQN", 80_000, 80_000 * 8 / 16),
        ("IMPALA", 80_000, 80_000 / (16 * 20)),
        ("PPO", 80_000, 80_000 / (16 * 20) * 8),
        ("PPO", None, math.inf),
    ],
)
def test_a_job_that_makes_few_updates_waits_for_no_compiler(
    kind: str, raw_frames: int | None, updates: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[float] = []

    def told(given: Any, batch: Any, planned_updates: float) -> Any:
        counted.append(planned_updates)
        return given

    monkeypatch.setattr(plan, "compiled_if_it_pays", told)
    own = {"ApeXDQN": {}, "IMPALA": {"unrollLength": 20}, "PPO": {"unrollLength": 20, "epochs": 4, "minibatches": 2}}
    planned(a_job(kind, raw_frames, **own[kind]), may_compile=True)
    assert counted == [pytest.approx(updates)]


def refused(updater: Any) -> None:
    def loss(*_: Any) -> Any:
        raise RuntimeError("no such header")

    updater._loss = loss


def another_loss(updater: Any) -> None:
    loss = updater._loss
    updater._loss = lambda *given: (found := loss(*given))._replace(value=found.value * 1.1)


def no_compiler(updater: Any) -> None:
    pytest.fail("it is compiled")


@needs_compiler
@pytest.mark.parametrize(
    ("short_seconds", "planned_updates", "compiler", "said"),
    [
        (0.0, math.inf, no_compiler, ""),
        (LONGEST_SECONDS, 1.0, no_compiler, ""),
        (LONGEST_SECONDS, math.inf, refused, "no such header"),
        (LONGEST_SECONDS, math.inf, another_loss, "these differ"),
    ],
    ids=["a long update", "few updates", "one that can't be compiled", "one that learns something else"],
)
def test_an_update_stays_as_it_was(
    short_seconds: float,
    planned_updates: float,
    compiler: Callable[[Any], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    params = unroll_parameters()
    mine, plain = updater(params), updater(params)
    monkeypatch.setattr(plan, "SHORT_SECONDS", short_seconds)
    monkeypatch.setattr(type(mine), "compile", compiler)
    monkeypatch.setattr(plan, "fastest", lambda *_: pytest.fail("it may be taken"))
    example = algorithm("IMPALA").example_batch(SPEC, params, CPU)
    assert compiled_if_it_pays(mine, example, planned_updates) is mine
    torch.testing.assert_close(learned(mine, params, 2), learned(plain, params, 2), rtol=0, atol=0)
    assert not mine.compiled
    assert said in caplog.text


@needs_compiler
def test_a_busy_machine_compiles_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    params = unroll_parameters()
    mine, example = updater(params), algorithm("IMPALA").example_batch(SPEC, params, CPU)
    monkeypatch.setattr(plan, "SHORT_SECONDS", LONGEST_SECONDS)
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0 * (os.cpu_count() or 1), 0.0, 0.0))
    monkeypatch.setattr(type(mine), "compile", no_compiler)
    assert compiled_if_it_pays(mine, example, math.inf) is mine
    assert "this machine is too busy for a compiler" in caplog.text


@needs_compiler
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
    mine = updater(unroll_parameters())
    assert compiled_if_it_pays(mine, None, math.inf) is mine, "nothing is tried without one"
