"""The evaluator role against a real weight server, in one process."""

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from rljob.api import RLJob, parse_job
from rljob.api.learner_status import EvaluationUnderWay, Verdict
from rljob.checkpoints import store as checkpoint
from rljob.cli.app import app
from rljob.envs.base import seed_of
from rljob.roles.evaluator import run_evaluator
from rljob.roles.options import RoleOptions
from rljob.weights.flat import Evaluation
from rljob.weights.server import WeightServer
from torch import nn
from typer.testing import CliRunner

from tests.support.evaluated_jobs import identity_of, manifest, network
from tests.support.waiting import running


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


@contextmanager
def _judged(run: Any, job: RLJob, module: nn.Module, mean_return: float | None, **surroundings: Any) -> Iterator[Any]:
    """A weight server with the first version of ``module``, and an evaluator that judges it."""
    name = uuid.uuid4().hex
    with closing(WeightServer(f"inproc://weights-{name}", f"inproc://notice-{name}")) as server:
        run(job, server.weights, server.notice, **surroundings)
        server.publish(module, 1, 1, meta={"mean_return": mean_return})
        yield server


def _verdict(run: Any, job: RLJob) -> Verdict:
    """What it says of a policy that always pushes left."""
    with _judged(run, job, _push_left(job), 9.0) as server:
        (evaluation,) = _serve_until(server, bool)
    return evaluation.verdict


def test_it_judges_new_weights_and_reports_them_with_the_weights_if_best(run: Any, tmp_path: Path) -> None:
    job = _job()
    with _judged(run, job, network(job), None) as server:
        (first,) = _serve_until(server, bool)
        assert (first.verdict.version, first.verdict.finished, first.verdict.episodes) == (1, True, 5)
        assert first.weights is not None
        assert first.verdict.mean == first.verdict.mean_length_steps  # CartPole pays 1 a step
        status = _status(tmp_path)
        assert (status["role"], status["last"]["version"]) == ("evaluator", 1)
        # The same version is not judged twice; a new one is.
        assert _serve_until(server, bool, seconds=1.5) == []
        server.publish(network(job), 2, 1, meta={"mean_return": None})
        (second,) = _serve_until(server, bool)
        assert second.verdict.version == 2


def _status(folder: Path) -> dict[str, Any]:
    url = json.loads((folder / "evaluator.json").read_text())["metrics_url"]
    with urllib.request.urlopen(f"{url}/status", timeout=60) as answer:
        return dict(json.load(answer))


def test_it_plays_in_an_environment_of_its_own_and_tells_what_that_reports(run: Any) -> None:
    place = {"id": "tests.support.reporting:CartPole", "maxEpisodeSteps": 6}
    verdict = _verdict(run, _job(environment=place, resources={"limits": {"cpu": "1"}}))
    assert (verdict.episodes, verdict.mean_length_steps, verdict.metrics) == (5, 6.0, {"upright": 1.0})


@pytest.mark.parametrize(
    ("cpu", "algorithm"),
    [
        ("1", {"type": "ApeXDQN", "network": "MLP", "apeXDQN": {"evaluationEpsilon": 0.3}}),
        ("2", {"type": "IMPALA", "network": "MLP", "hiddenUnits": 64, "evaluationTemperature": 0.5}),
    ],
    ids=["random-moves", "sampled"],
)
def test_eval_of_the_weights_judged_reproduces_the_verdict(
    run: Any, tmp_path: Path, algorithm: dict[str, Any], cpu: str
) -> None:
    """As the learner writes ``best/`` from a verdict, and as a user scores it: every game is the same again."""
    job = _job(episodes=30, resources={"limits": {"cpu": cpu}}, algorithm=algorithm)
    with _judged(run, job, network(job), None) as server:
        (evaluation,) = _serve_until(server, bool)
    verdict = evaluation.verdict
    tensors = {f"policy.{name}": tensor for name, tensor in evaluation.weights.state().items()}
    checkpoint.write(tmp_path / "checkpoints", checkpoint.BEST, tensors, identity_of(job).document())
    scored = CliRunner().invoke(app, ["eval", str(tmp_path), "--episodes", "30", "--seed", str(verdict.seed), "--json"])
    assert scored.exit_code == 0, scored.output
    figures = json.loads(scored.stdout)
    assert fmean(figures["lengths_steps"]) == verdict.mean_length_steps
    assert (figures["mean"], figures["standard_error"]) == (verdict.mean, verdict.standard_error)
    assert len(set(figures["returns"])) > 3, "games that differ"


