"""Every row of docs/replay-durability.md on a real Redis: what leads from each state of a log to each, and what is said."""

import logging
import select
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from rljob.replay import log_writer
from rljob.replay.chunk_log import ChunkLog, Commit, LogState
from rljob.replay.durability import Durability
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.log_writer import LogWriter, WriterEvent
from rljob.replay.redis_client import connect
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity

from tests.support.durability import CHUNKS, LOG, assert_log_equals_table, reaches, redis_of
from tests.support.replay_peers import Actor, config, sent, serving
from tests.support.waiting import eventually


@pytest.fixture
def admin(server: EmbeddedRedis) -> Iterator[Any]:
    """A second client of the test's Redis, to change it."""
    with connect(str(server.socket)) as client:
        yield client


@pytest.fixture
def service(server: EmbeddedRedis) -> Iterator[ReplayService]:
    with serving(config(redis=str(server.socket))) as service:
        yield service


def is_durable_again(service: ReplayService, admin: Any, actor: Actor | None = None) -> None:
    """The log holds what the table does."""
    reaches(service, "Durable", actor)
    assert_log_equals_table(service, admin)


def goes_on(actor: Actor, seconds: float) -> None:
    """It sends, one chunk at a time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        actor.produce(actor.window.unacknowledged == 0)
        actor.step()


# ------------------------------------------------------------------------------------------------------- restoring


def test_a_log_that_stays_unreadable_is_written_anew_from_what_was_read(
    server: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may read chunks of one and two digits only: the second slice fails, again and again."""
    monkeypatch.setattr("rljob.replay.service._REDIS_PATIENCE_SECONDS", 0.5)
    settings = config(redis=str(server.socket), capacity=Capacity(3000))
    with serving(settings) as service:
        sent(service, 150)
    admin.execute_command("ACL", "SETUSER", "admin", "on", "nopass", "allkeys", "+@all")
    admin.execute_command("AUTH", "admin", "any")
    everything_else = ["~run:test:shard:0:[^c]*", "~run:test:shard:0:count*", "~run:test:[^s]*"]
    admin.execute_command(
        "ACL", "SETUSER", "default", "resetkeys", *everything_else, "~*:chunk:?", "~*:chunk:[0-5]?", "~*:chunk:6[0-4]"
    )
    with serving(settings) as service:
        assert "refuses this user" in reaches(service, "Down").reason
        assert (service.table.items, service.status.durable) == (640, False)
        admin.execute_command("ACL", "SETUSER", "default", "allkeys")
        is_durable_again(service, admin)
        Actor(service.ingest_endpoint, "actor-1").send_all(400)  # more than the table holds
        assert_log_equals_table(service, admin)


def test_a_log_that_answers_again_in_time_is_read_whole(server: Any, admin: Any) -> None:
    settings = config(redis=str(server.socket), capacity=Capacity(3000))
    with serving(settings) as service:
        sent(service, 150)
    admin.execute_command("ACL", "SETUSER", "default", "-mget")
    with serving(settings) as service:
        time.sleep(0.3)
        assert redis_of(service).state == "Restoring"
        admin.execute_command("ACL", "SETUSER", "default", "+mget")
        is_durable_again(service, admin)
        assert service.table.items == 1500


@pytest.mark.parametrize("key", ["log", "counters", "counted", "seen"])
def test_a_damaged_index_costs_the_log_and_not_the_shard(server: Any, admin: Any, key: str) -> None:
    settings = config(redis=str(server.socket))
    with serving(settings) as service:
        sent(service, 10)
    name = f"run:test:shard:0:{key}"
    if admin.type(name) == b"string":
        admin.set(name, b'{"steps": "many"}')
    elif key == "log":
        admin.sadd(name, b"no such thing")
    else:
        admin.hset(name, "9", b"no such thing")
    with serving(settings) as service:
        reaches(service, "Durable")
        assert sent(service, 5, "actor-1").durable is True
        assert service.table.items == 50


# ------------------------------------------------------------------------------------------------------------ down


