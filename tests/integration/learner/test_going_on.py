"""A learner that goes on from a checkpoint knows that its job works: what it may forbid at the first start is a failure like any
other later."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.compute import Compute
from rljob.api import RLJob
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import PolicyIdentity
from rljob.envs import EnvironmentProblem, describe_environment
from rljob.learner import state
from rljob.learner.counters import Counters
from rljob.learner.device import DeviceMemoryProblem, DeviceProblem
from rljob.learner.optim.updater import make_updater
from rljob.roles import learner
from rljob.roles.learner import run_learner

from tests.support import role_threads
from tests.support.role_threads import over_ipc
from tests.support.waiting import eventually

CPU = torch.device("cpu")
FACTORY = """
import gymnasium
from pathlib import Path

class Now(gymnasium.Wrapper):
    def step(self, action):
        if Path(__file__).with_suffix(".broken").exists():
            raise OSError("the licence was taken")
        return self.env.step(action)

def make():
    return Now(gymnasium.make("CartPole-v1"))
"""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    """An environment of a file, which raises in every step."""
    file = tmp_path / f"factory_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(FACTORY)
    file.with_suffix(".broken").touch()
    return file


def saved(job: RLJob, run_dir: Path, updates: int) -> None:
    """What a learner leaves that has made so many updates, its weights as they were made."""
    params, env_params = job.spec.algorithm.parameters, job.spec.environment.parameters
    environment = describe_environment(job.spec.environment.id, env_params)
    method = algorithm("ApeXDQN")
    updater = make_updater(method, params, method.build(environment, params, env_params).compute(Compute()), CPU)
    identity = PolicyIdentity("ApeXDQN", environment, params, env_params)
    document = {**identity.document(), "counters": Counters(version=1).document(updates)}
    name = checkpoint.checkpoint_name(1, updates)
    checkpoint.write(run_dir / "checkpoints", name, state.capture(updater), document)


def failure(job: RLJob, run_dir: Path) -> BaseException:
    with over_ipc(job, run_dir, replay=False) as run:
        run.start(run_learner, "learner", resume="latest")
        eventually(lambda: run.failures)
        return run.failures.pop()


def test_an_environment_that_raises_keeps_a_run_from_beginning_and_not_from_going_on(
    tmp_path: Path, factory: Path
) -> None:
    job = role_threads.cartpole(environment={"id": f"{factory}:make"}, successPolicy={"rawFrames": 1_000_000})
    problem = failure(job, tmp_path / "new")
    assert isinstance(problem, EnvironmentProblem)
    assert "OSError: the licence was taken" in str(problem)
    saved(job, tmp_path / "old", updates=50)
    with over_ipc(job, tmp_path / "old", replay=False) as run:
        run.start(run_learner, "learner", resume="latest")
        run.until(lambda figures: figures.get("updates") == 50, "the updates of the checkpoint")


@pytest.mark.parametrize(("updates", "kind"), [(0, DeviceProblem), (50, DeviceMemoryProblem)])
def test_memory_that_has_sufficed_may_suffice_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int, kind: type[Exception]
) -> None:
    def full(*_: Any) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    job = role_threads.cartpole()
    if updates:
        saved(job, tmp_path, updates)
    monkeypatch.setattr(learner, "fastest_update", full)
    assert type(failure(job, tmp_path)) is kind
