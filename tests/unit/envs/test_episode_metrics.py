"""What an environment reports in ``info`` at an episode's end is in the record of the episode, and nothing else is."""

import re
from collections.abc import Mapping

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.api.lifecycle import TargetMetric
from rljob.envs import EpisodeRecord, make_vector_environment, meter
from rljob.envs.meter import kept, reported, with_metrics

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


def test_what_has_no_name_to_show_is_left_out_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "_left_out", [])
    for _ in range(2):
        assert reported(Odd().info()) == {
            "true": 1.0,
            "zero-d": 3.0,
            "half": 0.5,
            "low": -2.0,
            "one": 1.0,
            "tensor": 0.25,
        }
    (said,) = caplog.messages
    assert re.search(r"'two\\nlines'.*printable ASCII", said)


@pytest.mark.parametrize("waited_for", [None, "n5000", "elsewhere"])
def test_of_many_numbers_that_which_is_waited_for_is_kept_and_what_is_not_is_told_once(
    waited_for: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "_too_many", [])
    metric = None if waited_for is None else TargetMetric(name=waited_for, value=1.0)
    expected = ["n5000"] * (waited_for == "n5000") + [f"n{index}" for index in range(16 - (waited_for is not None))]
    for _ in range(2):
        first, second = kept([reported(Many().info()), {"n3": 1.0, "n20": 1.0}], metric)
        assert (list(first), second) == (expected, {"n3": 1.0})
    (said,) = caplog.messages
    assert f"the first that is left out is 'n{len(expected) - (waited_for == 'n5000')}'" in said


@pytest.mark.parametrize("info", [None, [], "info", {1: 2}, {"a": np.zeros(2)}, {"a": np.zeros(2), "_a": True}, 7])
def test_an_info_of_another_form_tells_nothing(info: object) -> None:
    record = EpisodeRecord(1, 0.0, 1, 1, truncated=False)
    assert with_metrics((record,), info) == (record,)