def test_a_server_that_hangs_is_down_and_then_refilled(
    server: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rljob.replay.service.connect", partial(connect, timeout_seconds=0.5))
    with serving(config(redis=str(server.socket))) as service:
        actor = sent(service, 10)
        admin.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        assert "does not answer in time" in reaches(service, "Down", actor).reason
        assert service.status.durable is False
        reaches(service, "Durable", actor)
        actor.until(lambda: actor.window.unacknowledged == 0)
        assert redis_of(service).reason == ""
        assert_log_equals_table(service, admin)
        expected = service.table.items
    with serving(config(redis=str(server.socket))) as service:
        reaches(service, "Durable")
        assert service.table.items == expected


def test_a_server_that_lost_its_keys_between_two_writes_is_refilled(service: ReplayService, admin: Any) -> None:
    """As one that was restarted while nothing was written: a client replaces its connection and says nothing."""
    actor = sent(service, 10)
    admin.flushall()
    actor.send_all(5)
    eventually(lambda: redis_of(service).failures_total == 1, "noticed")
    is_durable_again(service, admin, actor)


@pytest.mark.parametrize(
    ("broken", "mended", "said"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "read-only replica"),
        (("ACL", "SETUSER", "default", "-hset"), ("ACL", "SETUSER", "default", "+hset"), "refuses this user"),
    ],
)
def test_a_server_that_answers_but_takes_no_writes_is_not_tried_ever_so_often(
    service: ReplayService, admin: Any, broken: tuple[str, ...], mended: tuple[str, ...], said: str
) -> None:
    actor = sent(service, 10)
    admin.execute_command(*broken)
    assert said in reaches(service, "Down", actor).reason
    goes_on(actor, 2.0)
    assert redis_of(service).failures_total <= 6, "each attempt waits longer than the one before"
    admin.execute_command(*mended)
    is_durable_again(service, admin, actor)


def policy(admin: Any, name: str, limit: int) -> None:
    admin.config_set("maxmemory-policy", name)
    admin.config_set("maxmemory", limit)


