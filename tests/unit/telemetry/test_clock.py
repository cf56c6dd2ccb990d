"""The stage clock: its totals against a plain reference, its reader against a busy writer, and its price."""

import contextlib
from collections.abc import Callable
from itertools import pairwise
from unittest import mock

import pytest
import rljob.telemetry.clock as clock_module
from hypothesis import given, strategies as st
from rljob.telemetry import timeline
from rljob.telemetry.clock import StageClock, running_stages

from tests.support.waiting import repeating

STAGES = ("env", "infer", "send")


@given(st.lists(st.tuples(st.sampled_from([*STAGES, None]), st.integers(0, 10**9)), max_size=60))
def test_totals_equal_a_plain_sum(steps: list[tuple[str | None, int]]) -> None:
    now = 0
    expected = dict.fromkeys([*STAGES, None], 0)
    with at(lambda: now):
        clock = StageClock(STAGES)
        for stage, passes in steps:
            if stage is None:
                clock.stop()
            else:
                clock.enter(stage)
            now += passes
            expected[stage] += passes
        del expected[None]
        assert clock.seconds() == {name: pytest.approx(total * 1e-9) for name, total in expected.items()}


def test_context_manager_restores_the_stage_around_it() -> None:
    clock, seen = StageClock(STAGES), []
    with clock.stage("env"):
        seen.append(clock.current)
        with contextlib.suppress(RuntimeError), clock.stage("infer"):
            seen.append(clock.current)
            raise RuntimeError
        seen.append(clock.current)
    assert [*seen, clock.current] == ["env", "infer", "env", None]


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="'envs'; this clock has: env, infer, send"):
        StageClock(STAGES).enter("envs")
    for bad in ((), ("env", "env")):
        with pytest.raises(ValueError, match="one or more different names"):
            StageClock(bad)


def played(clock: StageClock, rounds: int = 1) -> None:
    for _ in range(rounds):
        for stage in STAGES:
            clock.enter(stage)


def at(now: Callable[[], int]) -> contextlib.AbstractContextManager[None]:
    """Clocks read their time from ``now``."""
    return mock.patch.object(clock_module, "perf_counter_ns", now)


def test_a_reader_on_another_thread_never_sees_time_go_backwards_or_appear() -> None:
    clock = StageClock(STAGES)
    before = dict.fromkeys(STAGES, 0.0)
    with repeating(lambda: played(clock)):
        for _ in range(2_000):
            now = clock.seconds()
            assert all(now[stage] >= before[stage] for stage in STAGES), "a counter must not go back"
            before = now


def test_an_owner_interrupted_in_the_middle_of_a_change_does_not_turn_the_counter_back() -> None:
    times = iter([0, 10, 25, 30])
    readings: list[float] = []
    clock = StageClock(STAGES)

    def now() -> int:
        value = next(times)
        if value == 10 and not readings:  # the owner has read 10, is interrupted, and a reader comes in at 25
            readings.append(clock.seconds()["env"])
        return value

    with at(now):
        clock.enter("env")
        clock.enter("infer")
        assert readings == [pytest.approx(25e-9)]
        assert clock.seconds() == {"env": pytest.approx(25e-9), "infer": pytest.approx(20e-9), "send": 0.0}


def test_interruptions_do_not_build_up() -> None:
    """At each of 300 changes of stage the owner has read the time and is interrupted for 15 ns, and a reader comes in."""
    clock, elapsed, reading = StageClock(STAGES), 0, False

    def now() -> int:
        nonlocal elapsed, reading
        if reading:
            return elapsed
        elapsed += 10
        value, reading = elapsed, True
        elapsed += 15
        clock.seconds()
        reading = False
        return value

    with at(now):
        played(clock, 100)
        reading = True
        told = round(sum(clock.seconds().values()) * 1e9)
    assert elapsed - 25 <= told <= elapsed + 15 * len(STAGES)


class Names:
    """Stands in for NVTX."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: list[str] = []

    def range_push(self, msg: str) -> None:
        self.open.append(msg)
        self.seen.append(msg)

    def range_pop(self) -> None:
        self.open.pop()


def test_while_it_is_profiled_each_stage_is_a_span_and_a_range_and_none_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, names = StageClock(STAGES), Names()
    clock.enter("env")
    recording = timeline.Recording()
    recording.ranges = names
    monkeypatch.setattr(timeline, "recording", recording)
    for stage in ("infer", "infer", "send"):
        clock.enter(stage)
        assert names.open == [stage]
    assert ("send", clock.running[1]) in running_stages()
    assert [name for _, name, _, _ in recording.spans] == ["env", "infer", "infer"]
    assert all(before[3] == after[2] for before, after in pairwise(recording.spans))
    monkeypatch.setattr(timeline, "recording", None)
    clock.enter("env")
    clock.stop()
    clock.stop()
    assert (names.open, names.seen, len(recording.spans)) == ([], ["infer", "infer", "send"], 3)
