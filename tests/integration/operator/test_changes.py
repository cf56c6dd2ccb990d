"""Changes of a live run: what only a start can bring about, what takes effect at once, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.checkpoints.files import stored
from rljob_operator.local.job_view import running_members
from rljob_operator.local.spec_store import SpecStore

from tests.support.local_run import ENDLESS, LocalRun

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def test_what_is_changed_while_the_job_suspends_is_what_it_goes_on_with(local_run: Callable[..., LocalRun]) -> None:
    """Parameters, the number of environments, and who computes the actions: the suspension is called off at once."""
    run = local_run(*ENDLESS)
    run.until_learning(100)
    store = SpecStore(run.run_dir)
    with pytest.raises(ManifestError, match=r"spec\.algorithm\.apeXDQN\.gamma: .* only while the job is suspended"):
        store.edit(with_changes)
    before = running_members(run.run_dir)
    store.edit(lambda document: document["spec"].update(suspend=True))
    store.edit(with_changes)
    run.until(lambda: run.reason("Suspended") == "Draining", 30, "the suspension")
    store.edit(lambda document: document["spec"].update(suspend=False))
    run.until(lambda: run.job_status.state == "Running" and not set(before.values()) & pids(run), 120, "new processes")
    run.until_learning(run.status("learner")["updates"] + 50)

    newest = stored(run.run_dir / "checkpoints")[0]
    assert json.loads((newest / "manifest.json").read_text())["parameters"]["gamma"] == 0.99, "saved by the old learner"
    code, printed = run.verb("checkpoint", str(run.run_dir), "--wait")
    assert code == 0, printed
    newest = stored(run.run_dir / "checkpoints")[0]
    assert json.loads((newest / "manifest.json").read_text())["parameters"]["gamma"] == 0.9
    served = run.status("learner")["inference"]
    assert served["observations_total"] > 0, served
    assert run.job_status.restarts.counted == 0
    assert run.interrupt() == 130


def with_changes(document: dict[str, Any]) -> None:
    document["spec"].setdefault("algorithm", {}).setdefault("apeXDQN", {})["gamma"] = 0.9
    document["spec"].setdefault("actors", {}).update(envsPerActor=4, inference="Central")


def pids(run: LocalRun) -> set[int]:
    return set(running_members(run.run_dir).values())


def test_a_run_of_which_nothing_is_left_may_be_changed_like_a_suspended_one(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    assert run.interrupt() == 130
    again = local_run(
        "--resume", "--set", "spec.actors.envsPerActor=4", run_dir=run.run_dir, job=run.run_dir / "job.yaml"
    )
    again.until_learning(60)
    job = SpecStore(run.run_dir).accepted()
    assert job is not None
    assert job.spec.actors.envs_per_actor == 4
    assert again.interrupt() == 130
    other = ["--set", "spec.environment.id=Acrobot-v1", "--set", "spec.successPolicy.rawFrames=1000000000"]
    never = local_run("--resume", *other, run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    assert never.finish(60) == 2
    assert "spec.environment.id: got 'Acrobot-v1'; it cannot be changed; make a new job" in never.output