def test_a_hopeless_policy_is_given_up_early(run: Any) -> None:
    verdict = _verdict(run, _job(target=475, episodes=60, resources={"limits": {"cpu": "3"}}))
    assert (verdict.finished, verdict.episodes, verdict.seed) == (False, 20, seed_of(1, "verdict", 0))
    assert (verdict.mean < 475, verdict.bound) == (True, None)


def test_a_return_outside_its_bounds_is_said_and_without_them_equal_returns_prove_nothing_of_rarer_ones(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    document = manifest(9.0, None, episodes=30, intervalSeconds=1, returnBounds=[0, 9.5])
    document["spec"]["environment"] = {"id": "tests.support.odd_environments:Gives", "kwargs": {"reward": "7"}}
    verdict = _verdict(run, parse_job(document))
    assert (verdict.episodes, verdict.bound, verdict.mean) == (30, None, 10.0)
    assert caplog.text.count("a game returned 10, outside the bounds of a return [0, 9.5]") == 1


@pytest.mark.parametrize("on_cluster", [False, True], ids=["one-machine", "cluster"])
def test_progress_is_told_until_a_verdict_before_the_last_game_and_training_stands_still_near_it_on_one_machine_alone(
    run: Any, tmp_path: Path, on_cluster: bool
) -> None:
    """The learner knows how many games have ended and with which mean, and none are under way once there is a verdict."""
    job = _job(target=9.25, episodes=2000)
    told: list[EvaluationUnderWay] = []

    def done(seen: list[Evaluation]) -> bool:
        if server.evaluating is not None and server.evaluating not in told:
            told.append(server.evaluating)
        return len(seen) >= 1

    with _judged(run, job, _push_left(job), 9.0, on_cluster=on_cluster) as server:
        assert not _serve_until(server, lambda seen: done(seen) or told), "the games take longer than a word about them"
        evaluating = _status(tmp_path)["evaluating"]
        assert evaluating is None or evaluating["episodes"] == 2000
        (evaluation,) = _serve_until(server, done)
        assert server.evaluating is None
    verdict = evaluation.verdict
    assert (verdict.finished, 100 < verdict.episodes < 2000, 9.25 <= verdict.bound < verdict.mean) == (True, True, True)
    assert {(word.version, word.episodes) for word in told} == {(1, 2000)}
    games = [word.games for word in told]
    assert games == sorted(games)
    assert all((word.mean is None) == (word.games == 0) for word in told)
    assert games[0] < 20 <= games[-1]
    assert not any(word.alone for word in told if word.games < 20), "the first games are played beside training"
    assert all(word.alone is not on_cluster for word in told if word.games > 20)
    assert [word.at_least is None for word in told] == [word.games < 20 for word in told]


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
    verdict = _verdict(run, parse_job(document))
    assert (verdict.finished, verdict.episodes) == (True, 25)


def test_the_trigger_keeps_it_idle_until_training_looks_good(run: Any) -> None:
    job = _job(triggerReturn=100)
    with _judged(run, job, network(job), None) as server:
        for version, mean in enumerate((99.0, 100.0), start=2):
            assert _serve_until(server, bool, seconds=1.2) == []
            server.publish(network(job), version, 1, meta={"mean_return": mean})
        (verdict,) = _serve_until(server, bool)
        assert verdict.verdict.version == 3
