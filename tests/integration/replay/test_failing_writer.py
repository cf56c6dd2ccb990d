"""A writer of the log that fails on something else than Redis: nothing unwritten is acknowledged, and the shard ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from rljob.replay.chunk_log import ChunkLog, Commit
from rljob.replay.service import ReplayService
from rljob.threads import ThreadEnded

from tests.support.replay_peers import Actor, config, serving

pytestmark = pytest.mark.timeout(120)


def test_the_shard_ends_with_the_reason_and_acknowledges_nothing_more(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, broken = ChunkLog.commit, threading.Event()

    def failing(self: ChunkLog, what: Commit) -> None:
        if broken.is_set():
            raise TypeError("no such encoding")
        commit(self, what)

    monkeypatch.setattr(ChunkLog, "commit", failing)
    service, failures = ReplayService(config(redis=str(server.socket))), []

    def run() -> None:
        try:
            service.run(threading.Event())
        except ThreadEnded as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    actor = Actor(service.ingest_endpoint)
    actor.send_all(5, 30)
    assert (actor.acked, actor.durable) == (4, True)
    broken.set()
    actor.produce(3)
    actor.until(lambda: bool(failures), 30)
    thread.join(30)
    assert str(failures[0]) == "thread replay-log has ended: TypeError: no such encoding"
    assert service.status.durable is False
    assert actor.acked == 4, "what was not written was not acknowledged, and will be sent again"

    monkeypatch.setattr(ChunkLog, "commit", commit)
    with serving(config(redis=str(server.socket), ingest=service.config.ingest)) as again:
        actor.reconnect()
        actor.until(lambda: actor.window.unacknowledged == 0, 60)
        assert again.table.limiter.inserted == 80, "each of eight chunks once"
