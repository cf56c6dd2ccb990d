"""Every point once, whenever the process is killed and whatever the server does: two servers of the test stand for W&B, which
counts rows, and for MLflow, to which a row that comes twice is one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st
from rljob.api import load_manifest
from rljob.child import Child
from rljob.errors import UsageError
from rljob.telemetry.recorder import METRICS_FILE, Recorder
from rljob.telemetry.run_folder import EFFECTIVE_FILE
from rljob.tracking import sender
from rljob.tracking.points import Point, note_ending
from rljob.tracking.sender import CLIENTS, in_words, name_there
from rljob.tracking.tracker import IDENTITY_VARIABLE, State, untracked
from rljob_operator.local.trackers import identity

from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually


def test_what_trackers_of_a_pod_meet_is_read_from_what_they_write(tmp_path: Path) -> None:
    def written(name: str, problem: str, seconds_ago: float) -> None:
        state = {"pid": 1, "time_unix": time.time() - seconds_ago, "points": 3, "problem": problem}
        (tmp_path / f"{name}.json").write_text(json.dumps(state))

    both, wandb, began = ("wandb", "mlflow"), ("wandb",), time.time() - 1000.0
    assert untracked(tmp_path, both, time.time()) is None
    silent, refused = "its tracker did not answer for 120 s", "401: who are you?"
    assert untracked(tmp_path, both, began) == {"W&B": silent, "MLflow": silent}
    for name, problem in (("wandb", ""), ("mlflow", refused)):
        written(name, problem, 5.0)
    assert [untracked(tmp_path, names, began) for names in (both, wandb)] == [{"MLflow": refused}, {}]
    assert untracked(tmp_path, both, time.time()) is None, "that was in an earlier life of the pod"
    written("wandb", "", 500.0)
    assert untracked(tmp_path, wandb, began) == {"W&B": silent}
    (tmp_path / "wandb.json").write_text("{")
    assert untracked(tmp_path, wandb, began) == {"W&B": silent}


def test_how_a_job_ends_is_written_where_trackers_of_a_pod_read_it(tmp_path: Path) -> None:
    note_ending(tmp_path, {"state": "Complete"})
    assert json.loads((tmp_path / "outcome.json").read_text()) == {"state": "Complete"}
    for other in ({}, {"state": "Running"}, {"state": ["Complete"]}):
        with pytest.raises(ValueError, match='"state" is needed: one of Complete, Failed'):
            note_ending(tmp_path, other)


def test_a_problem_is_all_that_was_said_in_one_line() -> None:
    for error, said in (
        (
            ValueError("1 validation error\n  mode\n    allowed: online"),
            "ValueError: 1 validation error mode allowed: online",
        ),
        (UsageError("pip install 'rljob[mlflow]'"), "pip install 'rljob[mlflow]'"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("x" * 1000 + " refused"), f"ValueError: {'x' * 88} ... {'x' * 187} refused"),
    ):
        assert in_words(error) == said


class Killed(BaseException):
    """The end of the process, as by SIGKILL."""


class Server:
    """Rows that are there, and what happens at each of its next steps: go on, fail, or the sender is killed."""

    def __init__(self, plan: Sequence[str]) -> None:
        self.rows: list[float] = []
        self.plan = list(plan)
        self.finished: list[str] = []

    def step(self) -> None:
        what = self.plan.pop(0) if self.plan else "go"
        if what == "kill":
            raise Killed
        if what == "fail":
            raise ConnectionError("the server is away")


class Client:
    """Of one of the two servers."""

    def __init__(self, server: Server, state: State) -> None:
        server.step()
        self._server, self._waiting = server, list[float]()

    def finish(self, state: str) -> None:
        self._server.step()
        self._arrive()
        self._server.finished.append(state)

    def _arrive(self) -> None:
        self._server.rows += self._waiting
        self._waiting = []


class Counting(Client):
    """W&B: its client takes rows at once, the server some time; the server says how many it has."""

    def __init__(self, server: Server, state: State) -> None:
        super().__init__(server, state)
        state.points, state.last = len(server.rows), max(server.rows, default=0.0)

    def send(self, points: Sequence[Point]) -> None:
        for point in points:
            self._server.step()
            self._waiting.append(point.time_unix)
        if len(self._waiting) > 3:
            self._arrive()


class SetOfRows(Client):
    """MLflow: a request is there when it was answered, or when it was not."""

    def send(self, points: Sequence[Point]) -> None:
        times = [point.time_unix for point in points]
        self._server.rows += [time for time in times if time not in self._server.rows]
        self._server.step()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "LONGEST_WAIT_SECONDS"):
        monkeypatch.setattr(sender, name, 0.0)


def run(path: Path, kind: Any, server: Server) -> list[State]:
    """The sender, started again whenever it was killed, until all is sent; what it told."""
    told = [State()]
    for _ in range(100):
        state = State(told[-1].points, told[-1].last)
        try:
            sender.send(
                path,
                state,
                lambda state=state: kind(server, state),
                lambda state=state: told.append(replace(state)),
                stop=threading.Event(),
                once=True,
                ended=lambda: "Complete",
            )
        except Killed:
            continue
        return told[1:]
    raise AssertionError("it does not come to an end")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for begin in (10, 5):  # a learner that was killed goes on from a checkpoint, with fewer frames
        with Recorder(folder) as recorder:
            for frame in range(begin, begin + 6):
                recorder.record({"x": float(frame)}, frame, frame)
    return folder / METRICS_FILE


@pytest.mark.parametrize("kind", [Counting, SetOfRows])
@given(plan=st.lists(st.sampled_from(["go", "go", "fail", "kill"]), max_size=40))
@settings(max_examples=150, deadline=None)
def test_every_point_is_there_once_in_its_order(kind: Any, plan: list[str], written: Path) -> None:
    server = Server(plan)
    told = run(written, kind, server)[-1]
    assert (len(server.rows), server.rows) == (12, sorted(set(server.rows)))
    assert (server.finished[-1], told.done, told.problem, told.points) == ("Complete", True, "", 12)


def test_a_failure_is_told_and_so_is_its_end(written: Path) -> None:
    told = run(written, SetOfRows, Server(["fail", "fail"]))
    assert [state.problem for state in told][:2] == ["ConnectionError: the server is away"] * 2
    assert (told[-1].problem, told[-1].points) == ("", 12)


def test_only_one_process_sends_a_run(tmp_path: Path) -> None:
    with sender.alone(tmp_path, "wandb"):
        with pytest.raises(UsageError, match="another process sends this run to W&B"), sender.alone(tmp_path, "wandb"):
            pass
        with sender.alone(tmp_path, "mlflow"):
            pass


def test_a_tracker_that_does_not_begin_says_why_in_its_last_line(tmp_path: Path) -> None:
    """That line is what `rljob run`, `rljob track` and the condition Tracked repeat."""
    (tmp_path / "tracking").mkdir()
    command = [sys.executable, "-m", "rljob.tracking.sender", str(tmp_path), "wandb", "--once"]
    with sender.alone(tmp_path / "tracking", "wandb"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = done.stderr.splitlines()[-1].partition("W&B now: ")[0]
    assert (done.returncode, said) == (2, "rljob: another process sends this run to ")


def test_names_are_told_to_mlflow_as_it_takes_them() -> None:
    """One that it refuses would be sent again and again, and nothing after it: keyword arguments have any name."""
    there = {
        **{name: name for name in ("environment.kwargs.päth", "evaluation/mean", "a b.c-d")},
        "environment.kwargs.max speed (m/s)": "environment.kwargs.max speed _m/s_",
        "n:estimators": "n_estimators",
        "../up//here": "up/here",
        "x" * 300: "x" * 250,
        "?": "_",
    }
    assert {name: name_there(name) for name in there} == there


def test_a_run_that_is_new_at_mlflow_gets_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent to another experiment, or to a run that was deleted since, is not there."""
    client = Mock()
    monkeypatch.setitem(sys.modules, "mlflow", Mock(MlflowClient=Mock(return_value=client)))
    monkeypatch.setitem(sys.modules, "mlflow.entities", Mock())
    job = load_manifest(EXAMPLES / "cartpole-impala.yaml", ["tracking.mlflow.uri=http://127.0.0.1:9"])
    client.create_run.return_value.data.params = {"seed": "7", "algo": "IMPALA"}
    client.create_run.return_value.data.tags = {}
    for there, kept in (([], 0), ([client.create_run.return_value], 2)):
        client.search_runs.return_value = there
        state = State(2, 2.0)
        CLIENTS["mlflow"](job, "id", tmp_path, state)
        assert state.points == kept
    changed = [call.args[1:] for call in client.set_tag.call_args_list]
    assert set(changed) == {("seed", "1")}, "a parameter that was changed is told, for it can't be changed there"


