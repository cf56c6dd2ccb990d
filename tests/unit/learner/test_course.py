"""What a running learner follows: live values, their schedule, and a fork from another run's checkpoint.

Interruptions of training: a checkpoint on request, and games that need its cores.
"""

import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.api.learner_status import EvaluationUnderWay, Verdict
from rljob.api.live import digest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import stored, verify
from rljob.learner import state
from rljob.learner.loop import Learner
from rljob.weights.client import WeightClient
from rljob.weights.flat import Evaluation
from rljob.weights.server import WeightServer

from tests.support.waiting import eventually, known
from tests.unit.learner.learner_builders import (
    assert_equal,
    batches_of,
    identity,
    parameters,
    unroll_parameters,
    updater,
)
from tests.unit.learner.test_non_finite import learner, ready

FORK = {"id": "a", "from": "file:///donor", "digest": f"sha256:{'0' * 64}"}


def asked(live: dict[str, Any] | None = None, fork: Any = None, schedule: Any = ()) -> dict[str, Any]:
    return {"live": {"algorithm.learningRate": 1e-3, **(live or {})}, "fork": fork, "schedule": list(schedule)}


def weights(one: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in one._updater.online.state_dict().items()}


def follows(one: Learner, document: dict[str, Any]) -> None:
    one._course.ask(document)
    eventually(lambda: one._follow() or one.status().following == digest(document), seconds=5.0)


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    """The checkpoints of a run of four updates that learned with another rate."""
    params = parameters(learning_rate=5e-2)
    with learner(tmp_path / "donor", "Fail", identity(params), updater(params, seed=7)) as other:
        for _ in range(4):
            other._learn(ready(3.0))
        other._save(wait=True)
    return tmp_path / "donor"


def test_a_fork_takes_weights_and_moments_and_no_count_and_no_parameter(tmp_path: Path, donor: Path) -> None:
    own = tmp_path / "own"
    with learner(own, "Fail", forks_from=donor) as one:
        one._learn(ready(1.0))
        one.counters.played(500, 1000)
        before = one.counters.document(one._updater.updates)
        follows(one, asked({"algorithm.learningRate": 2e-3}, FORK))
        found = known(checkpoint.latest_valid(donor))
        for section, network in one._updater.networks().items():  # the target network, too
            assert_equal(network.state_dict(), found.section(section))
        assert_equal(one._updater.optimizer.state(0), found.section("optimizer.0"))
        after = one.counters.document(one._updater.updates)
        assert after == before | {"epoch": before["epoch"] + 1}, "version 0: nothing was published before"
        assert one._updater.learning_rate.at(0) == 2e-3
        assert known(one.status().fork).to_document() | {"message": ""} == {
            "id": "a", "state": "Done", "message": "", "updates": 1, "raw_frames": 1000,
        }  # fmt: skip
        one._learn(ready(1.0))
        one._housekeeping()
        one._saver.finish()
        saved = known(checkpoint.latest_valid(own))
        assert (saved.manifest["fork"], saved.manifest["parameters"]["learning_rate"]) == ("a", 2e-3)
        moved = weights(one)
        assert any((tensor != found.section("online")[name]).any() for name, tensor in moved.items())
        one._follow()
        assert_equal(weights(one), moved)  # it is done once
    with learner(own, "Fail", forks_from=tmp_path / "nothing") as again:
        again.resume(saved)
        follows(again, asked({}, FORK))
        assert known(again.status().fork).state == "Done"
        assert_equal(weights(again), moved)


def test_a_fork_does_not_wait_for_an_evaluation_that_training_stands_still_for(tmp_path: Path, donor: Path) -> None:
    with learner(tmp_path / "own", "Fail", forks_from=donor) as one:
        one._server._evaluating = EvaluationUnderWay(games=1, episodes=2, alone=True), time.monotonic()
        one._course.ask(asked({}, FORK))
        eventually(lambda: one._turn() or known(one.status().fork).state == "Done", seconds=5.0)
        assert one.state == "Evaluating"


def test_nothing_is_learned_once_all_frames_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with learner(tmp_path / "own", "Fail") as one:
        monkeypatch.setattr(one._source, "next", lambda seconds: replace(ready(1.0), played=(100, 400)))
        for most, updates in ((400, 1), (401, 4), (None, 7)):
            one._course.ask({**asked(), "rawFrames": most})
            for _ in range(3):
                one._turn()
            assert (one.status().updates, one.status().raw_frames_total) == (updates, 400)


def test_a_fork_is_taken_before_the_weights_of_the_batch_under_way_are_published(tmp_path: Path, donor: Path) -> None:
    with learner(tmp_path / "own", "Fail", forks_from=donor) as one:
        one._learn(ready(1.0))
        one._course.ask(asked({}, FORK))
        eventually(lambda: one._course._came["a"] is not None, seconds=5.0)
        one._learn(ready(1.0))
        assert known(one.status().fork).to_document() | {"message": ""} == {
            "id": "a", "state": "Done", "message": "", "updates": 2, "raw_frames": 0,
        }  # fmt: skip


