"""Ranks of a learner that wait for each other, or do not; and those that are refused."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from rljob.api.exit_codes import EXIT_RANK_LOST
from rljob.errors import UsageError
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.ranks import Meeting, RankLost, Ranks
from rljob.learner.sources import PATIENCE_SECONDS, InStep

from tests.support.ports import free_ports
from tests.support.rank import answers

ROUNDS = 30


class Weighed(NamedTuple):
    weight: torch.Tensor


class Feed:
    """A source of this rank's own: so many batches, each with a least chance, and what else its learner asks of one."""

    needs_weights_first, consumed = False, 0.0

    def __init__(self, batches: int, least: float) -> None:
        self._left, self._least = batches, least
        self.produced, self.handed_back = float(batches), 0

    def next(self, timeout_seconds: float) -> Any:
        if not self._left:
            time.sleep(timeout_seconds)
            return None
        self._left -= 1
        return SimpleNamespace(least=self._least, wait=lambda: Weighed(torch.ones(2)))

    def give_back(self, batch: Any) -> None:
        self.handed_back += 1

    def statuses(self) -> list[ShardStatus]:
        return [ShardStatus(items=3)]


def of_a_rank(ranks: Ranks) -> dict[str, Any]:
    """Rank 1 has ten batches, the others many."""
    feed, asked = Feed(10 if ranks.rank == 1 else 10**9, 0.5**ranks.rank), threading.Event()
    shared: list[bytes] = []
    source = InStep(ranks, feed, asked, lambda: "stand-in", lambda least, of_all: of_all / least)
    source.on_news = lambda: shared.extend(ranks.gather(b"" if ranks.rank else b"weights"))
    learners: list[int] = []
    weights = []
    while len(learners) < ROUNDS:
        batch = source.next(0.2)
        if batch is not None:
            learners.append(source.learners)
            weights.append(batch.wait())
            source.give_back(batch)
    if ranks.rank == 1:
        asked.set()
    while not source.left.is_set():
        source.next(0.2)
    return {
        "learners": learners,
        "first": weights[0].weight.tolist(),
        "last": weights[-1] if ranks.rank else None,
        "shared": shared,
        "handed back": feed.handed_back,
        "shards": len(source.statuses()),
    }


def test_a_rank_without_batches_is_waited_for_once_and_holds_up_nobody(tmp_path: Path) -> None:
    began = time.monotonic()
    first, second = answers(f"{__name__}:of_a_rank", tmp_path)
    assert first["learners"] == second["learners"] == [2] * 10 + [1] * (ROUNDS - 10)
    assert time.monotonic() - began < PATIENCE_SECONDS + 30.0
    # The largest weight of both is 1: it belongs to the least chance, which rank 1 drew with.
    assert (first["first"], second["first"], second["last"]) == ([0.5, 0.5], [1.0, 1.0], "stand-in")
    assert first["shared"] == second["shared"] == [b"weights", b""]
    assert (first["handed back"], second["handed back"]) == (ROUNDS, 10)
    assert (first["shards"], second["shards"]) == (2, 1)


def refusal(rank: int, count: int, port: int, about: dict[str, str]) -> str:
    with pytest.raises(UsageError) as refused:
        Meeting(rank, count, ("127.0.0.1", port), 1, about).agree()
    return str(refused.value)


def test_a_rank_of_another_job_or_number_of_processes_is_refused_in_words() -> None:
    for about, count, words in (
        ({"job": "b"}, 2, "rank 1 is of another job than rank 0: job b (rank 0: a); start all from one manifest"),
        (
            {"job": "a"},
            3,
            "rank 1 is of another job than rank 0: WORLD_SIZE 3 (rank 0: 2); start all from one manifest",
        ),
    ):
        with ThreadPoolExecutor(2) as ranks:
            assert [*ranks.map(refusal, (0, 1), (2, count), free_ports(1) * 2, ({"job": "a"}, about))] == [words] * 2


def test_a_rank_that_is_told_to_leave_waits_no_longer() -> None:
    (port,) = free_ports(1)
    stop = threading.Event()
    stop.set()
    with pytest.raises(RankLost, match=r"rank 1 of 2 has waited for rank 0 at 127\.0\.0\.1"):
        Meeting(1, 2, ("127.0.0.1", port), 1, {}, stop)


def of_one_that_is_lost(ranks: Ranks) -> None:
    if ranks.rank == 1:
        os._exit(0)
    try:
        ranks.sum(torch.ones(1))
    except RankLost as error:
        print(error, flush=True)
    time.sleep(60)  # as a library's thread that hangs


def test_a_rank_that_has_lost_another_ends_whatever_holds_it(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match=rf"\[{EXIT_RANK_LOST}, 0\]"):
        answers(f"{__name__}:of_one_that_is_lost", tmp_path)
    assert time.monotonic() - began < 50.0
