"""`rljob validate`, `explain`, `run` and `stop` of an experiment, as far as they come without a run."""

from pathlib import Path

import pytest
from rljob.api.document import parse_document
from rljob.api.experiment_check import parse_experiment
from rljob_operator.local.run_folder import ControllerLock

from tests.support.command_line import printed, refused
from tests.support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "experiments" / "cartpole-search.yaml"


def test_validate_says_how_large_it_is_and_render_prints_it_in_force() -> None:
    said = printed("validate", EXAMPLE, "--no-environment")
    assert "9 trials, judged at 10,000, 30,000 and 90,000 raw frames, 2 at a time" in said
    effective = printed("render", EXAMPLE, "--effective", "--set", "parallelism=1")
    in_force = parse_experiment(parse_document(effective.encode(), "printed")).spec
    assert (in_force.parallelism, in_force.max_failed_trials) == (1, 3)


@pytest.mark.parametrize("verb", ["validate", "run"])
def test_what_is_wrong_is_a_line_and_exit_code_2(verb: str) -> None:
    said = refused(verb, EXAMPLE, "--set", "prune.halving.firstRawFrames=90000")
    assert "spec.prune.halving.firstRawFrames: got 90000; allowed: at most one less than budget.rawFrames" in said


def test_explain_knows_its_fields() -> None:
    assert "the same seed draws the same trials" in printed("explain", "rlexperiment.search.random.seed")


def test_a_folder_that_is_in_use_or_has_none_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    run = ("run", EXAMPLE, "--run-dir", folder)
    assert "nothing to resume here (no experiment.yaml)" in refused(*run, "--resume")
    folder.mkdir()
    (folder / "experiment.yaml").write_text(EXAMPLE.read_text())
    assert "not empty; add --resume" in refused(*run)
    with ControllerLock(folder):
        said = refused(*run, "--resume")
    assert ("another controller" in said, "rljob top" in said) == (True, False), "rljob top is for a single run"
    (folder / "journal.jsonl").write_text('{"kind":"End"}\n')
    assert "line 1 of the journal" in refused(*run, "--resume")
    assert "an experiment's folder; name one of its runs" in refused("top", folder)
    assert "nothing runs" in printed("stop", folder)
