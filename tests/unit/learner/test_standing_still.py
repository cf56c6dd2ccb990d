"""Training stands still while the games of an evaluation that may end the run want the machine's cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rljob.learner.loop import Learner
from rljob.weights.evaluations import Evaluating, Evaluation
from rljob.weights.exchange import WeightClient, WeightServer

from tests.support.waiting import eventually
from tests.unit.learner.test_non_finite import learner, ready


@contextmanager
def evaluator_of(server: WeightServer) -> Iterator[WeightClient]:
    client = WeightClient(server.weights, server.notice, evaluation=True)
    yield client
    client.close()


def verdict() -> Evaluation:
    return Evaluation(1, 18.5, 0.3, 12.0, True, np.array([18.0, 19.0], np.float32), np.array([9, 8], np.int32))


def in_state(one: Learner, state: str) -> bool:
    one._turn()
    return one.state == state


def test_no_update_is_made_until_there_is_a_verdict(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one, evaluator_of(one._server) as evaluator:
        one._source.next = lambda seconds: ready(1.0)
        one._turn()
        assert one.status().updates == 1
        evaluator.tell(Evaluating(1, 19, 100, 18.5))
        eventually(lambda: one._server.evaluating is not None)
        one._turn()
        assert one.status().updates == 2, "beside the screen it goes on"
        evaluator.tell(Evaluating(1, 20, 100, 18.5, alone=True))
        eventually(lambda: in_state(one, "Evaluating"))
        before = one.status()
        for _ in range(3):
            one._turn()
        assert one.status().updates == before.updates
        assert one.clock.seconds()["evaluation"] > 0.2
        evaluator.report(verdict())
        eventually(lambda: in_state(one, "Training"))
        assert one.status().updates == before.updates + 1


def test_it_leaves_and_saves_when_asked_while_it_stands_still(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one, evaluator_of(one._server) as evaluator:
        one._source.next = lambda seconds: ready(1.0)
        stop = threading.Event()
        thread = threading.Thread(target=one.run, args=(stop,))
        thread.start()
        eventually(lambda: one.state == "Training")
        evaluator.tell(Evaluating(1, 20, 100, 18.5, alone=True))
        eventually(lambda: one.state == "Evaluating")
        stop.set()
        thread.join(10.0)
        assert not thread.is_alive()
        assert list(tmp_path.glob("*/manifest.json"))
