"""Totals over restarts of actors and of the service, against a plain sum of what was really played.

What a shard says of itself: the wire form as others know it, and that it is read whole or not at all.
"""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.ingest.roster import Counted, Roster, episode_fields
from rljob.ingest.shard_status import ActorStatus, Episode, LimiterStatus, RedisStatus, ShardStatus
from rljob.telemetry.catalogue import REPLAY
from rljob.wire import MalformedMessage, Message
from rljob.wire.message import packed


def heartbeat(steps: int, actor: str = "actor-0", inc: str = "a", state: str = "Running") -> Message:
    fields = {
        "actor": actor, "inc": inc, "pv": 3, "state": state, "steps": steps, "raw": 4 * steps, "produced": steps,
        "blocked": 0.5, "sps": 10.0,
    }  # fmt: skip
    return Message("heartbeat", fields, {"stages": np.zeros(5)})


@pytest.fixture
def roster() -> Roster:
    return Roster()


def with_actor() -> Roster:
    roster = Roster()
    roster.joined("actor-0", "a", 0, 0.0, known=False)
    return roster


def test_what_an_actor_s_process_takes_is_told_and_what_is_no_number_is_refused() -> None:
    roster = with_actor()
    told, (names, taken) = heartbeat(10), packed([{"cpu_cores": 0.5, "rss_bytes": 3e8}])
    roster.heard(Message("heartbeat", told.fields | names, {**told.columns, **taken}), 1.0)
    assert roster.actors["actor-0"].as_status(1.0).process == {"cpu_cores": 0.5, "rss_bytes": 3e8}
    with pytest.raises(MalformedMessage):
        roster.heard(
            Message("heartbeat", told.fields | names, {**told.columns, "metrics": np.full((1, 2), np.inf)}), 2.0
        )


def test_every_shard_counts_an_actor_and_its_home_alone_lists_it() -> None:
    roster = with_actor()
    roster.heard(heartbeat(10), 1.0)
    for second in (2.0, 3.0, 4.5):
        assert [actor.age_seconds for actor in roster.statuses(second)] == [second - 1.0], (
            "until its next home has told of it"
        )
        roster.alive(Message("alive", {"actor": "actor-0", "inc": "a", "steps": 30, "raw": 120}, {}), second)
    assert (roster.statuses(4.5), roster.steps_total, roster.raw_frames_total) == ((), 30, 120)
    roster.lose(15.0, 300.0, 18.0)
    assert roster.actors["actor-0"].status.state != "Lost", "it has been seen since"
    roster.heard(heartbeat(40), 18.0)
    (listed,) = roster.statuses(18.5)
    assert (listed.steps, listed.age_seconds, roster.steps_total) == (40, 0.5, 40)
    roster.lose(15.0, 300.0, 40.0)
    assert roster.actors["actor-0"].status.state == "Lost"
    assert [actor.state for actor in roster.statuses(40.0)] == ["Lost"]
    with pytest.raises(MalformedMessage):
        roster.alive(Message("alive", {"actor": "actor-0", "inc": "a", "steps": 1 << 60, "raw": 0}, {}), 41.0)


def test_who_goes_on_from_a_count_counts_every_step_once_and_leaves_none_out(roster: Roster) -> None:
    for actor, steps in (("actor-0", 100), ("actor-1", 50)):
        roster.joined(actor, "a", 0, 0.0, known=False)
        roster.heard(heartbeat(steps, actor), 0.0)
    roster.joined("actor-1", "b", 0, 1.0, known=False)
    roster.heard(heartbeat(7, "actor-1", "b"), 1.0)
    kept = Counted.read(json.loads(json.dumps(roster.counted().document())))
    assert kept == roster.counted()
    later = Roster()
    later.resume(kept)
    later.joined("actor-0", "a", 0, 9.0, known=False)  # outlived the service: what it played meanwhile is new
    later.heard(heartbeat(180), 9.0)
    later.joined("actor-1", "c", 0, 9.0, known=False)  # began while there was no service to say hello to
    later.heard(heartbeat(20, "actor-1", "c"), 9.0)
    assert (later.steps_total, later.raw_frames_total) == (157 + 80 + 20, 4 * 257)


