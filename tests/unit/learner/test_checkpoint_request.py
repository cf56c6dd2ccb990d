"""Interruptions of training: a checkpoint on request, and games that need its cores."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rljob.api.learner_status import EvaluationUnderWay, Verdict
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import stored, verify
from rljob.checkpoints.names import CheckpointProblem
from rljob.learner.loop import Learner
from rljob.roles.learner import wanted_since
from rljob.weights.evaluations import Evaluation
from rljob.weights.exchange import WeightClient, WeightServer

from tests.support.waiting import eventually
from tests.unit.learner.test_non_finite import learner, ready


def test_a_request_is_answered_once_with_a_checkpoint_that_verifies(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:

        def kept() -> list[Path]:
            one._housekeeping()
            one._saver.finish()
            return stored(tmp_path)

        one.request_checkpoint(time.time())
        assert kept() == [], "before the first update there is nothing to save"
        status = one.status().checkpoint
        assert (status.written_unix, status.interval_seconds > 0) == (None, True)
        one._learn(ready(1.0))
        (path,) = kept()
        status = one.status().checkpoint
        assert (status.digest, status.written_unix <= time.time()) == (verify(path).digest, True)
        one._learn(ready(1.0))
        assert kept() == [path], "the same request asks for nothing more"
        one.request_checkpoint(time.time() + 3600.0)
        second = path.with_name(checkpoint.checkpoint_name(1, 2))
        assert [kept() for _ in range(3)] == [[second, path]] * 3, "once, even from the future"
        one._learn(ready(1.0))
        one.request_checkpoint(asked := time.time() - 3600.0)
        newest = kept()[0]
        assert newest.name == checkpoint.checkpoint_name(1, 3), "nor does a clock that was set back matter"
        assert verify(newest).manifest["requested_unix"] == asked


def test_a_damaged_checkpoint_does_not_verify(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        one._learn(ready(1.0))
        one._save(wait=True)
    (path,) = stored(tmp_path)
    content = bytearray((path / checkpoint.TENSORS).read_bytes())
    content[-1] ^= 1
    (path / checkpoint.TENSORS).write_bytes(content)
    with pytest.raises(CheckpointProblem, match="damaged"):
        verify(path)


@pytest.mark.parametrize("note", [{}, {"sinceUnix": "now"}, {"sinceUnix": True}, {"sinceUnix": float("nan")}])
def test_a_request_needs_a_time(note: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="sinceUnix"):
        wanted_since(note)


@contextmanager
def evaluator_of(server: WeightServer) -> Iterator[WeightClient]:
    client = WeightClient(server.weights, server.notice, evaluation=True)
    yield client
    client.close()


def verdict() -> Evaluation:
    return Evaluation(Verdict(version=1, mean=18.5, episodes=2))


def under_way(games: int, *, alone: bool = False) -> EvaluationUnderWay:
    return EvaluationUnderWay(version=1, games=games, episodes=100, mean=18.5, alone=alone)


def in_state(one: Learner, state: str) -> bool:
    one._turn()
    return one.state == state


def test_no_update_is_made_until_there_is_a_verdict(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one, evaluator_of(one._server) as evaluator:
        one._source.next = lambda seconds: ready(1.0)
        one._turn()
        assert one.status().updates == 1
        evaluator.tell(under_way(19))
        eventually(lambda: one._server.evaluating is not None)
        one._turn()
        assert one.status().updates == 2, "beside the screen it goes on"
        evaluator.tell(under_way(20, alone=True))
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
        evaluator.tell(under_way(20, alone=True))
        eventually(lambda: one.state == "Evaluating")
        stop.set()
        thread.join(10.0)
        assert not thread.is_alive()
        assert list(tmp_path.glob("*/manifest.json"))
