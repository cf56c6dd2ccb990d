"""The learner's conversation with a shard that is not there yet when it begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rljob.experience import transition_layout
from rljob.learner.shard import SUBSCRIBE_AGAIN_SECONDS, ShardSession
from rljob.observation import frames
from rljob.wire import Client, Server

from tests.support.waiting import eventually

LAYOUT = transition_layout(5, frames((2,), np.float32), 1)


def until(server: Server, kind: str, between: Callable[[], object] = lambda: time.sleep(0.01)) -> list[str]:
    """Waits for a message of ``kind``; the kinds of what arrived up to it, itself included."""
    arrived: list[str] = []

    def has_arrived() -> bool:
        while kind not in arrived and (received := server.receive()) is not None:
            arrived.append(received[1].kind)
        return kind in arrived

    eventually(has_arrived, f"no {kind}", between=between)
    return arrived


def test_a_subscription_that_could_not_leave_is_sent_once_there_is_a_connection(tmp_path: Path) -> None:
    """Two seconds later was too late: meanwhile the other shards alone were filled and drawn from."""
    endpoint = f"ipc://{tmp_path}/s"
    with Client(endpoint) as connection:
        session = ShardSession(0, connection, LAYOUT, "learner")
        session.tick(0.0)
        with Server(endpoint) as server:
            until(server, "subscribe", between=lambda: session.tick(0.1))


def test_a_subscription_that_was_sent_is_repeated_when_its_answer_is_overdue_and_not_before(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    with Server(endpoint) as server, Client(endpoint) as connection:
        session = ShardSession(0, connection, LAYOUT, "learner")
        # Where the connection came up between the two, the first question for statistics has left before the subscription.
        asked = "stats" in until(server, "subscribe", between=lambda: session.tick(0.0))
        session.tick(SUBSCRIBE_AGAIN_SECONDS - 0.1)
        session.tick(SUBSCRIBE_AGAIN_SECONDS)
        assert until(server, "subscribe") == ["stats"] * (1 if asked else 2) + ["subscribe"]
