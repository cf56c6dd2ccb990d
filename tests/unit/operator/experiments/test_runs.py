"""What an experiment makes of a run folder: real files, without the processes of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rljob.api import ManifestError
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import read_document
from rljob_operator.experiments.state import Run
from rljob_operator.experiments.suggestions import require_sampler
from rljob_operator.local.experiment_folder import ExperimentFolder
from rljob_operator.local.experiment_runs import Runs
from rljob_operator.local.run_folder import RunFolderProblem, write_json
from rljob_operator.local.spec_store import SpecStore

from tests.support.experiment_world import document
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

EXPERIMENT = parse_experiment(read_document(EXAMPLES / "experiments" / "cartpole-search.yaml"))


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of trial 4's run, which has ended at its first rung."""
    folder = tmp_path / "cartpole-search-4"
    folder.mkdir()
    SpecStore(folder).create(EXPERIMENT.manifest(4, 1, 10_000))
    write_json(folder / "outcome.json", {"state": "Complete", "reason": "StepBudgetReached"})
    return folder


def test_a_run_that_was_edited_by_hand_is_no_longer_that_trial(ended: Path) -> None:
    text = (ended / "job.yaml").read_text()
    assert "learningRate: 0.001" in text
    (ended / "job.yaml").write_text(text.replace("learningRate: 0.001", "learningRate: 0.002"))
    entry = Runs(ended.parent, EXPERIMENT, None).look(Run(4, 1))
    assert entry["kind"] == "Fail"
    assert "was changed by hand" in entry["why"]


def test_a_run_that_failed_says_why(ended: Path) -> None:
    write_json(
        ended / "outcome.json", {"state": "Failed", "reason": "BackoffLimitExceeded", "message": "the learner ended"}
    )
    entry = Runs(ended.parent, EXPERIMENT, None).look(Run(4, 1))
    assert entry == {"kind": "Fail", "trial": 4, "seed": 1, "why": "BackoffLimitExceeded: the learner ended"}


@pytest.mark.parametrize(
    ("reason", "solved"), [("TargetReturnReached", True), ("EarlyStopped", False), ("StepBudgetReached", False)]
)
def test_a_run_that_was_given_up_has_not_reached_its_goal(
    ended: Path, monkeypatch: pytest.MonkeyPatch, reason: str, solved: bool
) -> None:
    write_json(ended / "outcome.json", {"state": "Complete", "reason": reason})
    monkeypatch.setattr(Runs, "judged", lambda *_: {"mean": 1.0})
    entry = Runs(ended.parent, EXPERIMENT, None).look(Run(4, 1))
    assert entry == {"kind": "Score", "trial": 4, "seed": 1, "mean": 1.0, "solved": solved}


def test_a_run_without_a_checkpoint_fails_with_what_rljob_eval_says(ended: Path) -> None:
    runs = Runs(ended.parent, EXPERIMENT, None)
    entry = eventually(lambda: runs.look(Run(4, 1)), seconds=100)
    assert entry["kind"] == "Fail"
    assert "it can't be judged: rljob: " in entry["why"]
    assert "checkpoint" in entry["why"]


def test_a_journals_last_line_that_was_cut_off_is_dropped_and_the_rest_gone_on_with(tmp_path: Path) -> None:
    opened = ExperimentFolder(tmp_path)
    opened.take(EXPERIMENT.document)
    while opened.decided() is not None:
        pass
    opened.close()
    whole = (tmp_path / "journal.jsonl").read_bytes()
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"Sco')
    again = ExperimentFolder(tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == whole
    assert [run.trial for run in again.state.active] == [0, 1]
    assert again.decided() is None
    with pytest.raises(RunFolderProblem, match="only parallelism, maxFailedTrials"):
        again.take({**EXPERIMENT.document, "spec": {**EXPERIMENT.document["spec"], "budget": {"rawFrames": 80_000}}})
    again.close()


def test_suggestions_without_optuna_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {
        "tpe": {"trials": 20},
        "parameters": {"algorithm.ppo.learningRate": {"uniform": {"min": 1e-4, "max": 1e-3}}},
    }
    experiment = parse_experiment(document(20, search=search))
    monkeypatch.setattr("rljob_operator.experiments.suggestions.find_spec", lambda name: None)
    with pytest.raises(
        ManifestError, match=r"spec.search.tpe: needs Optuna.*pip install 'rljob\[optuna\]'; random does without"
    ):
        require_sampler(experiment)
    monkeypatch.setattr(
        "rljob_operator.experiments.suggestions.find_spec", lambda name: SimpleNamespace(origin="there")
    )
    require_sampler(experiment)
    require_sampler(parse_experiment(document(20)))
