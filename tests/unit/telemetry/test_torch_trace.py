"""The trace of torch's profiler: none until it is asked for, some turns then, and pages that say how it goes."""

from __future__ import annotations

import gzip
import json

import pytest
import torch
from rljob.telemetry import torch_trace
from rljob.telemetry.torch_trace import TorchTrace

from tests.support.waiting import eventually


def turn(trace: TorchTrace) -> None:
    trace()
    torch.ones(4, 4) @ torch.ones(4, 4)


def status(trace: TorchTrace) -> set[int]:
    return {page()[0] for page in trace.pages.values()}


def test_so_many_turns_are_recorded_and_none_before_or_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_trace, "TURNS", 5)
    trace = TorchTrace()
    for _ in range(3):
        turn(trace)
    assert status(trace) == {404}
    for _ in range(2):  # the second time as well
        trace.ask({})
        trace.ask({})
        assert status(trace) == {202}
        eventually(lambda: turn(trace) or status(trace) == {200}, "it is written", 60)
        events = json.loads(gzip.decompress(trace.pages["/profile/torch"]()[2]))["traceEvents"]
        assert [event.get("name") for event in events].count("aten::mm") == 5
        assert b"aten::mm" in trace.pages["/profile/operations"]()[2]


def test_its_time_is_bounded_too() -> None:
    now = 0.0
    trace = TorchTrace(lambda: now)

    def second() -> bool:
        nonlocal now
        turn(trace)
        now += 1.0
        return status(trace) == {200}

    trace.ask({})
    eventually(second, "it is written", 60)
    events = json.loads(gzip.decompress(trace.pages["/profile/torch"]()[2]))["traceEvents"]
    assert [event.get("name") for event in events].count("aten::mm") == 3
