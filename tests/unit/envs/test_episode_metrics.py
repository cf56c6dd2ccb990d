"""What an environment reports in ``info`` at an episode's end is in the record of the episode, and nothing else is."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import EpisodeRecord, episode_metrics, make_vector_environment
from rljob.envs.episode_metrics import reported, with_metrics

from tests.support.reporting import Many, Odd

REPORTING = "tests.support.reporting"


def episodes(name: str, steps: int, **parameters: object) -> list[Mapping[str, float]]:
    env = make_vector_environment(f"{REPORTING}:{name}", EnvironmentParameters.model_validate(parameters), 2, 0)
    env.reset()
    found = [each.metrics for _ in range(steps) for each in env.step(np.zeros(2, np.int64)).episodes]
    env.close()
    return found


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Reporting", {"backend": "Sync"}),
        ("Reporting", {"backend": "Async"}),
        ("vector", {"backend": "Native"}),
        ("vector", {"backend": "Native", "kwargs": {"mode": "DISABLED"}}),
    ],
    ids=["Sync", "Async", "a vector of SAME_STEP", "one whose rows are reset by mask"],
)
def test_numbers_of_the_last_step_are_those_of_its_episode(name: str, parameters: dict[str, object]) -> None:
    first, second = {"is_success": 0.0, "distance": 2.0}, {"is_success": 1.0, "distance": 2.0}
    assert episodes(name, 9, **parameters) == [first, first, second, second]


def test_a_name_counts_for_the_episode_that_has_it() -> None:
    assert [sorted(each) for each in episodes("Now", 9, backend="Sync")] == [
        ["distance", "first", "is_success"]
    ] * 2 + [["distance", "is_success"]] * 2


@pytest.mark.parametrize(
    ("info", "found", "told"),
    [
        (
            Odd().info(),
            {"true": 1.0, "zero-d": 3.0, "half": 0.5, "low": -2.0},
            r"(?s)'two\\nlines'.*printable ASCII|printable ASCII.*'two\\nlines'",
        ),
        (Many().info(), {f"n{index}": index for index in range(16)}, "(?s)'n16'.*16 numbers|16 numbers.*'n16'"),
    ],
    ids=["no number, or no name to show", "more than sixteen names"],
)
def test_what_a_record_does_not_take_is_left_out_and_told_once(
    info: Any, found: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_metrics, "_left_out", [])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert reported(info) == found
    (said,) = caplog.messages
    assert re.search(told, said)


@pytest.mark.parametrize("info", [None, [], "info", {1: 2}, {"a": np.zeros(2)}, {"a": np.zeros(2), "_a": True}, 7])
def test_an_info_of_another_form_tells_nothing(info: object) -> None:
    record = EpisodeRecord(1, 0.0, 1, 1, truncated=False)
    assert with_metrics((record,), info) == (record,)