def test_heartbeats_of_other_incarnations_and_of_strangers_are_ignored(roster: Roster) -> None:
    roster.heard(heartbeat(10), 0.0)
    assert not roster.actors
    roster.joined("actor-0", "a", 0, 0.0, known=False)
    roster.heard(heartbeat(100), 1.0)
    roster.joined("actor-0", "b", 0, 2.0, known=False)
    roster.heard(heartbeat(10, inc="b"), 2.0)
    roster.heard(heartbeat(120, inc="a", state="Blocked"), 3.0)
    roster.left("actor-0", "a")
    record = roster.actors["actor-0"]
    status = record.status
    assert (status.incarnation, status.steps, status.state, record.seen_at) == ("b", 10, "Running", 2.0)
    assert roster.steps_total == 110


def test_an_incarnation_that_comes_back_is_not_counted_again() -> None:
    """One that was silent for so long that it was dropped."""
    roster = with_actor()
    roster.heard(heartbeat(105), 2.0)
    roster.lose(15.0, 300.0, 20.0)
    assert roster.actors["actor-0"].status.state == "Lost"
    roster.lose(15.0, 300.0, 400.0)
    assert not roster.actors
    roster.joined("actor-0", "a", 0, 500.0, known=True)
    roster.heard(heartbeat(125), 500.0)
    assert roster.steps_total == 125


def test_a_silent_actor_is_lost_once_and_a_finished_one_never(roster: Roster) -> None:
    for actor in ("actor-0", "actor-1"):
        roster.joined(actor, "a", 0, 0.0, known=False)
        roster.heard(heartbeat(1, actor), 0.0)
    roster.left("actor-1", "a")
    for now, state in ((10.0, "Running"), (16.0, "Lost")):
        roster.lose(15.0, 300.0, now)
        assert roster.actors["actor-0"].status.state == state
    assert [record.status.state for record in roster.actors.values()] == ["Lost", "Finished"]
    roster.heard(heartbeat(2, "actor-0"), 18.0)
    assert roster.actors["actor-0"].status.state == "Running"


def games(actor: str, epsilons: list[float]) -> Message:
    count = len(epsilons)
    return Message("episodes", {"actor": actor, "inc": "a"}, {
        "ret": np.ones(count), "length": np.ones(count), "raw": np.ones(count), "epsilon": np.array(epsilons),
        "cut": np.zeros(count), "pv": np.ones(count),
    })  # fmt: skip


def test_the_greedier_half_is_of_the_epsilons_that_are_there() -> None:
    roster, ladder = Roster(), {"actor-0": [0.4, 0.2], "actor-1": [0.1, 0.01]}

    def counts(actor: str) -> list[bool]:
        return [game.greedy_half for game in roster.finished(games(actor, ladder[actor]), 0.0)]

    for actor in ladder:
        roster.joined(actor, "a", 0, 0.0, known=False)
        roster.heard(heartbeat(1, actor), 0.0)
        counts(actor)
    assert (counts("actor-0"), counts("actor-1")) == ([False, False], [True, True])
    roster.left("actor-1", "a")
    assert counts("actor-0") == [False, True], "the one actor that is left"
    assert [game.greedy_half for game in Roster().finished(games("alone", [0.4]), 0.0)] == [True]
    assert [game.greedy_half for game in Roster().finished(games("equal", [0.0] * 3), 0.0)] == [True] * 3


