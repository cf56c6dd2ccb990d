"""An experiment that has come to its end, gone on with: what is told of it then. Its folder is a real one, without runs."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.experiment_runs import document, experiment_folder


def test_a_best_trial_whose_run_is_gone_is_named_without_a_score_on_fresh_games(tmp_path: Path) -> None:
    folder = experiment_folder(tmp_path / "rates", document([1e-3, 1e-4]), lambda rate, _seed, _frames: 1e5 * rate)
    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"Verdict"' not in line))
    (folder / "rates-0").rename(tmp_path / "elsewhere")
    command = [sys.executable, "-m", "rljob_operator", "run", str(folder / "experiment.yaml"), "--run-dir", str(folder)]
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"best: trial 0, without a score on fresh games: it can't be judged: rljob: {folder / 'rates-0'}" in done.stdout
    )
    assert "take it" not in done.stdout
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"], len(outcome["trials"])) == ("Complete", "Completed", 2)
    best = outcome["best"]
    assert (best["trial"], best["chosenByMean"], best["mean"], best["runs"]) == (0, 100.0, None, [])
    assert "Verdict" not in journal.read_text(), "a later --resume tries again"
