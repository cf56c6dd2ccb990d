"""The tutorials as they are written, and the steps of benchmarks/gpu that start whole runs, all with budgets smaller than theirs.

What docs/plugins.md trains is trained in ``test_plugins.py``.
"""

import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.documents import PAGE, TUTORIALS, block, blocks, followed, write_environment, write_example
from tests.support.local_run import LocalRun
from tests.support.paths import EXAMPLES, ROOT

USING_A_POLICY = ROOT / "docs" / "using-a-policy.md"
SMALLER = (
    "spec.successPolicy={targetReturn: {value: -21}}",
    "spec.evaluator.intervalSeconds=1",
    "spec.evaluator.triggerReturn=-21",
    "spec.evaluator.episodes=2",
)
"""Settings of the quickstart's run, whose policy the page is about: one that has learned nothing yet, and one verdict on it."""
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind ``rljob`` of each command in a page's blocks of shell."""
    for text in blocks(page, "sh"):
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rljob"]:
                yield words[1:]


def python(text: str, folder: Path) -> str:
    """What a script prints in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_using_a_trained_policy(
    local_run: Callable[..., LocalRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list(commands(USING_A_POLICY))
    (named,) = {word for words in given for word in words if word.startswith("runs/") and word.count("/") == 1}
    sets = [word for each in SMALLER for word in ("--set", each)]
    monkeypatch.chdir(tmp_path)
    run = local_run(*sets, job=EXAMPLES / "pong-vtrace.yaml", run_dir=tmp_path / named)
    assert run.finish(300) == 0, run.output + run.logs()
    assert [words[0] for words in given] == ["eval", "export", "export", "export"]
    copied = given[0][1]  # what the page has fetched from a cluster; here from the run of this machine
    code, said = run.verb("export", named, "--format", "policy", "-o", copied)
    assert code == 0, said
    for words in given:
        if words[0] == "eval":
            words += ["--episodes", "2"]
        if "onnx" in words and find_spec("onnx") is None:
            continue
        run.answer(*words)
    said = python("\n".join(blocks(USING_A_POLICY, "python")), tmp_path)
    assert -21 <= float(said.split()[-1]) <= 21, "the points of a game, behind the policy's own words"


def test_your_own_algorithm_network_and_environment(
    local_run: Callable[..., LocalRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_example(tmp_path)
    write_environment(tmp_path)
    (tmp_path / "test_mine.py").write_text(block("python", "def test_soft_q("))
    monkeypatch.chdir(tmp_path)
    run = local_run("--set", "spec.successPolicy={rawFrames: 20000}", job=tmp_path / "soft_q.yaml")
    assert run.finish(300) == 0, run.output + run.logs()
    for words in commands(PAGE):
        if words[0] != "run":
            run.answer(*(str(run.run_dir) if word == "RUN" else word for word in words))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_mine.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", ["first-run", "own-environment", "first-sweep"])
def test_a_tutorial_works_as_it_is_written(name: str, tmp_path: Path) -> None:
    followed(TUTORIALS / f"{name}.md", tmp_path)


SECONDS = 90
"""A run takes no longer, the start of its processes included; it ends as soon as it has the figures that its step writes."""
FIGURES = {"works": ["run", "report"], "minutes_to_18": ["rates", "end"], "feeding": ["run"]}


@pytest.mark.parametrize("name", FIGURES)
def test_a_step_runs_a_job_and_writes_its_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figures.jsonl"
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out), "--device", "cpu", "--seconds", str(SECONDS)])
    importlib.import_module(f"benchmarks.gpu.{name}").main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line for line in lines if "failed" in line] == []
    told = {line["figure"]: line for line in lines}
    assert set(FIGURES[name]) <= told.keys()
    rates = told.get("rates", told.get("run", {}))
    assert rates["device"] == "cpu"
    assert rates["updates_per_second"] > 0
    assert rates["bottleneck"]
    if name == "minutes_to_18":
        assert told["end"]["state"] is not None
        assert "return" in told
        assert "verdict" in told or told["end"]["state"] != "Complete", "the last one comes as the run ends"
    if name == "works":
        assert told["report"]["written"]
        assert not told["report"]["names_device"], "a processor has no name in it"
