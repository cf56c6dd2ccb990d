"""The evaluator role against a real weight server, in one process."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.api import RLJob, parse_job
from rljob.checkpoints import store as checkpoint
from rljob.cli.app import app
from rljob.roles.evaluator import run_evaluator
from rljob.roles.options import RoleOptions
from rljob.weights.evaluations import Evaluating, Evaluation
from rljob.weights.exchange import WeightServer
from torch import nn
from typer.testing import CliRunner

from tests.support.evaluated_jobs import identity_of, manifest, network
from tests.support.threads import running


def _push_left(job: RLJob) -> nn.Module:
    """A policy of about ten steps a game."""
    module = network(job)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


def _job(target: float | None = None, algorithm: dict[str, Any] | None = None, **evaluator: Any) -> RLJob:
    return parse_job(manifest(target, algorithm, **{"episodes": 5, "intervalSeconds": 1, **evaluator}))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Start an evaluator thread for a job; stops and joins it at the end."""
    with ExitStack() as threads:

        def start(job: Any, weights: str, notice: str, **surroundings: Any) -> Path:
            announce = tmp_path / "evaluator.json"
            where: dict[str, Any] = {"weights": weights, "notice": notice, "announce": announce, **surroundings}
            options = RoleOptions(job, tmp_path, "evaluator", **where)
            threads.enter_context(running(lambda stop: run_evaluator(options, stop)))
            return announce

        yield start


def _serve_until(server: WeightServer, done: Any, seconds: float = 60) -> list[Evaluation]:
    """Collect verdicts until ``done(evaluations so far)`` or time is up."""
    evaluations: list[Evaluation] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not done(evaluations):
        evaluations += server.evaluations()
        time.sleep(0.01)
    return evaluations


def _verdict(run: Any, job: RLJob) -> Evaluation:
    """What it says of a policy that always pushes left."""
    name = uuid.uuid4().hex
    with closing(WeightServer(f"inproc://weights-{name}", f"inproc://notice-{name}")) as server:
        run(job, server.weights, server.notice)
        server.publish(_push_left(job), 1, 1, meta={"mean_return": 9.0})
        (verdict,) = _serve_until(server, lambda seen: len(seen) >= 1)
    return verdict


def test_it_judges_new_weights_and_reports_them_with_the_weights_if_best(run: Any) -> None:
    job = _job()
    with closing(WeightServer("inproc://eval-weights-1", "inproc://eval-notice-1")) as server:
        announce = run(job, server.weights, server.notice)
        server.publish(network(job), 1, 1, meta={"mean_return": None})
        (first,) = _serve_until(server, lambda seen: len(seen) >= 1)
        assert first.version == 1
        assert first.weights is not None
        assert first.finished
        assert len(first.returns) == 5
        assert (first.returns == first.lengths).all()  # CartPole pays 1 a step
        status_url = json.loads(announce.read_text())["metrics_url"] + "/status"
        status = json.loads(urllib.request.urlopen(status_url, timeout=60).read())
        assert status["role"] == "evaluator"
        assert status["last"]["version"] == 1
        # The same version is not judged twice; a new one is.
        assert _serve_until(server, lambda seen: len(seen) >= 1, seconds=2) == []
        server.publish(network(job), 2, 1, meta={"mean_return": None})
        (second,) = _serve_until(server, lambda seen: len(seen) >= 1)
        assert second.version == 2


def test_it_tells_what_the_environment_reports(run: Any) -> None:
    document = manifest(episodes=8, intervalSeconds=1, resources={"limits": {"cpu": "1"}})
    document["spec"]["environment"]["id"] = "tests.support.reporting:Now"
    assert _verdict(run, parse_job(document)).metrics == {"is_success": 1.0, "distance": 0.25, "first": 1.0}


def test_it_plays_in_an_environment_of_its_own(run: Any) -> None:
    place = {"id": "tests.support.reporting:CartPole", "maxEpisodeSteps": 6}
    verdict = _verdict(run, _job(environment=place, resources={"limits": {"cpu": "1"}}))
    assert verdict.lengths.tolist() == [6] * 5
    assert verdict.metrics == {"upright": 1.0}


@pytest.mark.parametrize("cpu", ["1", "2"])
@pytest.mark.parametrize(
    "algorithm",
    [
        {"type": "ApeXDQN", "apeXDQN": {"network": "MLP", "evaluationEpsilon": 0.3}},
        {"type": "IMPALA", "impala": {"network": "MLP", "hiddenUnits": 64, "evaluationTemperature": 0.5}},
    ],
    ids=["random-moves", "sampled"],
)
def test_eval_of_the_weights_judged_reproduces_the_verdict(
    run: Any, tmp_path: Path, algorithm: dict[str, Any], cpu: str
) -> None:
    """As the learner writes ``best/`` from a verdict, and as a user scores it: every game is the same again."""
    job = _job(episodes=30, resources={"limits": {"cpu": cpu}}, algorithm=algorithm)
    with closing(WeightServer(f"inproc://same-{cpu}", f"inproc://same-notice-{cpu}")) as server:
        run(job, server.weights, server.notice)
        server.publish(network(job), 1, 1, meta={"mean_return": None})
        (verdict,) = _serve_until(server, lambda seen: len(seen) >= 1)
    assert verdict.weights is not None
    tensors = {f"policy.{name}": tensor for name, tensor in verdict.weights.state().items()}
    checkpoint.write(tmp_path / "checkpoints", checkpoint.BEST, tensors, identity_of(job).document())
    scored = CliRunner().invoke(app, ["eval", str(tmp_path), "--episodes", "30", "--seed", str(verdict.seed), "--json"])
    assert scored.exit_code == 0, scored.output
    figures = json.loads(scored.stdout)
    assert figures["returns"] == verdict.returns.tolist()
    assert figures["lengths_steps"] == verdict.lengths.tolist()
    assert (figures["mean"], figures["standard_error"]) == (verdict.mean, verdict.standard_error)
    assert len(set(figures["returns"])) > 3, "games that differ"


