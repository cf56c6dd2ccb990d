"""The profilers on threads that do what is known: what they see, that they cost nothing, and when they end."""

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from rljob.telemetry import profiler, timeline
from rljob.telemetry.clock import StageClock
from rljob.telemetry.profiler import Profiler
from rljob.telemetry.server import TelemetryServer
from rljob_operator.verbs.profile import MemberProfile

from tests.support.waiting import eventually, repeating


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Profiler]:
    monkeypatch.setattr(profiler, "LEASE_SECONDS", 0.5)
    yield Profiler()
    eventually(lambda: not profiling(), "the sampling ends by itself", 10)


def profiling() -> bool:
    return any(thread.name == "profile" for thread in threading.enumerate())


def read(sampler: Profiler, parts: int) -> list[dict[str, Any]]:
    """So many parts."""
    found: list[dict[str, Any]] = []
    since = sampler.read()["next"]

    def more() -> bool:
        nonlocal since
        answer = json.loads(json.dumps(sampler.read(since)))
        found.extend(answer["parts"])
        since = answer["next"]
        return len(found) >= parts

    eventually(more, "parts", 30, lambda: time.sleep(0.1))
    return found


def shares(parts: list[dict[str, Any]], thread: str) -> dict[str, float]:
    """Share of a thread's samples that are in each function, or below it."""
    member = MemberProfile("learner")
    for part in parts:
        member.add(part)
    seen = Counter[str]()
    for stack, count in member.stacks[thread].items():
        seen.update(dict.fromkeys((frame.partition(" ")[0] for frame in stack), count))
    return {name: count / member.stacks[thread].total() for name, count in seen.items()}


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def nap(seconds: float) -> None:
    time.sleep(seconds)


def test_time_in_python_is_seen_beside_time_without_its_lock(
    sampler: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Python's usual switch interval nearly all samples would be of ``nap``, in which the interpreter's lock is free."""
    began, cpu = time.perf_counter(), 0.0

    def body() -> None:
        nonlocal cpu
        spin(0.003)
        nap(0.003)
        cpu = time.thread_time()

    with repeating(body, "worker"):
        parts = read(sampler, 3)
        seen = shares(parts, "worker")
        eventually(lambda: not profiling(), "the sampling ends", 20)
        monkeypatch.setattr(profiler, "SWITCH_SECONDS", sys.getswitchinterval())
        usual = shares(read(sampler, 3), "worker")
    assert seen["spin"] > 1.5 * usual.get("spin", 0.0), "of samples as many as there were turns of both, more or less"
    assert seen["spin"] + seen["nap"] == pytest.approx(1, abs=0.1)
    ran = [about[1] for part in parts for about in part["threads"].values() if about[0] == "worker"]
    seconds = sum((part["ended_ns"] - part["began_ns"]) * 1e-9 for part in parts)
    of_a_core = cpu / (time.perf_counter() - began)
    assert sum(ran) / seconds == pytest.approx(of_a_core, rel=0.7), (
        "as the thread itself counts, on a machine that others use"
    )


def test_nothing_of_it_is_left_once_nobody_reads(sampler: Profiler) -> None:
    usual = sys.getswitchinterval()
    assert timeline.recording is None
    read(sampler, 1)
    assert (sys.getswitchinterval(), timeline.recording is None) == (pytest.approx(profiler.SWITCH_SECONDS), False)
    eventually(lambda: not profiling(), "the sampling ends", 10)
    assert (timeline.recording, sys.getswitchinterval()) == (None, usual)
    assert read(sampler, 1), "and it may begin again"


def test_two_readers_read_the_same(sampler: Profiler) -> None:
    first = sampler.read()["next"]
    read(sampler, 2)
    assert sampler.read(first)["parts"][:2] == sampler.read(first)["parts"][:2]
    assert sum(thread.name == "profile" for thread in threading.enumerate()) == 1


def test_stages_and_segments_are_on_the_time_line(sampler: Profiler) -> None:
    clock, still = StageClock(("infer", "env")), StageClock(("play",))
    still.enter("play")

    def body() -> None:
        clock.enter("infer")
        nap(0.002)
        if (recording := timeline.recording) is not None:
            recording.flow("s", "actor-0 a 3 17")
        nap(0.002)
        clock.enter("env")
        nap(0.01)

    with repeating(body, "loop"):
        part = read(sampler, 3)[1]
    (number,) = [number for number, about in part["threads"].items() if about[0] == "loop"]
    spans = [span for span in part["spans"] if span[0] == int(number)]
    assert {name for _, name, _, _ in spans} == {"infer", "env"}
    assert all(before[3] <= after[2] for before, after in pairwise(spans)), "none overlap"
    flows = [flow for flow in part["flows"] if flow[0] == int(number)]
    assert {tuple(flow[1:3]) for flow in flows} == {("s", "actor-0 a 3 17")}
    inside = [any(b <= flow[3] <= e and name == "infer" for _, name, b, e in spans) for flow in flows]
    assert inside.count(False) <= 1, "each is in its stage; that of the last has not ended"
    assert "play" in [stage for stage, _ in part["running"]], "a stage that lasts is not forgotten"


def test_a_loop_that_is_too_fast_is_recorded_in_part() -> None:
    recording = timeline.Recording()
    for number in range(timeline.MOST):
        recording.span("env", number, number + 1)
    recording.flow("s", "one that would point nowhere")
    recording.span("the stage of a flow before that", 0, 1)
    assert (len(recording.spans), recording.left_out, recording.flows) == (timeline.MOST + 1, 0, [])
    for number in range(timeline.MOST):
        recording.span("env", number, number + 1)
    assert len(recording.spans) + recording.left_out == 2 * timeline.MOST + 1
    assert recording.left_out > timeline.MOST / 2


def test_many_threads_are_looked_at_less_often(sampler: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "MOST_SHARE", 1e-4)
    assert read(sampler, 2)[1]["samples"] < 80


def test_over_http_and_by_number() -> None:
    with TelemetryServer("learner", 0, lambda: {}, lambda: True) as server:

        def page(path: str) -> Any:
            with urllib.request.urlopen(f"{server.url}/{path}", timeout=30) as answer:
                return json.load(answer)

        begun = page("profile")
        assert begun["parts"] == []
        assert eventually(lambda: page(f"profile/{begun['next']}")["parts"], "a part", 30)[0]["samples"] > 0
        for wrong in ("profile/x", "profile/-1", "profiles", "profile/torch"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                page(wrong)
