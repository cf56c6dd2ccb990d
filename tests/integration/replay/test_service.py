"""The service end to end, in this process: exactly once, credits, hostile bytes, and a writer of the log that fails."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rljob.experience import Segment
from rljob.experience.ring import SegmentRing, transition_arrays
from rljob.replay.chunk_log import ChunkLog, Commit
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.threads import ThreadEnded
from rljob.wire import Message, encode
from rljob.wire.schema import drawn_column, drawn_of

from tests.support.experience import CHUNKS
from tests.support.replay_peers import Actor, Learner, config, random_chunk, sample, serving
from tests.support.waiting import eventually, running


def test_a_learner_that_was_superseded_is_refused(server: Any) -> None:
    settings = config(redis=str(server.socket))
    with serving(settings) as service:
        actor = Actor(service.ingest_endpoint)
        old, new = Learner(service.sample_endpoint, epoch=1), Learner(service.sample_endpoint, epoch=2)
        actor.send_all(30)
        assert old.subscribe("old").kind == "subscribed"
        batch = old.sample()
        assert new.subscribe("new").fields["epoch"] == 2
        before = service.table.selector.tree.total
        drawn = drawn_of(batch.columns["rows"]).copy()
        drawn["value"] = 1e6
        asked = sample(3)
        old.client.send(Message("sample", asked.fields, {**asked.columns, "rows": drawn_column(drawn)}))
        for _ in ("priorities", "sample"):
            assert old.sample().kind == "refused"
        old.client.receive(5.0)  # there was a message more than questions
        refusal = old.subscribe("old")
        assert (refusal.kind, refusal.fields["reason"]) == (
            "refused", "a learner of epoch 2 has begun after this one, of epoch 1",
        )  # fmt: skip
        assert new.sample().kind == "batch", "the one before took nothing from it"
        assert service.table.selector.tree.total == before
        stats = new.stats()
        assert (stats["epoch"], stats["rejected_total"]["superseded"]) == (2, 1)
        assert Actor(service.ingest_endpoint, "actor-1").welcomed()["epoch"] == 2
    with serving(settings) as service:
        old, new = Learner(service.sample_endpoint, epoch=1), Learner(service.sample_endpoint, epoch=2)
        old.warm_stats()
        assert [old.subscribe("old").kind, new.subscribe("new").kind] == ["refused", "subscribed"]


def test_duplicates_and_reconnects_insert_nothing_twice(server: Any, any_seed: Callable[[int], int]) -> None:
    with serving(config(redis=str(server.socket))) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        rng = np.random.default_rng(any_seed(3))
        for _ in range(40):
            actor.produce(int(rng.integers(1, 4)))
            for _ in range(int(rng.integers(0, 4))):
                actor.step(0.001)
            actor.reconnect()
        actor.until(lambda: actor.window.unacknowledged == 0, 30)
        stats = learner.stats()
        assert (stats["inserted_total"], stats["items"]) == (actor.sequence * 10, min(1000, actor.sequence * 10))
        # The same bytes once more, from a peer that was welcomed: acknowledged again, stored no second time.
        stale = encode(random_chunk(0, inc=actor.inc).to_message(), compress=["frames"])
        before = stats["duplicates_total"]
        actor.client.send(stale)
        actor.until(lambda: learner.stats()["duplicates_total"] > before)
        assert learner.stats()["inserted_total"] == stats["inserted_total"]


def test_hellos_that_queued_up_are_one_welcome_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """As after a restore of fifteen seconds, in which an actor has said hello again and again."""
    caplog.set_level(logging.INFO, "rljob.ingest.service")
    service = ReplayService(config())
    actor = Actor(service.ingest_endpoint, inc="one")
    for session in range(6):
        assert actor.client.send(
            Message("hello", {"actor": "actor-0", "inc": "one", "envs": 1, "session": session}, {})
        )
    time.sleep(0.3)
    now = time.monotonic()
    while service.ingest.receive(now):
        pass
    welcomes = 0
    while (message := actor.client.receive(0.2)) is not None:
        welcomes += message.kind == "welcome"
    assert welcomes == 6, "each is answered"
    lines = [record.message for record in caplog.records if "welcome" in record.message]
    assert lines == ["actor actor-0: welcome, slot 0 of 1, last chunk -1"]
    actor.client.send(Message("hello", {"actor": "actor-0", "inc": "two", "envs": 1, "session": 9}, {}))
    assert actor.client.receive(0.0) is None
    time.sleep(0.1)
    service.ingest.receive(now)
    assert sum("welcome" in record.message for record in caplog.records) == 2, "another life of the actor is said"
    actor.client.close()
    service.ingest_server.close()
    service.sample_server.close()


def test_strangers_are_told() -> None:
    with serving(config()) as service:
        stranger = Actor(service.ingest_endpoint)
        eventually(lambda: stranger.client.send(encode(random_chunk(0).to_message())))
        reply = stranger.client.receive(60)
        assert (reply.kind, reply.fields["known"]) == ("pulse", False)
        learner = Learner(service.sample_endpoint)
        reply = learner.sample()
        assert (reply.kind, "subscribe" in reply.fields["reason"]) == ("refused", True)
        assert learner.stats()["rejected_total"]["unknown"] == 2


def test_a_request_may_cost_more_or_less_than_it_draws() -> None:
    """One batch over several shards: its draws are divided by one rule, what it costs the limiters by another."""
    with serving(config(limiter=LimiterConfig(4.0, 20, 100.0, insert_step=10, sample_step=16))) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        actor.send_all(3)
        learner.subscribe()
        for request, draws in enumerate([[(0, 16)], [(16, 0)], [(2, 5), (3, 6)]]):
            batch = learner.ask(sample(request, *draws), "batch")
            assert (batch.fields["parts"], len(batch.columns["rows"])) == (len(draws), sum(count for count, _ in draws))
            assert batch.fields["mass"] == pytest.approx(service.table.selector.tree.total)
        assert service.table.limiter.sampled == 27
        assert batch.fields["error"] == service.table.limiter.error == 4.0 * 30 - 27 - 80
        for draws in ((16, 161), (100_000, 0)):
            refused = learner.ask(sample(9, draws), "batch")
            assert str(max(draws)) in refused.fields["reason"], "it would wait for ever, or be larger than a message"
        stats = learner.stats()
        assert (stats["rejected_total"], stats["durability"]) == ({"size": 2}, "Off")


def test_requests_are_answered_together_as_far_as_the_limiter_allows() -> None:
    with serving(config(limiter=LimiterConfig(4.0, 20, 100.0, insert_step=10, sample_step=16))) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        actor.send_all(3)
        learner.subscribe()
        first = learner.ask(sample(1, *[(16, 40)] * 5), "batch")
        assert (first.fields["req"], first.fields["parts"], len(first.columns["rows"])) == (1, 3, 48)
        actor.send_all(1)
        rest = [learner.ask(sample(6), "batch")]
        while rest[-1].fields["req"] + rest[-1].fields["parts"] < 6:
            actor.send_all(1)
            rest.append(learner.ask(sample(6), "batch"))
        assert sum(each.fields["parts"] for each in rest) == 2, "each is answered once"


def test_in_turns_one_chunk_is_asked_for_when_the_learner_has_learned_from_all_before() -> None:
    """Each chunk of ten allows one batch more."""
    limiter = LimiterConfig(1.6, 20, 16.0, insert_step=10, sample_step=16)
    with serving(config(limiter=limiter, credits=1, in_turns=True)) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)

        def credits() -> int:
            for _ in range(20):
                actor.step()
            return actor.window.credits

        def ask(version: int) -> Message:
            asked = sample(version, (16, 16))
            return Message("sample", {**asked.fields, "pv": version}, asked.columns)

        actor.send_all(2)
        assert credits() == 0, "there is enough to learn from, and nobody has learned"
        learner.subscribe()
        learner.ask(ask(1), "batch")
        assert credits() == 0, "the learner computes"
        for version in (2, 3):
            learner.client.send(ask(version))
            assert (credits(), actor.least_version) == (1, version), "by the newest weights"
            actor.next_heartbeat = 0.0
            actor.send_all(1)
            batch = learner.ask(sample(99), "batch")
            assert batch.fields["steps"] == service.roster.steps_total == actor.sequence * 10
            assert credits() == 0


def test_a_mirror_has_what_every_batch_names() -> None:
    """The ring that a learner fills from mirror messages holds the very transitions that the service has drawn."""
    with serving(config(capacity=Capacity(300))) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        mirror = SegmentRing(CHUNKS, learner.subscribe("one").fields["chunks"])
        batch = transition_arrays(CHUNKS, 32)
        for turn in range(30):
            actor.send_all(3)
            learner.client.send(sample(turn, (20, 20), (12, 12)))
            while (message := learner.client.receive(2.0)) is not None and message.kind != "batch":
                assert message.kind == "mirror"
                chunk = Segment.from_message(message, CHUNKS)
                mirror.insert(message.fields["slot"], message.fields["gen"], chunk)
            assert message is not None
            drawn = drawn_of(message.columns["rows"])
            slots = drawn["slot"]
            assert mirror.matches(slots, drawn["gen"]).all()
            mirror.gather(slots, batch)
            for row, (number, offset) in enumerate(zip(batch["policy_version"], slots % CHUNKS.length, strict=True)):
                sent = random_chunk(int(number), inc=actor.inc)
                newest = int(sent["next_observation"][offset])
                np.testing.assert_array_equal(batch["next_observation"][row, -1], sent["frames"][newest])
                assert batch["n_step_return"][row] == sent["n_step_return"][offset]
        assert service.table.oldest > 0, "the ring must have wrapped"


def test_made_up_names_of_actors_are_forgotten_and_counted(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 20
    monkeypatch.setattr("rljob.ingest.table.MOST_ACTORS", most)
    settings = config(redis=str(server.socket))

    def remembered(service: Any) -> list[int]:
        ledger, leases = service.ingest.ledger, service.leases
        return [len(names) for names in (service.ingest.accepted.by_actor, ledger._accepted, leases._last)]

    with serving(settings) as service:
        honest, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        honest.send_all(3)
        for number in range(5 * most):
            stranger = Actor(service.ingest_endpoint, f"made-up-{number}")
            stranger.send_all(1)
            stranger.client.send(Message("goodbye", {"actor": stranger.name, "inc": stranger.inc}, {}))
            stranger.client.close()
            honest.step(0.0)
        honest.send_all(3)
        stats = learner.stats()
        assert (stats["forgotten_actors_total"], len(service.status.accepted)) == (5 * most + 1 - most, most)
        assert service.status.accepted[honest.name]["transitions"] == 60
        assert max(remembered(service)) == most
        assert stats["duplicates_total"] == 0
    with serving(settings) as service:
        stats = Learner(service.sample_endpoint).warm_stats()
        assert len(service.status.accepted) == most, "nor does the log grow"
        again = Actor(service.ingest_endpoint, honest.name, honest.inc)
        again.until(lambda: again.window.connected)
        assert again.welcome["seq"] == 5, "who had a session all the time is known as before"


def test_episodes_and_roster(server: Any) -> None:
    with serving(config(redis=str(server.socket))) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        actor.send_all(2)
        rows = {
            "ret": np.array([1.0, -3.0], np.float32), "length": np.array([10, 20], np.int32),
            "raw": np.array([40, 80], np.int32), "env": np.array([0, 1], np.int32),
            "epsilon": np.array([0.4, 0.01], np.float32), "cut": np.array([0, 1], np.uint8), "pv": np.array([1, 2]),
        }  # fmt: skip
        actor.client.send(Message("episodes", {"actor": actor.name, "inc": actor.inc}, rows))
        actor.until(lambda: learner.stats()["episodes_total"] == 2)
        stats = learner.stats()
        assert [episode["greedy_half"] for episode in stats["episodes"]] == [False, True]
        assert [episode["truncated"] for episode in stats["episodes"]] == [False, True]
        actor.next_heartbeat = 0.0
        actor.until(lambda: learner.stats()["steps_total"] == 20)
    with serving(config(redis=str(server.socket))) as service:
        stats = Learner(service.sample_endpoint).warm_stats()
        assert (stats["episodes_total"], stats["steps_total"], stats["episodes"][1]["return"]) == (2, 20, -3.0)


def test_the_shard_ends_with_the_reason_and_acknowledges_nothing_more(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, broken = ChunkLog.commit, threading.Event()

    def failing(self: ChunkLog, what: Commit) -> None:
        if broken.is_set():
            raise TypeError("no such encoding")
        commit(self, what)

    monkeypatch.setattr(ChunkLog, "commit", failing)
    service, over = ReplayService(config(redis=str(server.socket))), threading.Event()

    def run(stop: threading.Event) -> None:
        with pytest.raises(ThreadEnded, match=r"^thread replay-log has ended: TypeError: no such encoding$"):
            service.run(stop)
        over.set()

    with running(run):
        actor = Actor(service.ingest_endpoint)
        actor.send_all(5, 30)
        assert (actor.acked, actor.durable) == (4, True)
        broken.set()
        actor.produce(3)
        actor.until(over.is_set, 30)
    assert service.status.durable is False
    assert actor.acked == 4, "what was not written was not acknowledged, and will be sent again"

    monkeypatch.setattr(ChunkLog, "commit", commit)
    with serving(config(redis=str(server.socket), ingest=service.config.ingest)) as again:
        actor.reconnect()
        actor.until(lambda: actor.window.unacknowledged == 0, 60)
        assert again.table.limiter.inserted == 80, "each of eight chunks once"