@pytest.mark.parametrize("figure", ["sps", "blocked", "stages"])
@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan"), -1.0])
def test_a_rate_or_a_time_that_none_can_be_is_refused(figure: str, value: float) -> None:
    """A learner would refuse the whole status with it in, and draw from this shard no more."""
    roster, good = with_actor(), heartbeat(5)
    fields = {**good.fields, figure: value} if figure != "stages" else good.fields
    columns = {"stages": np.full(5, value)} if figure == "stages" else good.columns
    with pytest.raises(MalformedMessage, match="a rate or a time"):
        roster.heard(Message("heartbeat", fields, columns), 0.0)
    assert roster.steps_total == 0


@pytest.mark.parametrize("value", [1e30, -1e30, float("inf"), float("nan")])
def test_a_return_that_none_can_be_is_refused(value: float, roster: Roster) -> None:
    columns = {name: np.zeros(1) for name in ("length", "raw", "epsilon", "cut", "pv")}
    with pytest.raises(MalformedMessage, match="a return"):
        roster.finished(
            Message("episodes", {"actor": "actor-0", "inc": "a"}, {**columns, "ret": np.array([value])}), 0.0
        )
    assert roster.episodes_total == 0


def test_games_read_back_are_those_that_this_shard_heard_of() -> None:
    columns = {name: np.arange(2) for name in ("ret", "length", "raw", "epsilon", "cut", "pv")}
    fields, metrics = packed([{"is_success": 1.0}, {"is success": 0.5}])
    message = Message("episodes", {"actor": "actor-0", "inc": "a", **fields}, {**columns, **metrics})
    shards = [Roster(shard) for shard in range(2)]
    told = [entry for at, shard in enumerate(shards) for entry in shard.finished(message, 100.0 + at)]
    stored = [{name: str(value) for name, value in episode_fields(entry).items()} for entry in told]
    for number, shard in enumerate(shards):
        again = Roster(number)
        again.restore_episodes([{"return": "1"}, *stored])
        assert list(again.episodes) == [replace(episode, metrics={}) for episode in shard.episodes]
        assert [episode.metrics for episode in shard.episodes] == [{"is_success": 1.0}, {"is success": 0.5}]