def test_a_run_keeps_its_identity(tmp_path: Path) -> None:
    first = identity(tmp_path / "tracking")
    assert (len(first), identity(tmp_path / "tracking")) == (32, first)


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    """Whoever started it, a controller or a kubelet, starts it again then."""
    shutil.copy(EXAMPLES / "cartpole-impala.yaml", tmp_path / EFFECTIVE_FILE)
    hanging = SENDING.replace("pass", "time.sleep(60)").replace("import sender", "import sender; import time")
    hanging += f"sender.HUNG_SECONDS = 1\nmain({str(tmp_path)!r})"
    with Recorder(tmp_path) as recorder:
        recorder.record({"x": 1.0}, 1, 1)
    done = subprocess.run(
        [sys.executable, "-c", hanging], timeout=60, check=False, env=os.environ | {IDENTITY_VARIABLE: "id"}
    )
    assert done.returncode == -signal.SIGALRM


SENDING = """
from rljob.tracking import sender

class Taker:
    def __init__(self, *run): pass
    def send(self, points): pass
    def finish(self, state): print(state)

sender.wanted = lambda tracking: ["wandb"]  # no client is needed for this
sender.CLIENTS["wandb"] = Taker

def main(folder):
    sender.main([folder, "wandb"])
"""


@pytest.mark.parametrize("state", ["Complete", "Killed"])
def test_that_of_a_pod_tells_what_the_learner_was_told_of_the_end(state: str, tmp_path: Path) -> None:
    """Killed: the pod goes, and the job has not ended."""
    shutil.copy(EXAMPLES / "cartpole-impala.yaml", tmp_path / EFFECTIVE_FILE)
    if state == "Complete":
        note_ending(tmp_path, {"state": state})
    command = [sys.executable, "-c", f"{SENDING}\nmain({str(tmp_path)!r})"]
    environment = os.environ | {IDENTITY_VARIABLE: "id"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        eventually((tmp_path / "tracking" / "wandb.json").exists, "it does not begin")
        process.terminate()
        assert (process.wait(30), process.stdout.read().strip()) == (0, state)


@pytest.mark.parametrize("state", ["Stopped", "Killed"])
def test_it_ends_with_the_process_that_started_it_and_tells_how_that_was(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed: a controller that left no outcome."""
    shutil.copy(EXAMPLES / "cartpole-impala.yaml", tmp_path / EFFECTIVE_FILE)
    told = tmp_path / "tracking" / "wandb.json"
    if state == "Stopped":
        (tmp_path / "outcome.json").write_text('{"state": "Stopped"}')
    (tmp_path / "sending.py").write_text(SENDING)
    monkeypatch.syspath_prepend(tmp_path)
    with Child("sending", str(tmp_path), variables={IDENTITY_VARIABLE: "id"}, stdout=subprocess.PIPE) as process:
        eventually(told.exists, "it does not begin")
        assert process.poll() is None
        process.leave()
        assert (process.wait(30), process.stdout.read().decode().strip()) == (0, state)
    assert json.loads(told.read_text())["done"]
