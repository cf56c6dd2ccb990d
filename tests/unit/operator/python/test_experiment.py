"""An `Experiment` of the files that one leaves: how it stands, its trials, its best; without any process."""

from pathlib import Path
from typing import Any

import pytest
import rljob
from rljob_operator.local.lock import ControllerLock
from rljob_operator.python import experiment

from tests.support.experiment_runs import RATE, document, experiment_folder
from tests.support.paths import EXAMPLES

SEARCH = EXAMPLES / "experiments" / "cartpole-search.yaml"


def rising(rate: float, seed: int, frames: int) -> float:
    return 100 * rate + seed / 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return experiment_folder(tmp_path / "e", document([1e-3, 1e-2], seeds=2), rising)


def test_its_trials_and_its_best(folder: Path) -> None:
    sweep = rljob.attach(folder)
    assert isinstance(sweep, rljob.Experiment)
    assert [trial.number for trial in sweep.trials] == [1, 0]
    first = sweep.trials[0]
    assert (first.settings, first.state, first.mean) == ({RATE: 0.01}, "Done", pytest.approx(1.15))
    assert first.scores == ((9000, pytest.approx(1.1), 0.5),)
    best = sweep.best
    assert (best.number, best.mean) == (1, pytest.approx(0.15)), "in games that it was not chosen by"
    assert [run.name for run in best.runs] == ["rates-1-s2", "rates-1"], "the best run first"
    assert [run.folder for run in sweep.runs][:2] == [folder / "rates-1", folder / "rates-1-s2"]
    assert sweep.runs[0].metrics()["mean_return"]
    assert (sweep.status.state, sweep.folder, sweep.wait(0)) == ("Completed", folder, sweep)
    assert sweep.status.message.startswith("trial 1, 0.15 +- 0.05")
    assert "trial 1, 0.15" in sweep._repr_html_()
    assert [len(group.runs) for group in rljob.compare([sweep]).groups] == [2, 2]
    assert sweep.why().startswith("rates is Completed\n\nComplete (Completed): trial 1, 0.15")


def test_how_it_stands_before_its_end(tmp_path: Path) -> None:
    folder = experiment_folder(tmp_path / "e", document([1e-3, 1e-2, 1e-1]), rising, until_scores=1)
    sweep = rljob.attach(folder)
    assert (sweep.best, sweep.status) == (None, ("SessionEnded", "1 of 3 trials judged"))
    with ControllerLock(folder):
        assert sweep.status.state == "Running"
        with pytest.raises(TimeoutError, match=r"is Running after 0\.2 s, and goes on"):
            sweep.wait(0.2)
    (folder / "journal.jsonl").unlink()
    (folder / "logs").mkdir(exist_ok=True)
    said = "rljob: environment 'X' is not known"
    (folder / "logs" / "controller.log").write_text(f"{said}\n")
    assert sweep.status == ("Failed", said)


def test_one_that_was_stopped_before_its_best_was_judged_anew_has_not_ended(folder: Path) -> None:
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:-1]))  # one of two seeds has been judged
    (folder / "outcome.json").unlink()
    assert rljob.attach(folder).status == ("SessionEnded", "2 of 2 trials judged")


def test_waiting_does_not_read_its_journal_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, looks = rljob.attach(folder), list[Path]()
    read = experiment.look_at_experiment
    monkeypatch.setattr(experiment, "look_at_experiment", lambda of: looks.append(of) or read(of))
    with ControllerLock(folder), pytest.raises(TimeoutError, match="is Running"):
        sweep.wait(0.2)
    assert len(looks) == 1, "for what is said at the end"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": {"parallelism": 0}}, r"spec\.parallelism: got 0"),
        ({"namespace": "team", "max_seconds": 5}, "max_seconds and max_actors are for a run on this machine"),
        ({"max_seconds": 0}, "max_seconds is 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((rljob.ManifestError, rljob.UsageError), match=said):
        rljob.run(SEARCH, **options)
    assert not any(tmp_path.iterdir())
