"""What an experiment makes of a run folder: real files, without the processes of a run."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import read_document
from rljob_operator.experiments.decide import decide, require_sampler
from rljob_operator.experiments.driver import Driver
from rljob_operator.local import experiment_runs
from rljob_operator.local.experiment_runs import ExperimentFolder, Runs, doing
from rljob_operator.local.run_folder import ControllerLock, RunFolderProblem, write_json
from rljob_operator.local.spec_store import SpecStore

from tests.support.experiment_world import document, population
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
    ends(folder, "Complete", "StepBudgetReached")
    return folder


def ends(folder: Path, type: str, reason: str, message: str = "") -> None:
    """The run has come to its end."""
    condition = {"type": type, "status": "True", "reason": reason, "message": message}
    status = {"conditions": [{**condition, "lastTransitionTime": "2026-11-27T12:00:00Z"}]}
    write_json(folder / "status.json", status)
    write_json(folder / "outcome.json", {"state": type, "reason": reason, "message": message})


@pytest.fixture
def driver(ended: Path) -> Driver:
    """That of the experiment, whose trials have all been started."""
    opened = ExperimentFolder(ended.parent)
    opened.take({**EXPERIMENT.document, "spec": {**EXPERIMENT.document["spec"], "parallelism": 9}})
    return Driver(opened, Runs(ended.parent, EXPERIMENT, None))


def seen(driver: Driver) -> dict[str, Any] | None:
    """What is written of trial 4's run; None while it is judged."""
    driver.turn()
    return next((each for each in driver.journal.new if each.get("trial") == 4 and each["kind"] != "Start"), None)


def test_a_run_that_was_edited_by_hand_is_no_longer_that_trial(
    ended: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runs, "judged", lambda *_: FIGURES)
    text = (ended / "job.yaml").read_text()
    assert "learningRate: 0.001" in text
    (ended / "job.yaml").write_text(text.replace("learningRate: 0.001", "learningRate: 0.002"))
    entry = seen(driver)
    assert (entry["kind"], "was changed by hand" in entry["why"]) == ("Fail", True)


def test_a_run_that_failed_says_why(ended: Path, driver: Driver) -> None:
    ends(ended, "Failed", "BackoffLimitExceeded", "the learner ended")
    why = "BackoffLimitExceeded: the learner ended"
    assert seen(driver) == {"kind": "Fail", "trial": 4, "seed": 1, "why": why, "seconds": 0.0}


@pytest.mark.parametrize(
    ("reason", "solved"),
    [("TargetReturnReached", True), ("MetricReached", True), ("EarlyStopped", False), ("StepBudgetReached", False)],
)
def test_a_run_that_was_given_up_has_not_reached_its_goal(
    ended: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch, reason: str, solved: bool
) -> None:
    ends(ended, "Complete", reason)
    monkeypatch.setattr(Runs, "judged", lambda *_: FIGURES)
    entry = {"kind": "Score", "trial": 4, "seed": 1, **FIGURES, "solved": solved, "seconds": 0.0}
    assert seen(driver) == entry


def test_a_run_without_a_checkpoint_fails_with_what_rljob_eval_says(ended: Path, driver: Driver) -> None:
    entry = eventually(lambda: seen(driver), seconds=100)
    assert entry["kind"] == "Fail"
    assert [words for words in ("it can't be judged: rljob: ", "checkpoint") if words not in entry["why"]] == []


def test_a_run_that_is_begun_again_is_not_taken_for_ended_by_the_status_of_its_rung_before(
    ended: Path, driver: Driver
) -> None:
    driver.turn()
    run = driver.journal.state.runs[4, 1]
    assert driver.sight(run).status.finished
    with ControllerLock(ended):
        sight = driver.sight(run)
    assert (sight.rests, sight.status.finished) == (False, False)


def test_what_is_wrong_with_a_run_that_plays_is_said(ended: Path, driver: Driver) -> None:
    (ended / "status.json").write_text("{")
    driver.turn()
    said = doing(driver.journal.state, driver.journal.state.runs[4, 1], ended.parent)
    assert said == f"plays to 10,000 raw frames: {ended / 'status.json'} can't be read (JSONDecodeError)"


class Played(SimpleNamespace):
    """Stands for a controller's process."""

    returncode, asked = None, False
    poll, leave = (lambda self: self.returncode), (lambda self: setattr(self, "asked", True))


def test_a_member_whose_folder_is_deleted_while_its_fork_is_written_is_made_again_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[Played] = []
    monkeypatch.setattr(experiment_runs, "gone_on", lambda *_: began.append(Played()) or began[-1])
    opened = ExperimentFolder(tmp_path)
    opened.take(population(2, 2))
    runs = Runs(tmp_path, opened.state.known, None)
    driver = Driver(opened, runs)
    driver.turn()
    runs.lead(driver)
    for trial, mean in ((0, 1.0), (1, 50.0)):
        kept = {"from": f"file:///{trial}", "digest": f"sha256:{trial:064d}"}
        score = {"mean": mean, "standardError": 1.0, "episodes": 20, "rawFrames": 2000, "checkpoint": kept}
        opened.add({"kind": "Score", "trial": trial, "seed": 1, "solved": False, **score})
    driver.turn()
    (copies,) = [entry for entry in opened.new if entry["kind"] == "Copy"]
    assert copies["trial"] == 0
    folder, edit = runs.folder(opened.state.runs[0, 1]), SpecStore.edit

    def deleted(store: SpecStore, change: Any) -> int:
        shutil.rmtree(folder, ignore_errors=True)
        return edit(store, change)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(SpecStore, "edit", deleted)
        runs.lead(driver)
    driver.turn()
    runs.lead(driver)
    assert ([entry for entry in opened.new if entry["kind"] == "Fail"], len(began), began[0].asked) == ([], 2, True)
    began[0].returncode = 0
    runs.lead(driver)
    assert (len(began), read_document(folder / "job.yaml")["spec"]["fork"]) == (3, copies["fork"])


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
    found = "rljob_operator.experiments.decide.find_spec"
    monkeypatch.setattr(found, lambda name: None)
    said = r"spec.search.tpe: needs Optuna.*pip install 'rljob\[optuna\]'; random does without"
    with pytest.raises(ManifestError, match=said):
        require_sampler(experiment)
    monkeypatch.setattr(found, lambda name: SimpleNamespace(origin="there"))
    require_sampler(experiment)
    require_sampler(parse_experiment(document(20)))
