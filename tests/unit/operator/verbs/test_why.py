"""What `rljob why` says of the next unit, and what `rljob run` says of a job before its first process starts."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rljob.api.effective import NO_ALGORITHM
from rljob.api.learner_status import ActorStatus, LearnerStatus
from rljob.api.load import read_manifest
from rljob.api.status import Condition, ProgressStatus, RLJobStatus
from rljob_operator.verbs import run
from rljob_operator.verbs.why import _next_unit
from rljob_operator.view.job_view import JobView

from tests.support.paths import EXAMPLES

DOCUMENT = read_manifest(EXAMPLES / "pong-vtrace.yaml")
FIGURES = LearnerStatus(
    steps_per_second=1000.0,
    learner_wait_fraction=0.5,
    actors_blocked_fraction=0.0,
    actors=(ActorStatus(name="actor-0"),),
    processes={"learner": {"cpu_cores": 0.5}, "actor": {"cpu_cores": 1.0}},
)
STATUS = RLJobStatus(progress=ProgressStatus(estimated_seconds_remaining=600, next_unit="as it was"))
RUN = JobView("runs/pong", DOCUMENT, STATUS, True, ("learner",), FIGURES)


def said(run: JobView, cores: float | None = None) -> str:
    return "\n".join(_next_unit(run, cores))


def test_the_table_of_what_each_unit_adds() -> None:
    text = said(RUN)
    assert "What the next unit would bring to 1,000 steps/s:" in text
    assert "+97" in text.splitlines()[2], "two actors feed the learner: all but the rounding of the knee"
    # On a cluster each part has its own cores.
    assert ("s sooner" in text, "cores there are" in text) == (True, False)
    assert "an actor on the cores there are" in said(RUN, cores=2.0)


def test_cores_that_others_have_are_said_instead() -> None:
    taken = {
        "learner": {"cpu_cores": 0.02, "core_wait_cores": 1.0},
        "actor": {"cpu_cores": 0.03, "core_wait_cores": 0.9},
    }
    text = said(replace(RUN, figures=replace(FIGURES, processes=taken)), cores=2.0)
    assert text.startswith("\nthe run waits for cores: processes beside")
    assert "%" not in text


def test_without_figures_the_jobs_status_tells() -> None:
    assert said(replace(RUN, figures=LearnerStatus())) == "\nas it was"
    assert said(replace(RUN, figures=replace(FIGURES, state="Evaluating"))) == "\nas it was", "training stands still"
    assert said(replace(RUN, figures=LearnerStatus(), status=RLJobStatus())) == ""


@pytest.mark.parametrize("document", [{}, {"spec": 3}, {**DOCUMENT, "spec": {"preset": "none"}}])
def test_a_job_that_was_edited_to_nonsense_is_explained_all_the_same(document: Any) -> None:
    run = replace(RUN, document=document)
    assert "What the next unit would bring" in said(run)


def test_nothing_would_bring_more_to_a_job_that_is_over() -> None:
    over = Condition(type="Complete", status="True", last_transition_time=1.0)
    assert said(replace(RUN, status=STATUS.model_copy(update={"conditions": [over]}))) == ""


@pytest.mark.parametrize(
    ("spec", "said"),
    [({}, True), ({"algorithm": {"type": "PPO"}}, False), ({"preset": "PPOVector"}, False)],
)
def test_which_algorithm_was_chosen_where_none_is_named(
    spec: dict[str, Any], said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Idle:
        def prepare(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(run, "Launcher", Idle)
    monkeypatch.setattr(run.preflight, "check", lambda job, new: (None, {}))
    monkeypatch.setattr(run, "hand_over", lambda folder, environment, found: None)
    monkeypatch.setattr(run, "_control", lambda *arguments: 0)
    written = {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "by-its-id"},
        "spec": {"environment": {"id": "CartPole-v1"}, **spec},
    }
    console = Console(file=io.StringIO(), width=400)
    assert run.start(written, tmp_path / "run", max_seconds=None, max_actors=None, console=console) == 0
    assert isinstance(console.file, io.StringIO)
    assert (NO_ALGORITHM in console.file.getvalue().splitlines()) is said
