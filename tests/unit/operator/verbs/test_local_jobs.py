"""Runs as the verbs' jobs: how an edit is merged, and what the command line loads for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rljob_operator.verbs.local_jobs import LocalJobs, merge
from rljob_operator.verbs.refusals import no_log, not_there

from tests.support.experiment_runs import document, experiment_folder


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"spec": {"a": 1}}, {"spec": {"suspend": True}}, {"spec": {"a": 1, "suspend": True}}),
        ({"spec": {"actors": None}}, {"spec": {"actors": {"replicas": 2}}}, {"spec": {"actors": {"replicas": 2}}}),
        ({"metadata": {}}, {"metadata": {"annotations": {"x": None}}}, {"metadata": {}}),
        ({"metadata": {"x": {"y": "1"}}}, {"metadata": {"x": {"y": None}}}, {"metadata": {"x": {}}}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)  # fmt: skip
def test_merging(before: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]) -> None:
    merge(before, patch)
    assert before == after


def test_a_role_without_a_run_is_a_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = LocalJobs()
    assert (jobs.splits("actor-1"), jobs.splits("runs/pong")) == (True, False)
    (tmp_path / "learner").mkdir()
    assert not jobs.splits("learner")


def test_of_an_experiment_all_runs_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    search = Path("runs/rates")
    experiment_folder(search, document([1e-3, 1e-4]), lambda _rate, _seed, _frames: 1.0)
    for name in (None, str(search)):
        shown = LocalJobs().shown(name, False, figures=True)
        places = {job.place for job in shown.jobs}
        assert (shown.is_list, places) == (True, {"runs/rates/rates-0", "runs/rates/rates-1"})


@pytest.mark.parametrize(
    ("name", "there", "elsewhere", "said"),
    [
        ("pnog", ["pong", "breakout"], [], "did you mean pong?"),
        ("pong", ["pong-2"], ["other"], "there is one in other: -n other"),
        ("x", ["pong", "breakout"], [], "there are: pong, breakout"),
        ("x", [str(n) for n in range(10)], [], "there are: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_names_that_are_near(name: str, there: list[str], elsewhere: list[str], said: str) -> None:
    assert str(not_there(name, "team", there, elsewhere)).endswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("actor-3", "actor-3: there is no log of it in runs/x; there are: learner"),
        ("lerner", "lerner: no such role or member in runs/x; "),
    ],
)
def test_a_role_that_has_not_begun_is_no_mistake(name: str, said: str) -> None:
    assert str(no_log(name, "runs/x", ["learner"])).startswith(said)


@pytest.mark.parametrize("words", [["--help"], ["get", "--help"], ["get"], ["why", "runs/none"], ["events"]])
def test_what_is_not_about_a_cluster_loads_nothing_of_it(words: list[str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "bad = ('kubernetes', 'aiohttp', 'kopf')\n"
        "atexit.register(lambda: print([m for m in bad if m in sys.modules], file=sys.stderr))\n"
        "from rljob_operator.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
