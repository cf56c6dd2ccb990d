"""K replay shards work as one: what is drawn and with which weights, who is given what, and a shard that comes late or back."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rljob.algorithms.base import importance_weights
from rljob.learner.shard import ShardSession

from tests.support.sharded_replay import BATCH, IMPORTANCE, Sharded, filled
from tests.support.waiting import eventually


def total(sharded: Sharded, name: str) -> int:
    """A figure of every shard that the learner has heard of, added up."""
    return sum(getattr(shard, name) for shard in sharded.client.statuses())


def listed(sharded: Sharded) -> list[str]:
    return sorted(actor.name for shard in sharded.client.statuses() for actor in shard.actors)


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rljob-") as directory:
        yield Path(directory)


def test_shards_are_drawn_from_as_one_table(sockets: Path) -> None:
    """The oracle is the definition for one table of everything: P(i) = p_i^alpha / sum, and its importance weights."""
    with filled(sockets, 8) as (sharded, weights):
        expected = weights / weights.sum()
        drawn = np.zeros(len(weights), np.int64)
        eventually(lambda: all(session.subscribed for session in sharded.client._sessions), "subscriptions")
        time.sleep(1.5)  # every shard has said what it holds
        for number, batch in enumerate(sharded.batches(600)):
            if number < 8:  # asked for when not all shards were known
                continue
            transitions = batch.batch.action.numpy()
            drawn += np.bincount(transitions, minlength=len(drawn))
            oracle = importance_weights(expected[transitions], IMPORTANCE)
            np.testing.assert_allclose(batch.batch.weight.numpy(), oracle, rtol=1e-5)
        # rare transitions together in one cell, so that every cell expects at least five
        order = np.argsort(expected)
        cells = np.floor(np.cumsum(expected[order]) * drawn.sum() / 5.0).astype(int)
        seen, should = np.bincount(cells, drawn[order]), np.bincount(cells, expected[order] * drawn.sum())
        kept = should > 0
        assert chi_square_chance(seen[kept], should[kept]) > 1e-4


def chi_square_chance(seen: np.ndarray, expected: np.ndarray) -> float:
    """The chance of a fit at least as bad, were ``expected`` (of the same sum) the truth."""
    statistic = float(((seen - expected) ** 2 / expected).sum())
    halves = torch.tensor([(len(seen) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*halves))


@pytest.mark.parametrize(
    ("count", "actor_pause", "learner_pause"), [(2, 0.02, 0.0), (8, 0.0, 0.02)], ids=["starved", "learner-bound"]
)
def test_every_shard_is_given_and_gives_its_part(
    sockets: Path, count: int, actor_pause: float, learner_pause: float
) -> None:
    with Sharded(sockets, count, actors=2, pause_seconds=actor_pause) as sharded:
        eventually(lambda: all(session.subscribed for session in sharded.client._sessions), "subscriptions")
        sharded.learn(20 * count, learner_pause)
        before = sharded.inserted()
        rows = sharded.learn(40 * count, learner_pause)
        inserted = np.subtract(sharded.inserted(), before)
        assert inserted.min() > 0.7 * inserted.mean(), f"no shard freezes: {inserted.tolist()}"
        assert inserted.max() < 1.3 * inserted.mean(), f"none takes everything: {inserted.tolist()}"
        assert set(rows) == set(range(count))
        masses = np.array([shard.service.table.selector.tree.total for shard in sharded.shards])
        shares = np.array([rows[index] for index in range(count)]) / sum(rows.values())
        np.testing.assert_allclose(shares, masses / masses.sum(), rtol=0.5)
        eventually(lambda: listed(sharded) == ["actor-0", "actor-1"], "each actor is listed by one shard")
        errors = [shard.service.table.limiter.error for shard in sharded.shards]
        assert max(errors) - min(errors) < 4 * BATCH, f"the limiters stay level: {errors}"


@pytest.mark.parametrize(("number", "learner_pause"), [(0, 0.02), (1, 0.0)])
def test_a_shard_that_comes_back_cold_does_not_stop_training(sockets: Path, number: int, learner_pause: float) -> None:
    with Sharded(sockets, 2, actors=2) as sharded:
        sharded.learn(100, learner_pause)
        both = total(sharded, "inserted_total")
        sharded.shards[number].end()

        def without_it() -> bool:
            """Training goes on, and no sum has figures of a shard that is gone."""
            return set(sharded.learn(5, learner_pause)) == {1 - number} and total(sharded, "capacity") == 4000

        eventually(without_it, "the shard is not missed")
        alone = total(sharded, "inserted_total")
        assert alone >= both
        sharded.shards[number].start()
        eventually(lambda: number in sharded.learn(10, learner_pause), "rows of the shard that came back")
        before = sharded.inserted()
        sharded.learn(200, learner_pause)
        inserted = np.subtract(sharded.inserted(), before)
        assert inserted.min() > 0.6 * inserted.mean(), inserted.tolist()
        eventually(lambda: total(sharded, "capacity") == 8000, "both shards in the sums")
        assert total(sharded, "inserted_total") > alone, "totals go on"


def test_a_shard_that_answers_but_never_samples_is_named_and_drawn_around(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rljob.learner.shard.OWING_SECONDS", 1.0)
    with Sharded(sockets, 2, actors=2) as sharded:
        eventually(lambda: set(sharded.learn(20)) == {0, 1}, "both are drawn from")
        with monkeypatch.context() as stuck:
            stuck.setattr(sharded.shards[1].service.sampling, "_answer", lambda *_: False)
            eventually(lambda: set(sharded.learn(5)) == {0}, "batches of the other")
            assert "replay shard 1 answers, but has sent no batch for" in caplog.text
        eventually(lambda: set(sharded.learn(20)) == {0, 1}, "both again")


def test_a_stand_still_of_both_sides_is_named(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limiters are made to block both sides, which they never do: what is tried is that it would be seen and said."""
    with Sharded(sockets, 2, actors=2) as sharded:
        sharded.learn(50)
        for shard in sharded.shards:
            monkeypatch.setattr(shard.service.table.limiter, "can_insert", lambda count: False)
            monkeypatch.setattr(shard.service.table.limiter, "can_sample", lambda count: False)
        while (batch := sharded.client.next(2.0)) is not None:  # what was on its way
            sharded.client.give_back(batch)
        assert sharded.client.section()["standstill"] == ""
        eventually(lambda: sharded.client.section()["standstill"], "the stand-still is said")
        said = sharded.client.section()["standstill"]
        assert "all 2 actors wait to insert: replay-0 waits for inserts" in said
        assert "; replay-1 waits for inserts" in said
        monkeypatch.undo()
        sharded.learn(50)
        assert sharded.client.section()["standstill"] == ""


@pytest.mark.parametrize(("exponent", "sent"), [(0.6, True), (0.0, False)])
def test_priorities_are_sent_where_draws_go_by_them(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, exponent: float, sent: bool
) -> None:
    passed_on = []
    monkeypatch.setattr(ShardSession, "priorities", lambda self, *given: passed_on.append(given))
    with Sharded(sockets, 1, actors=1, exponent=exponent) as replay:
        replay.learn(12)
    assert bool(passed_on) == sent
