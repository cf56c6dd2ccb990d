"""Commands whose output goes to a program that ends before them, as `rljob why | head` and `rljob run job.yaml | head` do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES, ROOT

RLJOB = (sys.executable, "-m", "rljob_operator")
CURVE = ROOT / "tests" / "data" / "diverging" / "cartpole-apex-seed-2.csv"


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*RLJOB, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_verb_ends_without_a_word() -> None:
    verb = started("why", "--rules", str(EXAMPLES / "cartpole-apex.yaml"), str(CURVE))
    assert verb.stdout is not None
    verb.stdout.close()
    assert verb.stderr is not None
    assert verb.stderr.read() == ""
    assert verb.wait(60) == 1


@pytest.mark.timeout(180)
def test_a_run_goes_on_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    sets = ("spec.successPolicy={rawFrames: 4000}", "spec.presetWithout=[successPolicy.targetReturn]")
    words = [word for item in sets for word in ("--set", item)]
    run = started("run", str(EXAMPLES / "cartpole-ppo.yaml"), "--run-dir", str(folder), *words)
    assert run.stdout is not None
    assert run.stdout.readline() == f"run folder: {folder}\n"
    run.stdout.close()
    assert run.stderr is not None
    assert run.stderr.read() == "rljob: the output has no reader any more; the run goes on (rljob get shows it)\n"
    assert run.wait(120) == 0
    assert json.loads((folder / "outcome.json").read_text())["state"] == "Complete"
