"""`rljob validate`, `explain`, `run` and `stop` of an experiment, as far as they come without a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api.document import parse_document
from rljob.api.experiment_check import parse_experiment
from rljob_operator.cli import app
from rljob_operator.local.lock import ControllerLock
from typer.testing import CliRunner

from tests.support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "experiments" / "cartpole-search.yaml"


def rljob(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_validate_says_how_large_it_is_and_prints_it_in_force() -> None:
    code, said, _ = rljob("validate", EXAMPLE, "--no-environment")
    assert (code, "9 trials, judged at 10,000, 30,000 and 90,000 raw frames, 2 at a time" in said) == (0, True)
    code, printed, _ = rljob("validate", EXAMPLE, "--no-environment", "--effective", "--set", "parallelism=1")
    assert code == 0
    in_force = parse_experiment(parse_document(printed.encode(), "printed"))
    assert (in_force.spec.parallelism, in_force.spec.max_failed_trials) == (1, 3)


@pytest.mark.parametrize("command", [("validate", EXAMPLE), ("run", EXAMPLE)])
def test_what_is_wrong_is_a_line_and_exit_code_2(command: tuple[object, ...]) -> None:
    code, _, said = rljob(*command, "--set", "prune.halving.firstRawFrames=90000")
    assert code == 2
    assert "spec.prune.halving.firstRawFrames: got 90000; allowed: less than the 90,000 raw frames" in said
    assert "Traceback" not in said


def test_explain_knows_its_fields() -> None:
    code, said, _ = rljob("explain", "rlexperiment.search.random.seed")
    assert (code, "the same seed draws the same trials" in said) == (0, True)


def test_a_folder_that_is_in_use_or_has_none_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    code, _, said = rljob("run", EXAMPLE, "--run-dir", folder, "--resume")
    assert (code, "nothing to resume here (no experiment.yaml)" in said) == (2, True)
    folder.mkdir()
    (folder / "experiment.yaml").write_text(EXAMPLE.read_text())
    code, _, said = rljob("run", EXAMPLE, "--run-dir", folder)
    assert (code, "not empty; add --resume" in said) == (2, True)
    with ControllerLock(folder):
        code, _, said = rljob("run", EXAMPLE, "--run-dir", folder, "--resume")
    assert (code, "another controller" in said) == (2, True)
    assert "rljob top" not in said, "which is for a single run"
    (folder / "journal.jsonl").write_text('{"kind":"End"}\n')
    code, _, said = rljob("run", EXAMPLE, "--run-dir", folder, "--resume")
    assert (code, "line 1 of the journal" in said) == (2, True)
    code, _, said = rljob("top", folder)
    assert (code, "an experiment's folder; name one of its runs" in said) == (2, True)
    code, said, _ = rljob("stop", folder)
    assert (code, "nothing of it runs" in said) == (0, True)