def test_progress_is_told_while_games_are_played(run: Any) -> None:
    """The learner knows how many games have ended and with which mean, and none are under way once there is a verdict."""
    job = _job(episodes=500)
    told = []

    def done(seen: list[Evaluation]) -> bool:
        if server.evaluating is not None:
            told.append(server.evaluating)
        return len(seen) >= 1

    with closing(WeightServer("inproc://eval-weights-4", "inproc://eval-notice-4")) as server:
        announce = run(job, server.weights, server.notice)
        server.publish(network(job), 3, 1, meta={"mean_return": None})
        while not told:
            assert done(server.evaluations()) is False, "five hundred games take longer than a word about them"
        url = json.loads(announce.read_text())["metrics_url"] + "/status"
        status = json.loads(urllib.request.urlopen(url, timeout=5).read())
        assert status["evaluating"] is None or status["evaluating"]["episodes"] == 500
        (verdict,) = _serve_until(server, done, seconds=120)
        assert server.evaluating is None
    assert {word.version for word in told} == {3}
    assert {word.episodes for word in told} == {500}
    games = [word.games for word in told]
    assert games == sorted(games)
    assert all((word.mean is None) == (word.games == 0) for word in told)
    assert len(verdict.returns) == 500


@pytest.mark.parametrize("cpu", ["1", "3"])
def test_a_hopeless_policy_is_given_up_early(run: Any, cpu: str) -> None:
    job = _job(target=475, episodes=20, resources={"limits": {"cpu": cpu}})
    verdict = _verdict(run, job)
    assert not verdict.finished
    assert verdict.seed == 1 + 1_000_003
    # 500 k + 19 * (20 - k) < 475 * 20: two short games are enough, and the second decides.
    assert len(verdict.returns) == 2
    assert np.isfinite(verdict.mean)


def test_the_screen_gives_up_what_could_reach_its_target_but_is_not_believed_to(run: Any) -> None:
    """Ten steps a game, target 11: any later game could still be one of 500, yet the first twenty say enough. They alone are
    the verdict, whichever games ended beside them."""
    job = _job(target=11, resources={"limits": {"cpu": "2"}}, episodes=100)
    verdict = _verdict(run, job)
    assert not verdict.finished
    assert len(verdict.returns) == 20


@pytest.mark.parametrize("on_cluster", [False, True], ids=["one-machine", "cluster"])
def test_training_is_to_stand_still_for_the_games_after_the_screen_on_one_machine_alone(
    run: Any, on_cluster: bool
) -> None:
    job = _job(target=5, episodes=300)
    told: list[Evaluating] = []

    def done(seen: list[Evaluation]) -> bool:
        if server.evaluating is not None and server.evaluating not in told:
            told.append(server.evaluating)
        return len(seen) >= 1

    with closing(WeightServer(f"inproc://alone-{on_cluster}", f"inproc://alone-notice-{on_cluster}")) as server:
        run(job, server.weights, server.notice, on_cluster=on_cluster)
        server.publish(_push_left(job), 1, 1, meta={"mean_return": 9.0})
        (verdict,) = _serve_until(server, done)
    assert verdict.finished
    assert len(verdict.returns) == 300
    assert any(word.games < 20 for word in told)
    assert not any(word.alone for word in told if word.games < 20), "the screen is played beside training"
    assert any(word.games >= 20 for word in told)
    assert all(word.alone is not on_cluster for word in told if word.games > 20)


@pytest.mark.parametrize(
    "wanted",
    [
        {"successPolicy": {"targetReturn": {"value": 475, "windowEvaluations": 2}}},
        {
            "successPolicy": {"targetReturn": {"value": 475}},
            "earlyStopping": {"plateau": {"patienceEvaluations": 3}},
        },
    ],
    ids=["window", "plateau"],
)
def test_an_evaluation_that_counts_beside_others_is_played_to_its_end(run: Any, wanted: dict[str, Any]) -> None:
    document = manifest(475, None, episodes=25, intervalSeconds=1)
    document["spec"] |= wanted
    job = parse_job(document)
    verdict = _verdict(run, job)
    assert verdict.finished
    assert len(verdict.returns) == 25


def test_the_trigger_keeps_it_idle_until_training_looks_good(run: Any) -> None:
    job = _job(triggerReturn=100)
    with closing(WeightServer("inproc://eval-weights-3", "inproc://eval-notice-3")) as server:
        run(job, server.weights, server.notice)
        for version, mean in enumerate((None, 99.0), start=1):
            server.publish(network(job), version, 1, meta={"mean_return": mean})
            assert _serve_until(server, lambda seen: len(seen) >= 1, seconds=1.5) == []
        server.publish(network(job), 3, 1, meta={"mean_return": 100.0})
        (verdict,) = _serve_until(server, lambda seen: len(seen) >= 1)
        assert verdict.version == 3
