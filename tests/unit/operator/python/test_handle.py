"""A `Run` of files that a run leaves: metrics, verdict, state, picture, without any process."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import rljob
from rljob.api.conditions import Reason
from rljob.api.status import Condition, RLJobStatus
from rljob_operator.local.job_view import StatusFile
from rljob_operator.local.lock import ControllerLock
from rljob_operator.local.run_folder import CONTROLLER_LOG, JOB_FILE, prepare
from rljob_operator.python.handle import Metrics

from tests.support.paths import EXAMPLES

RECORDS = [
    {"kind": "machine", "versions": {}, "time_unix": 1.0, "elapsed_seconds": 0.0, "updates": 0, "raw_frames": 0},
    {"mean_return": 20.0, "elapsed_seconds": 2.0, "updates": 5, "raw_frames": 100},
    {"kind": "evaluation", "mean": 30.5, "standard_error": 0.5, "episodes": 100, "finished": True, "raw_frames": 150},
    {"mean_return": 40.0, "loss": 0.5, "elapsed_seconds": 4.0, "updates": 9, "raw_frames": 200},
    {"kind": "evaluation", "mean": 12.0, "episodes": 20, "finished": False, "raw_frames": 190},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    prepare(run_dir, resume=False)
    (run_dir / JOB_FILE).write_text((EXAMPLES / "cartpole-ppo.yaml").read_text())
    return run_dir


@pytest.fixture
def run(folder: Path) -> rljob.Run:
    return rljob.attach(folder)


def write(folder: Path, type: str, reason: str, message: str) -> None:
    conditions = [
        Condition(type="Ready", status="False", reason=reason, message=message, last_transition_time=1.0),
        Condition(type=type, status="True", reason=reason, message=message, last_transition_time=1.0),
    ]
    StatusFile(folder).write(RLJobStatus(start_time=1.0, conditions=conditions), at_once=True)


def test_the_figures_are_columns_of_one_length(folder: Path, run: rljob.Run) -> None:
    assert run.metrics() == {}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS) + '{"mean_re')
    assert run.metrics() == {
        "mean_return": [20.0, 40.0],
        "elapsed_seconds": [2.0, 4.0],
        "updates": [5, 9],
        "raw_frames": [100, 200],
        "loss": [None, 0.5],
    }
    assert run.metrics("evaluation")["mean"] == [30.5, 12.0]
    verdict = run.verdict
    assert (verdict.mean, verdict.standard_error, verdict.episodes) == (30.5, 0.5, 100)


def test_a_table_is_made_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas is no requirement, so a stand-in of its one class stands here for what it is given."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: ("table", columns)))
    assert Metrics.of([{"a": 1}, {"b": 2}]).to_pandas() == ("table", {"a": [1, None], "b": [None, 2]})
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rljob.UsageError, match="pip install pandas"):
        Metrics.of([]).to_pandas()


def test_how_it_stands(folder: Path, run: rljob.Run) -> None:
    assert (run.folder, Path(run), run.status.state) == (folder, folder, "Lost")
    last = "ModuleNotFoundError: No module named 'rljob_operator'"
    (folder / CONTROLLER_LOG).write_text(f"a line\n{last}\n")
    assert (last in run.status.message, last in run.why()) == (True, True)
    assert run.wait(0) is run, "without a controller nothing more will come of it"
    with ControllerLock(folder):
        assert run.status == ("Starting", "")
        with pytest.raises(TimeoutError, match=r"is Starting after 0\.3 s, and goes on"):
            run.wait(0.3)
    refused = "learner refused the job: no network for it"
    write(folder, "Failed", Reason.FAILURE_POLICY_RULE, refused)
    assert (run.status.message, refused in run.why(), run.verdict) == (refused, True, None)
    assert run.logs("controller", tail=1) == f"controller  {last}"


def test_a_picture_never_raises(folder: Path, run: rljob.Run) -> None:
    write(folder, "Failed", Reason.FAILURE_POLICY_RULE, "<b>no</b>")
    assert "&lt;b&gt;no&lt;/b&gt;" in run._repr_html_()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    shown = run._repr_html_()
    for words in ("verdict: 30.50 +- 0.50 (100 games)", "<svg", "training, last 20 games"):
        assert words in shown
    (folder / JOB_FILE).unlink()
    assert "not a run folder" in run._repr_html_()


def test_progress_is_lines_or_a_picture_that_is_drawn_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: rljob.Run
) -> None:
    """IPython is no requirement; a stand-in takes what a notebook would be shown."""
    write(folder, "Complete", Reason.TARGET_RETURN_REACHED, "mean return 500")
    run.wait(progress=True)
    heading, row = (line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert (heading, row) == (["NAME", "STATE"], ["cartpole-ppo", "TargetReturnReached"])
    drawn: list[Any] = []
    notebook, display = ModuleType("IPython"), ModuleType("IPython.display")
    monkeypatch.setattr(notebook, "get_ipython", lambda: SimpleNamespace(kernel=object()), raising=False)
    monkeypatch.setattr(
        display, "display", lambda what, display_id: SimpleNamespace(update=drawn.append), raising=False
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    run.wait(progress=True)
    assert (drawn, capsys.readouterr().out) == ([run], "")
