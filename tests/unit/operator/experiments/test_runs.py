"""What an experiment makes of a run folder: real files, without the processes of a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import read_document
from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.driver import Driver
from rljob_operator.experiments.suggestions import require_sampler
from rljob_operator.local.experiment_folder import ExperimentFolder
from rljob_operator.local.experiment_runs import Runs
from rljob_operator.local.run_folder import RunFolderProblem, write_json
from rljob_operator.local.spec_store import SpecStore

from tests.support.experiment_world import document
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

EXPERIMENT = parse_experiment(read_document(EXAMPLES / "experiments" / "cartpole-search.yaml"))

FIGURES = {"mean": 1.0, "standardError": 0.1, "episodes": 100, "rawFrames": 10_000}


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of trial 4's run, which has ended at its first rung."""
    folder = tmp_path / "cartpole-search-4"
    folder.mkdir()
    SpecStore(folder).create(EXPERIMENT.manifest(4, 1, 10_000))
    write_json(folder / "outcome.json", {"state": "Complete", "reason": "StepBudgetReached"})
    return folder


@pytest.fixture
def driver(ended: Path) -> Driver:
    """That of the experiment, whose trials have all been started."""
    opened = ExperimentFolder(ended.parent)
    opened.take({**EXPERIMENT.document, "spec": {**EXPERIMENT.document["spec"], "parallelism": 9}})
    return Driver(opened, Runs(ended.parent, EXPERIMENT, None))


def seen(driver: Driver) -> dict[str, Any] | None:
    """What is written of trial 4's run; None while it is judged."""
    return next((each for each in driver.turn(lambda: 1.0) if each["trial"] == 4 and each["kind"] != "Start"), None)


def test_a_run_that_was_edited_by_hand_is_no_longer_that_trial(ended: Path, driver: Driver) -> None:
    text = (ended / "job.yaml").read_text()
    assert "learningRate: 0.001" in text
    (ended / "job.yaml").write_text(text.replace("learningRate: 0.001", "learningRate: 0.002"))
    entry = seen(driver)
    assert (entry["kind"], "was changed by hand" in entry["why"]) == ("Fail", True)


def test_a_run_that_failed_says_why(ended: Path, driver: Driver) -> None:
    outcome = {"state": "Failed", "reason": "BackoffLimitExceeded", "message": "the learner ended"}
    write_json(ended / "outcome.json", outcome)
    why = "BackoffLimitExceeded: the learner ended"
    assert seen(driver) == {"kind": "Fail", "trial": 4, "seed": 1, "why": why, "seconds": 1.0}


@pytest.mark.parametrize(
    ("reason", "solved"), [("TargetReturnReached", True), ("EarlyStopped", False), ("StepBudgetReached", False)]
)
def test_a_run_that_was_given_up_has_not_reached_its_goal(
    ended: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch, reason: str, solved: bool
) -> None:
    write_json(ended / "outcome.json", {"state": "Complete", "reason": reason})
    monkeypatch.setattr(Runs, "judged", lambda *_: FIGURES)
    entry = {"kind": "Score", "trial": 4, "seed": 1, **FIGURES, "solved": solved, "seconds": 1.0}
    assert seen(driver) == entry


def test_a_run_without_a_checkpoint_fails_with_what_rljob_eval_says(ended: Path, driver: Driver) -> None:
    entry = eventually(lambda: seen(driver), seconds=100)
    assert entry["kind"] == "Fail"
    assert [words for words in ("it can't be judged: rljob: ", "checkpoint") if words not in entry["why"]] == []


def test_a_journals_last_line_that_was_cut_off_is_dropped_and_the_rest_gone_on_with(tmp_path: Path) -> None:
    opened = ExperimentFolder(tmp_path)
    opened.take(EXPERIMENT.document)
    while (entry := decide(opened.state)) is not None:
        opened.add(entry)
    opened.store()
    opened.close()
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"kind":"Sco')
    again = ExperimentFolder(tmp_path)
    assert (journal.read_bytes(), [run.trial for run in again.state.active], decide(again.state)) == (
        whole,
        [0, 1],
        None,
    )
    with pytest.raises(RunFolderProblem, match="only parallelism, maxFailedTrials"):
        again.take({**EXPERIMENT.document, "spec": {**EXPERIMENT.document["spec"], "budget": {"rawFrames": 80_000}}})
    again.close()


def test_suggestions_without_optuna_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"algorithm.learningRate": {"uniform": {"min": 1e-4, "max": 1e-3}}}
    experiment = parse_experiment(document(20, search={"tpe": {"trials": 20}, "parameters": parameters}))
    found = "rljob_operator.experiments.suggestions.find_spec"
    monkeypatch.setattr(found, lambda name: None)
    said = r"spec.search.tpe: needs Optuna.*pip install 'rljob\[optuna\]'; random does without"
    with pytest.raises(ManifestError, match=said):
        require_sampler(experiment)
    monkeypatch.setattr(found, lambda name: SimpleNamespace(origin="there"))
    require_sampler(experiment)
    require_sampler(parse_experiment(document(20)))
