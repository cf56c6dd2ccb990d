"""A row of a vector that fails, or a whole vector, is made anew in the middle of play; and not for ever."""

from typing import Any

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import KeepsFailing, RestartLimit, describe_environment, make_restarting_environment
from rljob.envs.base import GroupedEnvironment, VectorEnvironment


def restarting(
    name: str, parameters: EnvironmentParameters, num_envs: int, seed: int, limit: RestartLimit
) -> VectorEnvironment:
    return make_restarting_environment(describe_environment(name, parameters), parameters, num_envs, seed, limit)


@pytest.fixture
def limit() -> RestartLimit:
    return RestartLimit(10)


def test_a_failing_row_is_cut_and_the_others_do_not_notice(limit: RestartLimit, closes: Any) -> None:
    parameters = EnvironmentParameters(backend="Sync", kwargs={"fail_at": 3}, reward_clipping="Disabled")
    env = closes(restarting("tests.support.toys:countdown", parameters, 3, 0, limit))
    env.reset()
    results = [env.step(np.ones(3, np.int64)) for _ in range(5)]
    assert [result.cut.tolist() if result.cut is not None else None for result in results] == [
        None, None, [False, True, False], None, None,
    ]  # fmt: skip
    failed = results[2]
    (reason,) = failed.failures
    assert "environment 1 of 'tests.support.toys:countdown' failed in step(): toys.py:" in reason
    assert reason.endswith(", in step: RuntimeError: the plant caught fire, in step 3 of the episode")
    assert (failed.steps, failed.raw_frames, failed.episodes, failed.truncated.any()) == (2, 2, (), False)
    assert failed.final_observation is None
    assert failed.observation[:, 0, 1].tolist() == [3, 0, 3], "a new episode in the row that failed"
    # The others end at their fifth step; the new one has taken two of its own by then.
    assert [(episode.environment, episode.length_steps) for episode in results[4].episodes] == [(0, 5), (2, 5)]
    assert limit.total == 1


def test_a_worker_that_dies_costs_the_vector_its_episodes(limit: RestartLimit, closes: Any) -> None:
    parameters = EnvironmentParameters(backend="Async", kwargs={"kill_at": 2}, reward_clipping="Disabled")
    env = closes(restarting("tests.support.toys:countdown", parameters, 2, 0, limit))
    env.reset()
    env.step(np.ones(2, np.int64))
    result = env.step(np.ones(2, np.int64))
    assert result.cut.all()
    assert (result.steps, result.raw_frames, limit.total) == (0, 0, 1)
    assert "its worker process ended (signal SIGKILL)" in result.failures[0]
    assert env.step(np.ones(2, np.int64)).observation.shape == (2, 1, 2)


def test_a_vector_class_whose_reward_is_no_number_is_made_anew(limit: RestartLimit, closes: Any) -> None:
    make = "tests.support.toys:vector_that_loses_rewards"
    env = closes(restarting(make, EnvironmentParameters(reward_clipping="Disabled"), 3, 0, limit))
    env.reset()
    assert env.step(np.ones(3, np.int64)).reward.tolist() == [2.5] * 3
    result = env.step(np.ones(3, np.int64))
    assert result.cut.all()
    assert (result.reward.tolist(), limit.total) == ([0.0] * 3, 1)
    assert result.failures[0].endswith(
        "failed in step(): ValueError: expected finite rewards [environment] less than 1e+15 in size, got nan at [1]"
    )


def test_an_environment_that_always_fails_is_given_up_at_once(closes: Any) -> None:
    parameters = EnvironmentParameters(backend="Sync", kwargs={"fail_at": 1})
    env = closes(restarting("tests.support.toys:countdown", parameters, 2, 0, RestartLimit(0)))
    env.reset()
    with pytest.raises(KeepsFailing, match=r"environment 1 of 'tests\.support.toys:countdown' failed in step"):
        env.step(np.ones(2, np.int64))


def test_a_failure_in_one_group_is_found_at_its_place_among_all(limit: RestartLimit, closes: Any) -> None:
    parameters = EnvironmentParameters(backend="Sync", kwargs={"fail_at": 2})
    env = closes(
        GroupedEnvironment([restarting("tests.support.toys:countdown", parameters, 2, seed, limit) for seed in (2, 0)])
    )
    env.reset()
    assert env.step(np.ones(4, np.int64)).cut is None
    result = env.step(np.ones(4, np.int64))
    assert result.cut.tolist() == [False, False, False, True]
    assert (result.steps, len(result.failures), limit.total) == (3, 1, 1)
