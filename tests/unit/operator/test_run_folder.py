"""The run folder: what it refuses, who has it, that its files are replaced in one step, and how its logs are followed."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rljob_operator.local import log_files
from rljob_operator.local.log_files import LogFollower, bound, tail
from rljob_operator.local.run_folder import (
    EXPERIMENT_FILE,
    JOB_FILE,
    LOCK_FILE,
    ControllerLock,
    RunFolderProblem,
    chosen_run,
    holder,
    new_run_dir,
    newest,
    prepare,
    stored_runs,
    write_json,
)
from rljob_operator.verbs.jobs import NotReached
from rljob_operator.verbs.local_jobs import LocalJob

from tests.support.controllers import controller_pid


def test_an_older_run_is_not_written_over(tmp_path: Path) -> None:
    prepare(tmp_path, resume=False)
    with pytest.raises(RunFolderProblem, match="--resume"):
        prepare(tmp_path, resume=False)
    (tmp_path / JOB_FILE).write_text("")
    prepare(tmp_path, resume=True)


def test_runs_that_start_in_the_same_moment_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        folders = list(threads.map(new_run_dir, ["same"] * 32))
    assert len(set(folders)) == 32
    assert all(folder.is_dir() and not any(folder.iterdir()) for folder in folders)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("runs").write_text("")
    with pytest.raises(RunFolderProblem, match=r"can't be written.*name another --run-dir"):
        new_run_dir("same")


@pytest.mark.parametrize(
    ("path", "resume", "said"),
    [("none", True, "nothing to resume"), ("file", False, "can't be written"), ("file/run", False, "can't be written")],
)
def test_a_path_that_can_not_be_a_folder_or_has_nothing(tmp_path: Path, path: str, resume: bool, said: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderProblem, match=said):
        prepare(tmp_path / path, resume=resume)


def runs(*names: str) -> None:
    """Runs that were begun one after the other, and have no controller any more."""
    for name in names:
        prepare(Path("runs") / name, resume=False)
        (Path("runs") / name / JOB_FILE).write_text("")
        with ControllerLock(Path("runs") / name):
            pass


def test_the_newest_run_is_meant_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFolderProblem, match="no run under runs/"):
        chosen_run(None)
    runs("old", "new")
    assert chosen_run(None) == Path("runs/new")
    with pytest.raises(RunFolderProblem, match="not a run folder"):
        chosen_run(tmp_path)
    with pytest.raises(RunFolderProblem, match="no such folder"):
        chosen_run(tmp_path / "none")


def test_where_the_newest_is_an_experiments_its_runs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs("alone", "search/search-0", "search/search-1")
    (Path("runs") / "search" / EXPERIMENT_FILE).write_text("")
    assert newest() == Path("runs/search")
    with pytest.raises(RunFolderProblem, match=r"experiment's .* runs/search/search-1, runs/search/search-0 "):
        chosen_run(None)
    assert stored_runs() == [Path("runs") / each for each in ("search/search-1", "search/search-0", "alone")]
    (Path("runs") / "search" / EXPERIMENT_FILE).unlink()
    assert chosen_run(None) == Path("runs/search/search-1"), "a folder that its user has made"


def test_one_controller_a_run_folder(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with ControllerLock(tmp_path):
        assert controller_pid(tmp_path) == os.getpid()
        with pytest.raises(RunFolderProblem, match=f"pid {os.getpid()}"), ControllerLock(tmp_path):
            raise AssertionError("two controllers")
        assert controller_pid(tmp_path) == os.getpid(), "the refused one took nothing away"
    assert holder(tmp_path) is None
    with ControllerLock(tmp_path):
        assert controller_pid(tmp_path) == os.getpid(), "it can be taken again"


CONTROLLER = """
import subprocess, sys, time
from pathlib import Path
from rljob_operator.local.run_folder import ControllerLock
with ControllerLock(Path(sys.argv[1])):
    print(subprocess.Popen(["sleep", "60"], close_fds=False).pid, sys.stdin.read() == "", flush=True)
    time.sleep(60)
