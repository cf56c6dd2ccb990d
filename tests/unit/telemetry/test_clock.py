"""The stage clock: its totals against a plain reference, its reader against a busy writer, and its price."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
import rljob.telemetry.clock as clock_module
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.telemetry.clock import StageClock

STAGES = ("env", "infer", "send")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*STAGES, None]), st.integers(0, 10**9)), max_size=60))
def test_totals_equal_a_plain_sum(steps: list[tuple[str | None, int]]) -> None:
    now = 0
    expected = dict.fromkeys(STAGES, 0)
    running: str | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_module, "perf_counter_ns", lambda: now)
        clock = StageClock(STAGES)
        for stage, passes in steps:
            if stage is None:
                clock.stop()
            else:
                clock.enter(stage)
            running = stage
            now += passes
            if running is not None:
                expected[running] += passes
        assert clock.seconds() == {name: pytest.approx(total * 1e-9) for name, total in expected.items()}
        whole = sum(expected.values())
        assert sum(clock.fractions().values()) == pytest.approx(1.0 if whole else 0.0)


def test_context_manager_restores_the_stage_around_it() -> None:
    clock = StageClock(STAGES)
    with clock.stage("env"):
        assert clock.current == "env"
        with contextlib.suppress(RuntimeError), clock.stage("infer"):
            assert clock.current == "infer"
            raise RuntimeError
        assert clock.current == "env"
    assert clock.current is None


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="'envs'; this clock has: env, infer, send"):
        StageClock(STAGES).enter("envs")
    for bad in ((), ("env", "env")):
        with pytest.raises(ValueError, match="one or more different names"):
            StageClock(bad)


def test_a_reader_on_another_thread_never_sees_time_go_backwards_or_appear() -> None:
    clock = StageClock(STAGES)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for stage in STAGES:
                clock.enter(stage)

    begun = time.perf_counter()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        before = dict.fromkeys(STAGES, 0.0)
        for _ in range(2_000):
            now = clock.seconds()
            elapsed = time.perf_counter() - begun
            assert all(now[stage] >= before[stage] for stage in STAGES), "a counter must not go back"
            # each stage may hold the length of one interruption of the worker too much, and that must not build up
            assert sum(now.values()) <= elapsed + 0.25
            before = now
    finally:
        stop.set()
        worker.join()


def test_an_owner_interrupted_in_the_middle_of_a_change_does_not_turn_the_counter_back() -> None:
    times = iter([0, 10, 25, 30])
    readings: list[float] = []
    clock = StageClock(STAGES)

    def now() -> int:
        value = next(times)
        if value == 10 and not readings:  # the owner has read 10, is interrupted, and a reader comes in at 25
            readings.append(clock.seconds()["env"])
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_module, "perf_counter_ns", now)
        clock.enter("env")
        clock.enter("infer")
        assert readings == [pytest.approx(25e-9)]
        assert clock.seconds() == {"env": pytest.approx(25e-9), "infer": pytest.approx(20e-9), "send": 0.0}


def test_costs_less_than_one_percent_at_ten_thousand_changes_a_second() -> None:
    clock = StageClock(STAGES)
    best = float("inf")
    for _ in range(50):  # short turns: the fastest is the one that no other program disturbed
        begun = time.perf_counter()
        for _ in range(300):
            clock.enter("env")
            clock.enter("infer")
        best = min(best, (time.perf_counter() - begun) / 600)
    assert best * 10_000 < 0.01, f"{best * 1e9:.0f} ns a change of stage"
