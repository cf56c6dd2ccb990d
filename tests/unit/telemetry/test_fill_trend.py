"""The memory alarm: it rings for a run that slows as its replay fills, and for no other."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob.telemetry.fill_trend import fill_trend


def run(rate: Callable[[float], float], records: int = 100, until: float = 1.0) -> list[dict[str, object]]:
    noise = random.Random(3)
    return [
        {
            "state": "Training",
            "replay/fill": until * i / records,
            "steps_per_second": rate(until * i / records) * noise.gauss(1, 0.05),
        }
        for i in range(records)
    ]


def test_a_leaking_buffer_is_found() -> None:
    found = fill_trend(run(lambda fill: 1000 * (1 - 0.5 * fill)))
    assert found is not None
    assert found.loss == pytest.approx(0.5, abs=0.08)
    assert "replay.capacity" in found.sentence


@pytest.mark.parametrize(
    ("rate", "records", "until"),
    [
        (lambda fill: 1000.0, 100, 1.0),
        (lambda fill: 1000 * (1 + fill), 100, 1.0),
        (lambda fill: 500.0 if 0.4 < fill < 0.5 else 1000.0, 100, 1.0),
        (lambda fill: 1000.0 if fill < 0.5 else 600.0, 100, 1.0),
        (lambda fill: 1000 * (1 - 0.5 * fill), 100, 0.1),
        (lambda fill: 1000 * (1 - 0.5 * fill), 6, 1.0),
    ],
    ids=["steady", "faster", "a dip", "one step", "hardly filled", "few records"],
)
def test_no_false_alarm(rate: Callable[[float], float], records: int, until: float) -> None:
    assert fill_trend(run(rate, records, until)) is None


@given(st.lists(st.fixed_dictionaries({"replay/fill": st.floats(), "steps_per_second": st.floats() | st.none()})))
def test_never_fails(points: list[dict[str, object]]) -> None:
    found = fill_trend(points)
    assert found is None or found.sentence.endswith(".")
