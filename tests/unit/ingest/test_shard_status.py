"""What a shard says of itself: the wire form as others know it, and that it is read whole or not at all."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from rljob.ingest.shard_status import ActorStatus, Episode, LimiterStatus, RedisStatus, ShardStatus
from rljob.telemetry.catalogue import REPLAY

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
