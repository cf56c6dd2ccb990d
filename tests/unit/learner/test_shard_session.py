"""A learner's shards: one that is not there yet, the sums over all of them, and how a batch is divided among them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.experience import transition_layout
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.assembly import Assembly, Requests, charges_by_error, draws_by_mass
from rljob.learner.shard import SILENCE_SECONDS, SUBSCRIBE_AGAIN_SECONDS, ShardSession
from rljob.learner.shard_totals import ShardReport, actors, replay_summary
from rljob.observation import frames
from rljob.wire import Client, Message, Server
from rljob.wire.schema import DRAWN, drawn_column

from tests.support.sharded_replay import chunk
from tests.support.waiting import eventually

LAYOUT = transition_layout(5, frames((2,), np.float32), 1)
masses = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20)


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


@pytest.fixture
def conversation(tmp_path: Path) -> Iterator[tuple[ShardSession, Callable[..., list[int]]]]:
    """A session that has asked for batches of 4 and of 2, with the numbers 1 and 2, and how it is answered."""
    with Server(f"ipc://{tmp_path}/s") as server, Client(server.endpoint) as connection:
        session, peers = ShardSession(0, connection, LAYOUT, "learner"), []

        def subscribed() -> bool:
            session.tick(0.0)
            peers.extend(peer for peer, _ in iter(server.receive, None))
            return bool(peers)

        def tell(*messages: Message) -> list[int]:
            assert all(server.send(peers[0], message) for message in messages)
            connection.wait(20)
            return [request for request, _ in session.receive(0.0)]

        def answer(req: int = 1, parts: int = 2, rows: int = 6, gen: int = 1, value: float = 0.1) -> list[int]:
            fields = {"req": req, "parts": parts, "mass": 1.0, "error": 0.0, "shard": 0}
            drawn = np.array([(0, gen, value)] * rows, DRAWN)
            return tell(Message("batch", fields, {"rows": drawn_column(drawn)}))

        eventually(subscribed, "a subscription")
        about = {"service": "s", "epoch": 0, "chunks": 4, "length": 5, "frames": LAYOUT.max_frames, "state": "serving"}
        stored = chunk("actor-0", 0, 0, np.ones(5, np.float32)).to_message()
        mirror = Message("mirror", {**stored.fields, "slot": 0, "gen": 1}, stored.columns)
        tell(Message("subscribed", about, {}))
        tell(mirror)
        assert session.ask([(4, 4), (2, 2)], 0.0) == 1
        yield session, answer


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"req": 2, "parts": 1, "rows": 2}, "it answered 1 requests from 2 on, it was asked [1, 2]"),
        ({"parts": 3}, "it answered 3 requests from 1 on"),
        ({"parts": 0, "rows": 0}, "it answered 0 requests"),
        ({"rows": 5}, "it sent 5 transitions where 6 were asked for"),
        ({"parts": 1}, "it sent 6 transitions where 4 were asked for"),
        ({"gen": 2}, "named transitions that the mirror does not hold"),
        ({"value": 0.0}, "what no table could have drawn"),
    ],
)
def test_an_answer_to_no_request_is_named_and_never_learned_from(
    conversation: Any, odd: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    session, answer = conversation
    with caplog.at_level("INFO"):
        assert answer(**odd) == []
    assert said in caplog.text
    assert (session.subscribed, session.outstanding, session.resubscriptions) == (False, {}, 1)


def test_a_request_that_is_left_unanswered_is_waited_for_and_given_up_with_a_silent_shard(conversation: Any) -> None:
    session, answer = conversation
    assert answer(parts=1, rows=4) == [1]
    assert (list(session.outstanding), session.quiet(0.5)) == ([2], False)
    session.tick(1.0)  # it is asked how it is
    assert session.quiet(2.5), "others are asked for its rows"
    session.tick(2.0 + SILENCE_SECONDS)
    assert (session.outstanding, session.subscribed) == ({}, False)


def test_many_small_requests_wait_for_those_before_them(conversation: Any) -> None:
    """As many as there are once the rows of several lost shards are divided among the others."""
    session, answer = conversation
    assert answer(parts=1, rows=4) == [1]
    assembly: Any = Assembly(None, 400)  # type: ignore[arg-type]  # nothing is filled in
    whole = assembly.unasked[0]
    assembly.unasked = [whole._replace(start=row, stop=row + 2, charge=2) for row in range(0, 400, 2)]
    Requests().ask([assembly], [session], np.random.default_rng(1), 0.0)
    assert (len(session.outstanding), assembly.asked, len(assembly.unasked)) == (64, 63, 200 - 63)


def status(inserted: int, state: str = "serving", age_seconds: float = 0.2) -> ShardStatus:
    actor = {"name": "actor-0", "age_seconds": age_seconds, "state": "Running"}
    figures = {"items": 10, "capacity": 100, "queue_depth_batches": 3.0, "queue_bound_batches": 8.0, "durable": True}
    counts = {"inserted_total": inserted, "steps_total": inserted}
    return ShardStatus.from_document({"state": state, **counts, **figures, "actors": [actor]})


def said(report: ShardReport, now: float = 0.0, *, gone: bool = False) -> ShardStatus:
    return report.status(now, gone=gone)


def inserted(report: ShardReport) -> int:
    return said(report).inserted_total


def test_a_shard_that_is_gone_has_totals_and_no_figures_of_the_moment() -> None:
    dead, live = ShardReport(), ShardReport()
    assert dead.status(0.0, gone=True) is None
    dead.heard(status(500), 10.0)
    live.heard(status(300, age_seconds=4.0), 40.0)
    shards = [said(dead, 40.0, gone=True), said(live, 40.0)]
    assert (sum(shard.inserted_total for shard in shards), replay_summary(shards).items) == (800, 10)
    (actor,) = actors(shards)
    assert actor.age_seconds == pytest.approx(4.0), "the last words of the dead one are thirty seconds old"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([0, 40, 90], [500, 540, 590]),  # begins from nothing
        ([495, 510], [500, 515]),  # its log was some chunks behind what it had said
        ([520], [520]),  # its log was ahead of it
    ],
)
def test_totals_go_on_over_a_restart_and_never_fall(after: list[int], expected: list[int]) -> None:
    report = ShardReport()
    report.heard(status(500), 0.0)
    report.heard(status(0, state="warming"), 1.0)
    assert inserted(report) == 500, "it has not read yet from where it goes on"
    seen = []
    for count in after:
        report.heard(status(count), 2.0)
        seen.append(inserted(report))
    assert seen == expected


def test_what_every_shard_counts_of_the_whole_run_is_not_added_to_itself() -> None:
    report = ShardReport()
    for steps in (500, 0, 480, 530):
        report.heard(status(steps), 0.0)
    assert said(report).steps_total == 530


@given(masses=masses, draws=st.integers(0, 600), offset=st.floats(0, 1, exclude_max=True))
def test_every_draw_falls_to_a_shard_and_none_differs_by_one_from_its_part(
    masses: list[float], draws: int, offset: float
) -> None:
    counts, shares = draws_by_mass(masses, draws, offset)
    assert counts.sum() == draws
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_array_less(np.abs(counts - draws * shares), 1.0 + 1e-6)


@pytest.mark.parametrize("masses", [[1.0, 1.0], [0.1, 3.0, 7.0], [1e-3, 1e3], [5.0] * 16, [0.0, 2.0, 0.0]])
def test_on_average_each_shard_is_drawn_from_by_its_mass(masses: list[float]) -> None:
    mean = np.mean([draws_by_mass(masses, 33, offset)[0] for offset in (np.arange(10_000) + 0.5) / 10_000], axis=0)
    np.testing.assert_allclose(mean, 33 * np.array(masses) / sum(masses), atol=2e-3)


@given(errors=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), amount=st.integers(0, 600))
def test_what_a_batch_costs_is_paid_by_those_ahead_and_leaves_them_level(errors: list[float], amount: int) -> None:
    charges = charges_by_error(errors, amount)
    assert charges.sum() == amount
    assert charges.min() >= 0
    left = np.array(errors) - charges
    payers = charges > 1
    if payers.any():
        assert np.ptp(left[payers]) <= 2.0 + 1e-6, "who pays ends on one level"
        assert left[~payers].max(initial=-np.inf) <= left[payers].min() + 3.0, "who pays nothing was not ahead of it"


def test_level_shards_pay_alike_and_one_that_lags_pays_nothing() -> None:
    assert charges_by_error([10.0] * 4, 32).tolist() == [8] * 4
    assert charges_by_error([100.0, 100.0, -500.0], 32).tolist() == [16, 16, 0]
    assert charges_by_error([100.0, 90.0], 30).tolist() == [20, 10]