"""


def test_a_lock_goes_to_the_controller_that_it_was_taken_for_and_to_none_of_its_processes(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CONTROLLER, str(tmp_path)]
    with ControllerLock(tmp_path, for_another=True) as lock:
        about = holder(tmp_path)
        assert about is not None
        assert about.process is None, "there is no process yet that a verb could send a signal to"
        controller = subprocess.Popen(words, stdin=lock.file, stdout=subprocess.PIPE, text=True)
        lock.name(controller.pid)
    assert controller_pid(tmp_path) == controller.pid, "before it has done anything"
    child, empty = controller.stdout.readline().split()
    assert (controller_pid(tmp_path), empty) == (controller.pid, "True")
    controller.kill()
    controller.wait()
    controller.stdout.close()
    try:
        assert holder(tmp_path) is None
    finally:
        os.kill(int(child), signal.SIGKILL)


@pytest.mark.parametrize("other", [{"boot": "another machine's"}, {"namespace": "pid:[1]"}, {"start_ticks": 1}])
def test_no_other_process_with_the_controllers_id_is_told_to_end(tmp_path: Path, other: dict[str, object]) -> None:
    """The controller is on another machine or in a container, or its id was given to another process since."""
    (tmp_path / JOB_FILE).write_text("")
    with subprocess.Popen(["sleep", "60"]) as innocent, ControllerLock(tmp_path) as lock:
        lock.name(innocent.pid)
        named = json.loads((tmp_path / LOCK_FILE).read_text())
        named["process"] |= {"host": "elsewhere", **other}
        (tmp_path / LOCK_FILE).write_text(json.dumps(named))
        found = holder(tmp_path)
        assert found is not None, "it is not lost"
        assert not found.here
        with pytest.raises(NotReached, match=f"its controller is pid {innocent.pid}.*gets no signal from here"):
            LocalJob(tmp_path).stop(print, 1.0)
        assert innocent.poll() is None
        innocent.kill()


def test_a_json_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    write_json(path, {"state": "Failed"})
    write_json(path, {"state": "Complete"})
    assert json.loads(path.read_text()) == {"state": "Complete"}
    assert [p.name for p in tmp_path.iterdir()] == ["outcome.json"]


def test_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    assert tail(log, 3) == []
    log.write_text("".join(f"line {k}\n" for k in range(10_000)))
    assert (tail(log, 2), tail(log, 0), tail(log, 20_000)[0]) == (["line 9998", "line 9999"], [], "line 0")
    log.write_bytes(b"caf\xe9\nend")
    assert tail(log, 5) == ["caf\ufffd", "end"]


def test_following(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    follower = LogFollower(log, 1)
    assert list(follower.new_lines()) == [], "it may come later"
    log.write_text("one\ntwo\n")
    assert list(follower.new_lines()) == ["two"]
    with log.open("a") as file:
        file.write("three\nfo")
    assert list(follower.new_lines()) == ["three"]
    with log.open("a") as file:
        file.write("ur\n")
    assert list(follower.new_lines()) == ["four"]
    log.write_text("new\n")
    assert list(follower.new_lines()) == ["new"], "it was begun anew"


def test_a_log_that_has_become_too_long_keeps_its_end_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(log_files, "_KEPT_BYTES", 100)
    path = tmp_path / "actor-0.log"
    with path.open("a", buffering=1) as writer:
        writer.write("".join(f"line {n:04}\n" for n in range(90)))
        bound(path)
        assert path.stat().st_size == 900, "as long as it may be"
        writer.write("".join(f"line {n:04}\n" for n in range(90, 120)))
        bound(path)
        writer.write("line 0120\n")
    told, *kept = path.read_text().splitlines()
    assert told == "rljob: 1,110 bytes of this log were removed, as it grew too large"
    assert kept == [f"line {n:04}" for n in range(111, 121)]
    with pytest.raises(OSError, match="No such file"):
        bound(tmp_path / "none.log")