LIVES = st.lists(
    st.tuples(st.sampled_from(["actor-0", "actor-1"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 50)),
    max_size=60,
)


@given(LIVES)
@settings(max_examples=200)
def test_totals_equal_what_was_played_whoever_comes_and_goes(turns: list[tuple[str, str, int]]) -> None:
    roster = Roster()
    """Each turn, an incarnation that may have been away plays some steps, joins if it is not in, and reports."""
    played: dict[tuple[str, str], int] = {}
    for now, (actor, incarnation, steps) in enumerate(turns):
        total = played[actor, incarnation] = played.get((actor, incarnation), 0) + steps
        record = roster.actors.get(actor)
        if record is None or record.status.incarnation != incarnation:
            roster.joined(actor, incarnation, 0, now, known=False)
        roster.heard(heartbeat(total, actor, incarnation), now)
        assert roster.actors[actor].status.steps == total
        assert (roster.steps_total, roster.raw_frames_total) == (sum(played.values()), 4 * sum(played.values()))


ACTOR = ActorStatus(name="actor-0", incarnation="a", state="Running", stages={"env": 1.5}, age_seconds=0.25, steps=7)
GAME = Episode(id=3, game_return=-21.0, length=800, epsilon=0.01, greedy_half=True, actor="actor-0", time=1.5e9)
STATUS = ShardStatus(
    service="s",
    shard=1,
    state="serving",
    items=10,
    capacity=100,
    nbytes=4096,
    capacity_bytes=8192,
    fill=0.1,
    durable=True,
    durability="On",
    inserted_total=20,
    accepted={"actor-0": {"incarnation": "a", "transitions": 20}},
    rejected_total={"gap": 2},
    limiter=LimiterStatus(error=-3.5, buffer=40.0, blocked="samples"),
    queue_depth_batches=1.5,
    queue_bound_batches=8.0,
    priority_total=1e30,
    steps_total=70,
    raw_frames_total=280,
    actors=(ACTOR,),
    episodes=(GAME,),
    episodes_total=3,
    stages={"poll": 2.0},
    redis=RedisStatus(state="Durable", reachable=True, latency_seconds=0.01, used_memory_bytes=1 << 20),
)
NAMES = [
    "service", "shard", "state", "epoch", "items", "chunks", "capacity", "bytes", "capacity_bytes", "fill", "durable",
    "durability", "inserted_total", "sampled_total", "chunks_total", "batches_total", "mirrored_chunks_total", "accepted",
    "duplicates_total", "lost_before_total", "forgotten_actors_total", "rejected_total", "refused_handshakes_total",
    "stale_priority_updates_total", "invalid_priority_updates_total", "samples_per_insert", "limiter",
    "queue_depth_batches", "queue_bound_batches", "insert_blocked_seconds", "sample_blocked_seconds", "priority_total",
    "priority_drift", "eagain", "steps_total", "raw_frames_total", "actors", "episodes", "episodes_total", "stages",
    "process", "redis",
]  # fmt: skip


def test_the_wire_form_has_the_names_that_others_read() -> None:
    document = STATUS.to_document()
    assert (list(document), list(document["limiter"])) == (NAMES, ["error", "buffer", "blocked"])
    assert (document["bytes"], document["episodes"][0]["return"]) == (4096, -21.0)
    for metric in REPLAY:
        value: Any = document
        for name in metric.path.split("/"):
            value = value[name]


def test_what_is_written_is_read_again() -> None:
    assert ShardStatus.from_json(json.dumps(STATUS.to_document(), allow_nan=False).encode()) == STATUS
    assert ShardStatus.from_json(b"{}") == ShardStatus()


def test_a_status_of_another_version_is_read() -> None:
    document = STATUS.to_document()
    del document["eagain"], document["limiter"]["buffer"], document["actors"][0]["slot"]
    document |= {"colour": {"of": ["the", "shard"]}, "fill": None}
    document["actors"][0]["mood"] = "good"
    assert ShardStatus.from_document(document) == replace(
        STATUS, fill=0.0, limiter=replace(STATUS.limiter, buffer=None)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"items": "many"}, "items: Input should be a valid integer, got 'many'"),
        ({"items": True}, "items: Input should be a valid integer, got 'True'"),
        ({"steps_total": 10**400}, "steps_total: .*less than or equal to .*, got '1000"),
        ({"state": 7}, "state: Input should be a valid string, got '7'"),
        ({"durable": "yes"}, "durable: Input should be a valid boolean, got 'yes'"),
        ({"actors": {"name": "a"}}, "actors: Input should be a valid tuple"),
        ({"actors": ["a"]}, r"actors\[0\]: Input should be a dictionary .*, got 'a'"),
        ({"actors": [{"stages": {"env": "long"}}]}, r"actors\[0\].stages.env: .* valid number, got 'long'"),
        ({"episodes": [{"length": 3}]}, r"episodes\[0\].return: Field required"),
        ({"limiter": "?"}, "limiter: Input should be a dictionary"),
        ({"stages": []}, "stages: Input should be a valid dictionary"),
    ],
)
def test_a_value_that_is_something_else_is_refused_with_its_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ShardStatus.from_document(STATUS.to_document() | changes)


def test_of_a_shard_that_is_gone_totals_games_and_older_news_of_actors_remain() -> None:
    gone = STATUS.gone(30.0)
    of_the_moment = {
        *("state", "items", "chunks", "capacity", "nbytes", "capacity_bytes", "fill", "limiter"),
        *("queue_depth_batches", "queue_bound_batches"),
    }
    for each in fields(ShardStatus):
        if each.name in of_the_moment:
            assert getattr(gone, each.name) == getattr(ShardStatus(), each.name)
        elif each.name != "actors":
            assert getattr(gone, each.name) == getattr(STATUS, each.name)
    assert gone.actors == (replace(ACTOR, age_seconds=30.25),)
