"""What an environment gives is taken over where it is given: copied, checked, and without what is not read.

What an environment reports in ``info`` at an episode's end is in the record of the episode, and nothing else is.
"""

import logging
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.api.lifecycle import TargetMetric
from rljob.envs import (
    EnvironmentProblem,
    EpisodeRecord,
    RestartLimit,
    VectorEnvironment,
    describe_environment,
    make_restarting_environment,
    make_vector_environment,
    meter,
    try_environment,
)
from rljob.envs.meter import kept, reported, with_metrics
from rljob.errors import UsageError

from tests.support.reporting import Many, Odd

ODD = "tests.support.odd_environments"


@pytest.fixture(params=["Sync", "Async"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(
    name: str, backend: str = "Auto", limit: RestartLimit | None = None, **parameters: object
) -> VectorEnvironment:
    settings = EnvironmentParameters.model_validate({"backend": backend, **parameters})
    spec = describe_environment(f"{ODD}:{name}", settings)
    env = make_restarting_environment(spec, settings, 2, 0, limit or RestartLimit(10))
    env.reset()
    return env


def steps(env: VectorEnvironment, count: int) -> Iterator[object]:
    for _ in range(count):
        yield env.step(np.zeros(2, np.int64))
    env.close()


def test_what_is_written_into_one_buffer_is_kept(backend: str) -> None:
    for time, result in enumerate(steps(made("OneBuffer", backend), 8), 1):
        game, in_game = divmod(time, 4)
        assert result.observation[:, 0].tolist() == [[game, in_game, 0]] * 2
        if result.truncated.any():
            assert result.final_observation[:, 0].tolist() == [[game - 1, 4, 0]] * 2


def test_the_frames_of_a_stack_are_those_of_its_times() -> None:
    *_, third = steps(made("OnePicture", "Sync", frameStack=4), 3)
    assert third.observation[:, :, 0, 0].tolist() == [[0, 1, 2, 3]] * 2


def test_infos_that_nobody_reads_may_be_anything(backend: str) -> None:
    limit = RestartLimit(0)
    assert (sum(len(result.episodes) for result in steps(made("OddInfos", backend, limit), 8)), limit.total) == (4, 0)


def test_what_is_no_number_begins_the_copy_anew_and_is_told(backend: str) -> None:
    *_, last = steps(made("NotANumber", backend), 4)
    assert (last.cut.all(), last.final_observation) == (True, None)
    assert last.failures[1] == (
        f"environment 1 of '{ODD}:NotANumber' failed in step(): ValueError: expected an observation of finite float32 "
        "numbers, got nan at [1], in step 4 of the episode"
    )


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("observation", "expected an observation of finite float32 numbers, got {} at [2]"),
        ("reward", "reward: expected a finite number less than 1e+15 in size, got {}"),
    ],
)
def test_no_number_that_is_not_finite_goes_on(backend: str, place: str, said: str, odd: str) -> None:
    results = list(steps(made("Gives", backend, kwargs={place: odd}), 4))
    assert results[-1].cut.all()
    assert results[-1].failures[1].endswith(f"ValueError: {said.format(odd)}, in step 4 of the episode")
    assert all(np.isfinite(given).all() for result in results for given in (result.reward, result.observation))


def test_a_vector_class_that_gives_something_else_is_told_what() -> None:
    results = steps(made("vector", kwargs={"kind": "not numbers"}), 4)
    failure, *_ = [failure for result in results for failure in result.failures]
    assert re.search(r"expected an observation of finite float32 numbers, got inf at \[1, 2\]$", failure)
    # No new one would do better, so none is made.
    with pytest.raises(UsageError, match=r"has no 'final_obs', the .* before it the name was 'final_observation'"):
        list(steps(made("vector", kwargs={"kind": "old"}), 4))


def test_a_failure_in_close_hides_nothing(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    *_, second = steps(made("CantClose", backend), 2)
    assert ["RuntimeError: the plant caught fire, in step 2" in failure for failure in second.failures] == [True, True]
    if backend == "Sync":
        assert "failed in close(): odd_environments.py" in caplog.records[0].message
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(EnvironmentProblem, match=r"the plant caught fire$"):
        try_environment(f"{ODD}:CantClose", EnvironmentParameters())


def test_a_worker_that_cannot_make_its_environment_says_why() -> None:
    with pytest.raises(EnvironmentProblem, match=r"cannot be made: .*OSError: one copy a machine"):
        made("here_alone", "Async")


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