def test_a_learner_that_goes_back_behind_a_fork_does_it_again(tmp_path: Path, donor: Path) -> None:
    with learner(tmp_path / "own", "Fail", forks_from=donor) as one:
        one._learn(ready(1.0))
        one._save(wait=True)
        follows(one, asked({}, FORK))
        epoch, taken = one.counters.epoch, weights(one)
        one.resume(known(checkpoint.latest_valid(tmp_path / "own")))
        follows(one, asked({}, FORK))
        assert one.counters.epoch == epoch + 1
        assert_equal(weights(one), taken)


@pytest.mark.parametrize(("hidden", "words"), [(16, "holds none"), (8, "of another network")])
def test_a_fork_that_can_not_be_is_refused_and_the_values_count_all_the_same(
    tmp_path: Path, hidden: int, words: str
) -> None:
    params = parameters(hidden_units=hidden)
    with learner(tmp_path / "donor", "Fail", identity(params)) as other:
        if hidden == 8:
            state_of = state.capture(updater(params))
            checkpoint.write(tmp_path / "donor", checkpoint.checkpoint_name(1, 1), state_of, other._manifest())
    with learner(tmp_path / "own", "Fail", forks_from=tmp_path / "donor") as one:
        before, epoch = weights(one), one.counters.epoch
        follows(one, asked({"algorithm.learningRate": 2e-3}, FORK))
        said = known(one.status().fork)
        assert (said.state, words in said.message, one.counters.epoch) == ("Refused", True, epoch)
        assert one._updater.learning_rate.at(0) == 2e-3
        assert_equal(weights(one), before)


def test_entries_of_a_schedule_count_in_order_and_a_resumed_learner_has_those_that_are_due(tmp_path: Path) -> None:
    entries = [
        {"afterRawFrames": frames, "set": {"algorithm.learningRate": rate}}
        for frames, rate in ((100, 2e-3), (200, 3e-3))
    ]
    with learner(tmp_path, "Fail") as one:
        rates = []
        for frames in (0, 99, 100, 300):
            one._played = frames, frames
            follows(one, asked(schedule=entries))
            rates.append((one._updater.learning_rate.at(0), one.status().scheduled or 0))
        assert rates == [(1e-3, 0), (1e-3, 0), (2e-3, 1), (3e-3, 2)]


def test_what_the_job_can_not_follow_is_refused(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        of_values = asked({"algorithm.hiddenUnits": 3}), asked({"algorithm.learningRate": float("nan")})
        of_others = {}, asked(fork={"id": "a"}), asked(schedule=[{"set": {}}]), {"live": 1, "fork": None, "schedule": 3}
        for wrong in (*of_values, *of_others):
            with pytest.raises(ValueError, match="are expected"):
                one._course.ask(wrong)


@pytest.mark.usefixtures("traced_alone")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("algorithm", "clips"),
    [("PPO", {"clip_range": 0.05}), ("IMPALA", {"rho_clip": 0.7, "c_clip": 0.5, "vtrace_lambda": 0.8})],
)
def test_a_changed_cost_takes_effect_in_the_next_update(
    compiled: bool, algorithm: str, clips: dict[str, float]
) -> None:
    before = unroll_parameters(algorithm, entropy_cost=0.0, gradient_clip_norm=0.5)
    after = before.updated(entropy_cost=0.3, gradient_clip_norm=0.0, learning_rate=5e-3, **clips)
    (batch,) = batches_of(before, 1)
    changed, fresh = updater(before), updater(after)
    if compiled:
        changed.compile()
        torch.manual_seed(3)
        first = updater(before)  # the graph is made with the values of before
        changed.differentiated(next(iter(first.minibatches(batch))))
    changed.follow(after)
    found = []
    for each in (changed, fresh):
        torch.manual_seed(3)
        found.append([figures.clone() for _, figures in each.updates_from(batch, 0)])
    torch.testing.assert_close(torch.stack(found[0]), torch.stack(found[1]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(changed.online.state_dict(), fresh.online.state_dict(), rtol=1e-3, atol=1e-5)
    assert changed.recompiles == 0


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


def evaluator_of(server: WeightServer) -> closing[WeightClient]:
    return closing(WeightClient(server.weights, server.notice, evaluation=True))


def under_way(games: int, *, alone: bool = False) -> EvaluationUnderWay:
    return EvaluationUnderWay(version=1, games=games, episodes=100, mean=18.5, alone=alone)


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
        eventually(lambda: one._turn() or one.state == "Evaluating")
        before = one.status()
        for _ in range(3):
            one._turn()
        assert one.status().updates == before.updates
        assert one.clock.seconds()["evaluation"] > 0.2
        evaluator.report(Evaluation(Verdict(version=1, mean=18.5, episodes=2)))
        eventually(lambda: one._turn() or one.state == "Training")
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