@pytest.mark.parametrize("found", ["at the start", "while it runs"])
def test_a_server_that_drops_chunks_is_named_and_never_durable(
    server: Any, admin: Any, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    if found == "at the start":
        policy(admin, "allkeys-lru", 1 << 30)
    with serving(config(redis=str(server.socket))) as service:
        actor = sent(service, 10)
        policy(admin, "allkeys-lru", 1 << 30)
        part = reaches(service, "Evicting", actor)
        assert "maxmemory-policy is allkeys-lru; set it to noeviction" in part.reason.replace(")", "")
        assert service.status.durable is False
        actor.send_all(20)
        assert actor.durable is False
        assert_log_equals_table(service, admin)
        assert caplog.text.count("maxmemory-policy") == 1, "said once"
        assert "durable again" not in caplog.text
        admin.delete(*admin.keys(CHUNKS)[:5])  # what such a policy does
        policy(admin, "noeviction", 1 << 30)
        reaches(service, "Durable", actor)
        actor.until(lambda: actor.window.unacknowledged == 0)
        actor.send_all(1)
        assert actor.durable is True
        assert redis_of(service).reason == ""
        assert_log_equals_table(service, admin)


@pytest.mark.parametrize(("name", "limit"), [("allkeys-lru", 0), ("volatile-lru", 1 << 30), ("noeviction", 1 << 30)])
def test_a_policy_that_drops_no_chunk_is_durable(service: ReplayService, admin: Any, name: str, limit: int) -> None:
    policy(admin, name, limit)
    actor = sent(service, 10)
    eventually(lambda: redis_of(service).used_memory_bytes)
    actor.send_all(10)
    assert (actor.durable, redis_of(service).state) == (True, "Durable")


class ScriptedWriter:
    """A writer whose events a test chooses: a real one can't be made to fail between two lines of its owner."""

    used_memory_bytes = None
    drops_chunks = ""
    has_room = True

    def __init__(self) -> None:
        self.news: list[WriterEvent] = []
        self.submitted: list[tuple[int, Commit]] = []
        self.settlements = 0

    def events(self) -> list[WriterEvent]:
        taken, self.news = self.news, []
        return taken

    def submit(self, token: int, commit: Commit) -> None:
        self.submitted.append((token, commit))

    def settled(self) -> None:
        self.settlements += 1


def test_the_end_of_a_commit_from_before_a_failure_is_nothing() -> None:
    with serving(config()) as service:
        sent(service, 5)
    writer: Any = ScriptedWriter()
    durability = Durability(service.table, writer, lambda: LogState({}, {}))
    durability.restored([])
    durability.touch()
    durability.pump()
    stale = writer.submitted[0][0]
    writer.news = [WriterEvent("down", stale, "gone"), WriterEvent("up"), WriterEvent("done", stale)]
    durability.pump()
    assert (durability.state, durability.durable) == ("Refilling", False)
    token, commit = writer.submitted[-1]
    assert (commit.clear, len(commit.chunks)) == (True, 5)
    writer.news = [WriterEvent("done", token)]
    durability.pump()
    assert (durability.state, durability.durable, writer.settlements) == ("Durable", True, 1)


def test_what_was_submitted_before_a_failure_was_heard_of_is_never_written(server: Any, admin: Any) -> None:
    with connect(str(server.socket)) as client:
        log = ChunkLog(client, "test", 0, "me")
        log.take_over()
        with closing(LogWriter(log)) as writer:
            admin.execute_command("ACL", "SETUSER", "default", "-hset")
            writer.submit(1, Commit(state=LogState({"epoch": 1}, {})))
            eventually(lambda: select.select([writer.waker.fileno()], [], [], 0)[0])
            admin.execute_command("ACL", "SETUSER", "default", "+hset")
            writer.submit(2, Commit(state=LogState({"epoch": 2}, {})))
            writer.submit(3, Commit(state=LogState({"inserted": 3}, {}), clear=True))
            events: list[WriterEvent] = []
            eventually(lambda: events.extend(writer.events()) or len(events) == 3)
            assert [(e.kind, e.token) for e in events] == [("down", 1), ("up", 0), ("done", 3)]
            assert log.state().counters == {"inserted": 3}


# ------------------------------------------------------------------------------------------------------------ full


def fill(admin: Any, share: float = 1.0) -> int:
    """Set the memory's limit to ``share`` of what is taken now; answers it."""
    limit = int(share * admin.info("memory")["used_memory"])
    admin.config_set("maxmemory", limit)
    return limit


def test_a_full_server_is_said_and_left_alone_until_it_has_room(
    service: ReplayService, admin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    actor = sent(service, 50)
    limit = fill(admin, 0.9)
    part = reaches(service, "Full", actor)
    assert f"maxmemory is {limit / 2**20:,.1f} MiB" in part.reason
    assert "replay.capacity" in part.reason
    goes_on(actor, 1.5)  # many looks for room
    assert redis_of(service).failures_total == 1
    assert actor.durable is False, "training goes on from memory"
    assert len([r for r in caplog.records if "Redis is full" in r.message]) == 1
    assert admin.scard(LOG) >= 50, "what the log holds is not thrown away for an attempt that can't succeed"
    admin.config_set("maxmemory", 0)
    is_durable_again(service, admin, actor)


def test_a_table_larger_than_its_server_is_tried_more_and_more_rarely(
    server: Any, admin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(log_writer, "_FIRST_FULL_RETRY_SECONDS", 0.2)
    empty = admin.info("memory")["used_memory"]
    admin.config_set("maxmemory", empty + 400_000)
    with serving(config(redis=str(server.socket), capacity=Capacity(20_000))) as service:
        actor = Actor(service.ingest_endpoint)
        actor.produce(600)
        reaches(service, "Full", actor)
        goes_on(actor, 3.0)
        assert redis_of(service).failures_total <= 5, "after 0.2, 0.4, 0.8, 1.6 seconds"
        actor.until(lambda: redis_of(service).failures_total >= 2)
        assert admin.info("memory")["used_memory"] <= empty + 600_000
        actor.until(lambda: actor.window.unacknowledged == 0)
        admin.config_set("maxmemory", 0)
        is_durable_again(service, admin, actor)


def test_a_server_that_is_full_at_the_start_is_read_all_the_same(server: Any, admin: Any) -> None:
    settings = config(redis=str(server.socket))
    with serving(settings) as service:
        sent(service, 50)
    fill(admin, 0.9)
    with serving(settings) as service:
        reaches(service, "Full", Actor(service.ingest_endpoint, "actor-1"))
        assert service.table.items >= 500
        admin.config_set("maxmemory", 0)
        is_durable_again(service, admin)
        assert service.table.limiter.inserted >= 500


def test_a_full_server_whose_service_ends_is_not_waited_for(server: Any, admin: Any) -> None:
    with serving(config(redis=str(server.socket))) as service:
        actor = sent(service, 50)
        assert service.unsaved == ""
        fill(admin, 0.9)
        reaches(service, "Full", actor)
        began = time.monotonic()
    assert time.monotonic() - began < 10.0
    assert "Redis is full" in service.unsaved
