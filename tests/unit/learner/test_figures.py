"""Adding up shards, rates over windows, policy lag: against numbers worked out by hand."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.ingest.shard_status import ActorStatus, Episode, ShardStatus
from rljob.learner.figures import LAG_BATCHES, Figures
from rljob.learner.shard_totals import (
    actors,
    episode_metrics,
    limited,
    mean_length_steps,
    mean_return,
    replay_summary,
    return_to_go_by,
    stage_totals,
    steps_and_raw_frames,
)
from rljob.weights.flat import KEPT, VersionLog

NAMES = ("loss", "gradient_norm", "q_taken")
SHARDS = [
    ShardStatus(
        state="serving",
        items=10,
        capacity=100,
        fill=0.1,
        nbytes=1000,
        durable=True,
        durability="On",
        steps_total=30,
        raw_frames_total=120,
        inserted_total=20,
        sampled_total=80,
        queue_depth_batches=3.0,
        actors=(ActorStatus(name="actor-1", age_seconds=0.5, stages={"env": 3.0, "blocked": 1.0}),),
        episodes=tuple(Episode(game_return=r, greedy_half=r > 2) for r in range(6)),
    ),
    ShardStatus(
        state="filling",
        items=5,
        capacity=100,
        fill=0.6,
        nbytes=500,
        durable=False,
        steps_total=10,
        raw_frames_total=40,
        inserted_total=20,
        sampled_total=40,
        queue_depth_batches=1.0,
        actors=(
            ActorStatus(name="actor-1", age_seconds=0.1, stages={"env": 4.0, "blocked": 4.0}),
            ActorStatus(name="actor-0"),
        ),
        episodes=(Episode(game_return=100.0, greedy_half=False),),
    ),
]


def test_shards_add_up() -> None:
    assert replay_summary(SHARDS).to_document() == {
        "items": 15,
        "capacity": 200,
        "bytes": 1500,
        "fill": 0.35,
        "durable": False,
        "state": "filling",
        "durability": "On",
    }
    queues = [shard.queue_depth_batches for shard in SHARDS]
    assert (limited(queues), limited([None, 2.0]), limited([None, None])) == (4.0, 2.0, None)
    assert steps_and_raw_frames(SHARDS) == (30, 120)  # each actor reports to both
    assert [actor.name for actor in actors(SHARDS)] == ["actor-0", "actor-1"]
    assert stage_totals(actor.stages for actor in actors(SHARDS)) == {"env": 4.0, "blocked": 4.0}
    assert mean_return(SHARDS) == (4.0, 3)
    assert (steps_and_raw_frames([]), replay_summary([]).state, mean_return([])) == ((0, 0), "warming", (None, 0))


def test_what_processes_take_is_added_up_by_role() -> None:
    shards = [ShardStatus(process={"cpu_cores": 0.5}, actors=(ActorStatus(name="a", process={"rss_bytes": 5.0}),))] * 2
    found = Figures(NAMES).section(shards, {}, evaluator={"cpu_cores": 2.0})["processes"]
    assert found.pop("learner")["rss_bytes"] > 1 << 20
    assert found == {"replay": {"cpu_cores": 1.0}, "evaluator": {"cpu_cores": 2.0}, "actor": {"rss_bytes": 5.0}}
    assert set(Figures(NAMES).section([], {})["processes"]) == {"learner"}


def test_the_newest_games_are_the_newest_of_all_shards() -> None:
    """Games go to another shard while the first is away, and to the first again when it is back."""

    def games(first: int) -> ShardStatus:
        ended = range(first, first + 10)
        return ShardStatus(
            episodes=tuple(Episode(game_return=at, length=10 * at, greedy_half=True, time=at) for at in ended)
        )

    assert mean_return([games(20), games(10)]) == (19.5, 20)
    assert (mean_length_steps([games(20), games(0), games(10)]), mean_length_steps([])) == (195.0, None)
    for shards in ([games(20), games(10)], [games(10), games(20)]):
        assert mean_return(shards, games=10) == (24.5, 10)


def test_a_return_to_go_by_is_of_ten_games() -> None:
    """The first games to end are the shortest ones; after a resumed start of Pong one of 18 points was, of a policy of -6."""
    games = tuple(Episode(game_return=points, greedy_half=points != 3) for points in range(11))
    few, enough = ([ShardStatus(episodes=given)] for given in (games[:10], games))
    assert (return_to_go_by([]), return_to_go_by(few), return_to_go_by(enough)) == (None, None, 5.2)


def after_window(figures: Figures, now: float = 0.0) -> dict[str, Any]:
    """The figures after a window in which no shard said anything."""
    figures.window(now, {}, 0, 0, 0, [])
    return figures.section([], {})


def test_policy_lag_is_in_updates_and_leaves_out_random_actors() -> None:
    figures, versions = Figures(NAMES), VersionLog(interval=10)
    versions.note(12, updates=120)
    random_only, mixed = np.array([0, 0]), np.array([0, 11, 9, 12, 13])
    figures.lag(versions.ages(random_only), random_only)
    assert after_window(figures)["policy_lag_updates"] is None
    figures.lag(versions.ages(mixed), mixed)  # lags 10, 30, 0 and, from a learner that went back, 0
    section = after_window(figures, 1.0)
    assert section["policy_lag_updates"] == pytest.approx(10.0)
    counts = section["policy_lag_histogram"]["counts"]
    # 0, 0 and 10, within the first bound
    assert (sum(counts), counts[0], section["policy_lag_histogram"]["sum"]) == (4, 3, pytest.approx(40.0))


def test_the_age_of_a_version_is_the_updates_since_it_was_published() -> None:
    versions = VersionLog(interval=8)
    versions.begin(100)
    versions.note(5, updates=100)
    versions.note(6, updates=103)
    versions.updates = 110
    # 4 is not remembered: two versions ago, at the usual interval. Nothing that an actor says makes an age negative.
    assert [versions.age(version) for version in (6, 5, 0, 4, np.iinfo(np.int64).max)] == [7, 10, 10, 16, 0]
    assert versions.ages(np.array([[6, 5], [5, 6]])).tolist() == [[7, 10], [10, 7]]


def test_the_newest_versions_are_remembered() -> None:
    versions = VersionLog(interval=8)
    for version in range(1, KEPT + 2):
        versions.note(version, updates=version)
    assert [versions.age(version) for version in (KEPT + 1, 2, 1)] == [0, KEPT - 1, KEPT * 8]


def test_rates_are_over_the_window() -> None:
    figures = Figures(NAMES)
    figures.window(100.0, {"wait": 5.0}, 1000, 40, 160, SHARDS, 40.0, 5.0)
    figures.learned(np.array([1.0, 2.0, 3.0], np.float32))
    figures.learned(np.array([3.0, 2.0, 5.0], np.float32))
    later = [ShardStatus(actors=(ActorStatus(name="actor-1", stages={"env": 7.0, "blocked": 5.0}),))]
    figures.window(102.0, {"wait": 6.0}, 1100, 240, 960, later, 140.0, 205.0)
    section = figures.section(SHARDS, {"wait": 6.0})
    assert section["update_figures"] == {"loss": 2.0, "gradient_norm": 2.0, "q_taken": 4.0}
    rates = {
        "learner_wait_fraction": 0.5,
        "updates_per_second": 50.0,
        "steps_per_second": 100.0,
        "raw_frames_per_second": 400.0,
        "actors_blocked_fraction": 0.25,
        "samples_per_insert": 3.0,
        "consumption_per_second": 100.0,
        "production_per_second": 50.0,
    }
    assert {name: section[name] for name in rates} == pytest.approx(rates)


def test_what_the_shards_held_before_is_not_production() -> None:
    figures = Figures(NAMES)
    figures.window(100.0, {}, 0, 0, 0, [])
    figures.window(102.0, {}, 0, 0, 0, [], 10**6)
    assert "production_per_second" not in figures.section([], {})
    figures.window(104.0, {}, 0, 0, 0, [], 10**6 + 500)
    assert figures.section([], {})["production_per_second"] == pytest.approx(250.0)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (np.arange(100, 0, -1), {"policy_lag_updates_p95": pytest.approx(95.05)}),
        # A mean that forgets slowly would climb for minutes from the small lags of a start to where the median is at once.
        (np.array([16, 20, 24]), {"policy_lag_updates": 20.0, "policy_lag_updates_p50": 20.0}),
    ],
)
def test_mean_and_percentiles_of_lag_are_over_the_newest_batches(
    newest: np.ndarray, expected: dict[str, float]
) -> None:
    figures = Figures(NAMES)
    for batch in ([999], *[newest] * LAG_BATCHES):
        figures.lag(np.array(batch), np.arange(1, len(batch) + 1))
    assert after_window(figures).items() >= expected.items()


@given(
    st.lists(
        st.one_of(
            st.integers(1, 40).map(lambda count: ("learn", count)), st.integers(0, 100).map(lambda by: ("back", by))
        ),
        max_size=25,
    )
)
def test_lag_is_the_way_from_the_weights_that_acted_to_the_present_ones(events: list[tuple[str, int]]) -> None:
    """Against the tree of all updates ever made, in which going back to a checkpoint starts a new branch."""
    versions, here = VersionLog(interval=1), [0]  # the updates from the root to the present weights
    published: dict[int, list[int]] = {}
    made = itertools.count(1)
    for version, (what, number) in enumerate(events, start=1):
        if what == "learn":
            here = here + [next(made) for _ in range(number)]
            versions.updates = len(here) - 1
        else:
            here = here[: max(1, len(here) - number)]
            versions.begin(len(here) - 1)
        versions.note(version, len(here) - 1)
        published[version] = here
        for known, there in published.items():
            common = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False))
            )
            assert versions.age(known) == len(here) + len(there) - 2 * common


def told(*metrics: dict[str, float], greedy_half: bool = True) -> ShardStatus:
    return ShardStatus(
        episodes=tuple(
            Episode(game_return=0, greedy_half=greedy_half, time=time, metrics=each)
            for time, each in enumerate(metrics)
        )
    )


def test_what_environments_report_is_a_mean_over_those_of_the_newest_games_that_have_it() -> None:
    shards = [
        told({"is_success": 0.0}, {"first": 3.0}, *({"is_success": 1.0, "way": time} for time in range(25))),
        told({"is_success": 0.0}, greedy_half=False),
    ]
    assert episode_metrics(shards) == ({"is_success": 1.0, "way": sum(range(5, 25)) / 20}, {})
    assert episode_metrics([told({"is_success": 1.0}, {}, {"is_success": 0.0}, {})]) == (
        {"is_success": 0.5},
        {"is_success": 2},
    )
    assert Figures(NAMES).section([], {})["episode"] == {}
