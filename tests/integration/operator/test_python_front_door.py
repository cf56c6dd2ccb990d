"""`rljob.run`, `attach` and the handle on real runs: what starts one is interrupted or killed, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rljob
from rljob_operator.local.job_view import running_members

from tests.support import slow_game
from tests.support.controllers import controller_pid
from tests.support.local_run import ENDLESS
from tests.support.paths import IMPORTABLE, ROOT
from tests.support.waiting import eventually

ENDLESSLY = dict.fromkeys(word.removesuffix("=") for word in ENDLESS if word.endswith("=")) | {
    "spec.evaluator.enabled": False
}
SMALLER = {"200_000": "2_000", '"batchSize": 64': '"batchSize": 8', '"envsPerActor": 64': '"envsPerActor": 8'}
"""Changes of the notebook's run, so that it does some updates and ends in seconds also where others use the cores."""
NOTEBOOK = ROOT / "examples" / "first_run.ipynb"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs go under the test's folder, find the test's games, and are ended whatever happens."""
    monkeypatch.chdir(tmp_path)
    for name, value in IMPORTABLE.items():
        monkeypatch.setenv(name, value)
    yield
    for found in tmp_path.glob("**/controller.lock"):
        if pid := controller_pid(found.parent):
            os.kill(pid, signal.SIGKILL)
        for member in running_members(found.parent).values():
            os.kill(member, signal.SIGKILL)


def starter(code: str) -> subprocess.Popen[str]:
    """A program of its own that starts a run endlessly, prints its folder, and then does ``code``."""
    text = f"import rljob\nrun = rljob.run({str(slow_game.JOB)!r}, set={ENDLESSLY!r})\nprint(run.folder, flush=True)\n"
    return subprocess.Popen(
        [sys.executable, "-c", text + code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def test_a_run_outlives_the_program_that_started_it() -> None:
    """Which Ctrl-C ends while it waits: a terminal sends that to its whole group, a notebook to its kernel."""
    # What was started in the background, as these tests may have been, has the signal ignored.
    waiting = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program = starter(f"{waiting}print('waits', flush=True)\nrun.wait()\n")
    folder = Path(program.stdout.readline().strip())
    controller = controller_pid(folder)
    assert program.stdout.readline() == "waits\n"
    os.killpg(program.pid, signal.SIGINT)  # at once, while the controller is still loading
    assert program.wait(60) != 0
    program.stdout.close()
    run = rljob.attach(folder)
    assert run.status.state == "Starting"
    assert controller_pid(folder) == controller is not None
    eventually(lambda: any(run.metrics().get("updates", ())), run.why, 180)
    assert run.status.state in ("Running", "Degraded", "Starting")
    assert rljob.attach().folder == folder, "the newest run here"
    run.stop()
    assert (run.status.state, controller_pid(folder), running_members(folder)) == ("SessionEnded", None, {})
    assert "report" in run.logs("controller")
    assert "goes on" in run.why() or "SessionEnded" in run.why()
    assert run.policy().environment_id == "tests.support.slow_game:make"


def test_a_run_that_is_stopped_at_once_was_stopped() -> None:
    run = rljob.run(slow_game.JOB)
    run.stop()
    assert run.status == ("SessionEnded", "stopped before any role started; resuming starts it")
    assert rljob.attach(run.folder).wait(1).status.state == "SessionEnded"
    with pytest.raises(rljob.UsageError, match="not empty"):
        rljob.run(slow_game.JOB, folder=run.folder)


def test_a_run_that_can_not_be_begun_says_why() -> None:
    run = rljob.run("PPOVector", set={"environment.id": "Nope-v0"}, folder="nope").wait(120)
    assert run.status.state == "Failed"
    assert run.status.message.startswith("environment 'Nope-v0' is not known")
    assert "environment 'Nope-v0' is not known" in run.why()
    assert run.folder == Path("nope").resolve()
    assert not (run.folder / "roles" / "learner.process.json").exists()


@pytest.mark.long
def test_the_notebook_runs_from_its_first_cell_to_its_last() -> None:
    """Its cells in one process and one namespace, as a kernel runs them; the last expression of a cell is shown."""
    document: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    cells = ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in document["cells"])
    smaller = "\n".join(cells)
    for theirs, ours in SMALLER.items():
        assert smaller.count(theirs) == 1
        smaller = smaller.replace(theirs, ours)
    done = subprocess.run([sys.executable, "-c", smaller], capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr
    assert "STATE" in done.stdout
    assert "Complete (StepBudgetReached)" in done.stdout
    assert float(done.stdout.split("plays for ")[1].split()[0]) > 0
