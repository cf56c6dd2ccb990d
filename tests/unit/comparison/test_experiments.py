"""Experiments beside each other and on their page: folders as `rljob run` leaves them, journal and runs."""

import json
import math
import shutil
from pathlib import Path

import pytest
from rljob.comparison.comparison import compare
from rljob.errors import UsageError
from rljob_operator.verbs.experiment_page import _axis

from tests.support.command_line import printed, refused
from tests.support.experiment_runs import RATE, document, experiment_folder

RATES = [1e-4, 1e-3, 1e-2, 1e-1, 3e-4, 3e-3]
HALVING = {"halving": {"firstRawFrames": 1000, "factor": 3}}


def rising(rate: float, seed: int, frames: int) -> float:
    """Higher for larger rates, and for more frames."""
    return 100 * rate + seed / 10 + frames / 1000


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return experiment_folder(tmp_path_factory.mktemp("pruned") / "e", document(RATES, prune=HALVING), rising)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return experiment_folder(tmp_path_factory.mktemp("seeds") / "e", document([1e-3, 1e-2], seeds=4), rising)


def report(folder: Path) -> str:
    assert printed("report", folder).strip() == str(folder / "report.html")
    return (folder / "report.html").read_text()


def test_runs_are_compared_after_the_most_frames_that_two_have_been_judged_at(pruned: Path) -> None:
    """Six trials: at 1,000 frames all were judged, at 3,000 two, at 9,000 one."""
    found = compare([pruned])
    assert {group.settings[RATE] for group in found.groups} == {"0.1", "0.01"}
    assert found.groups[0].scores == (pytest.approx(100 * 0.1 + 0.1 + 3),)
    said, kept = found.notes[0].split(" The best policy that was judged is rates-")
    assert said.endswith(
        "2 runs by the experiment's own games, after 3,000 raw frames; 4 that ended before, failed or still play are left out."
    )
    assert kept.endswith(" after 9,000.")
    assert "successPolicy.rawFrames" not in found.groups[0].settings, "how far each was let to play is no setting"


def test_seeds_of_a_setting_are_a_group_with_an_interval(seeds: Path) -> None:
    found = compare([seeds])
    assert [len(group.runs) for group in found.groups] == [4, 4]
    assert found.groups[0].scores == pytest.approx([1 + seed / 10 + 9 for seed in (1, 2, 3, 4)])
    assert found.groups[0].iqm.low is not None
    assert found.pairs[0].probability.value == 1.0
    solved = compare([seeds], target=10.25)
    assert [group.solved for group in solved.groups] == [2, 0]
    to_target = {(each.raw_frames, each.seconds) for each in solved.groups[0].to_target}
    assert to_target == {(9000.0, 18.0), (math.inf, math.inf)}


def test_a_run_that_reached_its_goal_early_counts_at_all_further_frames(pruned: Path, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    shutil.copytree(pruned, folder)
    entries = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    pruned_one = next(entry for entry in entries if entry["kind"] == "Prune")
    (score,) = (each for each in entries if each["kind"] == "Score" and each["trial"] == pruned_one["trial"])
    score["solved"] = True
    (folder / "journal.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in entries if each is not pruned_one)
    )
    found = compare([folder])
    assert sum(len(group.runs) for group in found.groups) == 2, "it and the one that played all of it"
    assert "after 9,000 raw frames" in found.notes[0]


def test_what_can_not_be_compared_is_said(tmp_path: Path) -> None:
    early = experiment_folder(tmp_path / "early", document(RATES, parallelism=3), rising, until_scores=1)
    odd = shutil.copytree(early, tmp_path / "odd")
    (odd / "journal.jsonl").write_text('{"kind": "Start"}\n')
    gone = experiment_folder(tmp_path / "gone", document([1e-3, 1e-2]), rising)
    shutil.rmtree(gone / "rates-0")
    for folder, said in (
        (early, "no two of its runs were judged after as many raw frames yet"),
        (odd, r"journal\.jsonl: can't be read as an experiment's journal"),
        (gone, "rates-0: no such folder"),
    ):
        with pytest.raises(UsageError, match=said):
            compare([folder])


def test_the_page_of_a_search(pruned: Path) -> None:
    page = report(pruned)
    assert ("<script" in page, "The best, judged anew" in page) == (False, True)
    assert "trial 3, 18.10 +- 0.50 (standard error) over 100 fresh games: algorithm.learningRate=0.1" in page
    for words in ("Training return of the best trials", "log10 of learningRate", "played all of it", "ended before"):
        assert words in page, words
    assert page.count("others had higher scores at its raw frames") == 5
    assert '<a href="rates-3/report.html">1</a>' in page
    assert "Probability that a run of one group" not in page, "no settings have several seeds"


def test_the_page_of_seeds_has_the_comparisons_intervals(seeds: Path) -> None:
    page = report(seeds)
    words = ("IQM of verdicts (95 %)", "Fewer than 8 runs were judged in A, B", "4 seeds, 100 fresh games each")
    assert [each for each in words if each not in page] == []


def test_the_page_while_it_goes_on_or_failed_or_has_no_score(tmp_path: Path) -> None:
    running = experiment_folder(
        tmp_path / "a", document(RATES, parallelism=2), rising, until_scores=3, fails=frozenset({1})
    )
    page = report(running)
    assert [word for word in (">stopped<", "&lt;it was made to&gt;") if word not in page] == []
    assert "The best, judged anew" not in page
    shutil.rmtree(running / "rates-0")
    assert "Training return" in report(running), "a run's folder may be gone"
    failed = experiment_folder(tmp_path / "b", document([1e-3], maxFailedTrials=0), rising, fails=frozenset({0}))
    assert "No trial was judged yet." in report(failed)


def test_values_that_are_no_numbers_have_places_of_their_own(tmp_path: Path) -> None:
    for values, axis in (
        (["x", [1], "x"], ([0, 1, 0], "0 x, 1 [1]")),
        ([1, 2.5], ([1.0, 2.5], "b")),
        ([0.001, 0.1], (pytest.approx([-3, -1]), "log10 of b")),
        ([True, False], ([0, 1], "0 true, 1 false")),
    ):
        assert _axis("a.b", values) == axis


def test_a_folder_that_is_no_run_or_whose_journal_is_damaged_is_named(tmp_path: Path) -> None:
    for name, text, said in (
        ("experiment.yaml", "", "no experiment that has begun"),
        ("journal.jsonl", '{"kind":"End"}\nhalf a li', "journal.jsonl: "),
    ):
        (tmp_path / name).write_text(text)
        assert said in refused("report", tmp_path)


def test_the_members_of_a_population_are_one_group_after_the_most_frames(tmp_path: Path) -> None:
    rates = {RATE: {"logUniform": {"min": 1e-4, "max": 1e-1}}}
    members = {"size": 3, "readyRawFrames": 4000, "parameters": rates}
    found = compare([experiment_folder(tmp_path / "e", document([], search=None, population=members), rising)])
    assert [(len(group.runs), RATE in group.settings) for group in found.groups] == [(3, False)]
    assert "3 runs by the experiment's own games, after 9,000 raw frames." in found.notes[0]
