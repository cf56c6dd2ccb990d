"""The evaluator role against a real weight server, in one process."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_builders import manifest, network
from rljob.api import RLJob, parse_job
from rljob.cli.options import RoleOptions
from rljob.evaluation.worker import run_evaluator
from rljob.learner.weights import Evaluation, WeightServer


def _job(target: str | None = None, **evaluator: Any) -> RLJob:
    return parse_job(manifest(target, **{"episodes": 5, "intervalSeconds": 1, **evaluator}))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Start an evaluator thread for a job; stops and joins it at the end."""
    stop, threads = threading.Event(), []

    def start(job: Any, weights: str, notice: str) -> Path:
        announce = tmp_path / "evaluator.json"
        options = RoleOptions(job, tmp_path, "evaluator", weights=weights, notice=notice, announce=announce)
        thread = threading.Thread(target=run_evaluator, args=(options, stop))
        thread.start()
        threads.append(thread)
        return announce

    yield start
    stop.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive(), "the evaluator must leave within 5 s of being asked"


def _serve_until(server: WeightServer, done: Any, seconds: float = 30) -> list[Evaluation]:
    """Collect verdicts until ``done(evaluations so far)`` or time is up."""
    evaluations: list[Evaluation] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not done(evaluations):
        evaluations += server.evaluations()
        time.sleep(0.01)
    return evaluations


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
        status = json.loads(urllib.request.urlopen(status_url, timeout=5).read())
        assert status["role"] == "evaluator"
        assert status["last"]["version"] == 1
        # The same version is not judged twice; a new one is.
        assert _serve_until(server, lambda seen: len(seen) >= 1, seconds=2) == []
        server.publish(network(job), 2, 1, meta={"mean_return": None})
        (second,) = _serve_until(server, lambda seen: len(seen) >= 1)
        assert second.version == 2


@pytest.mark.parametrize("cpu", ["1", "3"])
def test_a_hopeless_policy_is_given_up_early(run: Any, cpu: str) -> None:
    job = _job(target="475", episodes=20, resources={"limits": {"cpu": cpu}})
    module = network(job)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()  # always pushes left: about ten steps a game, so 475 is soon out of reach
    with closing(WeightServer(f"inproc://eval-weights-2-{cpu}", f"inproc://eval-notice-2-{cpu}")) as server:
        run(job, server.weights, server.notice)
        server.publish(module, 1, 1, meta={"mean_return": 9.0})
        (verdict,) = _serve_until(server, lambda seen: len(seen) >= 1)
    assert not verdict.finished
    # 500 k + 19 * (20 - k) < 475 * 20: two short games are enough, and the second decides.
    assert len(verdict.returns) == 2
    assert np.isfinite(verdict.mean)


def test_the_trigger_keeps_it_idle_until_training_looks_good(run: Any) -> None:
    job = _job(triggerReturn="100")
    with closing(WeightServer("inproc://eval-weights-3", "inproc://eval-notice-3")) as server:
        run(job, server.weights, server.notice)
        for version, mean in enumerate((None, 99.0), start=1):
            server.publish(network(job), version, 1, meta={"mean_return": mean})
            assert _serve_until(server, lambda seen: len(seen) >= 1, seconds=1.5) == []
        server.publish(network(job), 3, 1, meta={"mean_return": 100.0})
        (verdict,) = _serve_until(server, lambda seen: len(seen) >= 1)
        assert verdict.version == 3
