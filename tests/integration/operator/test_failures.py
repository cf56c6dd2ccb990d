"""Jobs that go wrong: a wedged learner, actors that never work, a GPU that is not there, folders and disks that take nothing."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api import read_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION
from rljob.api.status import RLJobStatus
from rljob.checkpoints.files import stored, verify
from rljob_operator.local.job_view import running_members
from rljob_operator.local.run_folder import RunFolderProblem, prepare
from rljob_operator.local.spec_store import SpecStore, StoredRun

from tests.support import slow_game
from tests.support.disks import fill
from tests.support.forked_roles import ForkedRole
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES, IMPORTABLE
from tests.support.waiting import known

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Hides every device, so that these tests mean the same on a machine with one."""
ASKS = "learner.accelerator asks for nvidia.com/gpu"


@pytest.mark.long
def test_a_wedged_learner_is_called_stalled_and_then_the_deadline_acts(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, "--set", "spec.progressDeadlineSeconds=20")
    run.until_learning(50)
    run.until(lambda: run.reason("Progressing") == "LearnerAdvancing", 60, "LearnerAdvancing")
    learner = running_members(run.run_dir)["learner"]
    os.kill(learner, signal.SIGSTOP)
    stopped = time.monotonic()
    run.until(lambda: run.reason("Progressing") == "LearnerStalled", 60, "LearnerStalled")
    assert run.job_status.state == "Degraded"
    run.until(lambda: run.job_status.is_true("FailureTarget"), 60, "FailureTarget")
    assert time.monotonic() - stopped >= 15
    assert run.job_status.condition("Failed") is None, "not before everything has left"
    os.kill(learner, signal.SIGCONT)  # else it is killed after its 30 seconds, which this test need not wait for
    assert (run.finish(90), run.reason("Failed")) == (1, "ProgressDeadlineExceeded")
    assert "Failed (ProgressDeadlineExceeded)" in run.output
    assert running_members(run.run_dir) == {}
    assert "ProgressDeadlineExceeded" in run.verb("why", str(run.run_dir))[1]
    run.answer("resume", str(run.run_dir), code=2, said="has ended")


@pytest.mark.long
def test_actors_that_never_work_fail_the_job_with_their_last_words(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(
        "--set", "spec.environment.id=tests.support.slow_game:broken", job=slow_game.JOB, environment=IMPORTABLE
    )
    assert run.finish(240) == 1, run.output
    status = run.job_status
    failed = known(status.condition("Failed"))
    assert (failed.reason, "the plant caught fire" in failed.message) == ("ActorsCrashLooping", True)
    assert {failure.exit_code for failure in status.failures if failure.role == "Actor"} == {3}
    assert status.restarts.counted == 0, "actors never count towards backoffLimit"
    assert "the plant caught fire" in run.output[run.output.index("last lines of ") :]


def test_a_full_disk_is_told_and_damages_nothing(small_disk: Path) -> None:
    run_dir = small_disk / "run"
    prepare(run_dir, resume=False)
    SpecStore(run_dir).create(read_manifest(EXAMPLES / "cartpole-apex.yaml"))
    run = StoredRun(run_dir)
    run.write_status(RLJobStatus(active_seconds=1), at_once=True)
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    filler = small_disk / "filler"
    fill(filler)
    run.write_status(RLJobStatus(active_seconds=2), at_once=True)
    assert "No space left" in run.problem
    with pytest.raises(RunFolderProblem, match=r"No space left.*what was stored before stays"):
        SpecStore(run_dir).edit(lambda document: document["spec"]["actors"].update(replicas=2))
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()} == before
    filler.unlink()
    run.write_status(RLJobStatus(active_seconds=2), at_once=True)
    assert run.problem == ""
    assert StoredRun(run_dir).status.active_seconds == 2


def test_a_folder_that_can_not_be_written_is_refused(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(RunFolderProblem, match="can't be written: Read-only file system; name another --run-dir"):
        prepare(small_disk / "run", resume=False)


@pytest.mark.long
@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_a_run_outlives_a_full_disk(local_run: Callable[..., LocalRun], small_disk: Path) -> None:
    run = local_run(*ENDLESS, "--set", "spec.checkpoint.intervalSeconds=2", run_dir=small_disk / "run")
    run.until_learning()
    run.until(lambda: run.reason("CheckpointValid") == "Verified", 60, "a checkpoint")
    filler = small_disk / "filler"
    fill(filler)
    run.until(lambda: "CheckpointValid StorageError" in run.output, 60, "the failed checkpoint")
    run.until(lambda: "status.json can't be written: No space left on device" in run.output, 60, "the status")
    run.until_learning(run.status("learner")["updates"] + 50)
    assert "no space left on the disk of" in run.verb("get", str(run.run_dir))[1], (
        "the verbs don't pass off old news as new"
    )
    assert run.verb("scale", str(run.run_dir), "1")[0] == 0, "nothing to change"
    run.answer("scale", str(run.run_dir), "2", code=2, said="No space left on device; what was stored before stays")
    before = known(run.job_status.checkpoint)
    digests = [f"sha256:{verify(path).digest}" for path in stored(run.run_dir / "checkpoints")]
    assert before.digest in digests, "the one before stays valid"
    filler.unlink()
    run.until(
        lambda: run.reason("CheckpointValid") == "Verified" and run.job_status.checkpoint, 60, "it is valid again"
    )
    run.until(lambda: run.job_status.checkpoint.step > before.step, 60, "a newer checkpoint")  # type: ignore[union-attr]
    assert (run.job_status.restarts.counted, run.interrupt()) == (0, 130)
    assert not list(run.run_dir.rglob(".new-*")), "nothing half written is left"


@pytest.mark.long
@pytest.mark.parametrize("small_disk", ["16m"], indirect=True)
def test_a_replay_that_cannot_be_saved_at_the_end_is_told(local_run: Callable[..., LocalRun], small_disk: Path) -> None:
    run = local_run(*ENDLESS, run_dir=small_disk / "run")
    run.until_learning(100)
    fill(small_disk / "filler")
    assert run.interrupt(120) == 130
    assert "warning: replay-0 could not save its experience" in run.output
    assert "killed" not in (run.run_dir / "logs" / "replay-0.log").read_text(), "it is not waited for in vain"
    (small_disk / "filler").unlink()


@pytest.mark.long
def test_a_run_goes_on_without_it_and_says_so(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, "--set", "spec.learner.accelerator={count: 1}", environment=NO_GPU)
    run.until_learning(20)
    run.until(lambda: f"{ASKS}, none is here: the learner runs on the CPU" in run.output, 30, "the notice")
    assert run.status("learner")["device"] == "cpu"
    assert ASKS in (run.run_dir / "logs" / "learner.log").read_text()
    assert run.interrupt() == 130


@pytest.mark.parametrize("said", ["the option", "the environment"])
def test_a_pod_ends_with_the_reason_where_nothing_is_said(tmp_path: Path, said: str) -> None:
    manifest = (EXAMPLES / "cartpole-apex.yaml").read_text().replace(
        "\nspec:\n", "\nspec:\n  learner:\n    accelerator: {count: 1, resourceName: amd.com/gpu}\n", 1
    )  # fmt: skip
    (tmp_path / "job.yaml").write_text(manifest)
    given: dict[str, object] = {name: f"ipc://{tmp_path}/{name}" for name in ("replay_sample", "weights", "notice")}
    given |= {"job": tmp_path / "job.yaml", "run_dir": tmp_path, "name": "learner"}
    if said == "the option":
        given["on_cluster"] = ""
    learner = ForkedRole(
        "learner", tmp_path / "log", NO_GPU | {"RLJOB_ON_CLUSTER": str(int(said != "the option"))}, **given
    )
    assert learner.wait() == EXIT_CONFIGURATION
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("rljob: learner.accelerator asks for amd.com/gpu, but ")


# Members that do not answer: named, back when they answer again, replaced when they do not; and what is no hang.


ONE_ACTOR = ("--set", "spec.autoscaling.mode=Disabled", "--set", "spec.actors.replicas=1")


@pytest.fixture
def started(local_run: Callable[..., LocalRun]) -> Callable[..., LocalRun]:
    """Starts a run that trains, and leaves the processor to others meanwhile."""

    def start(prelude: str = "") -> LocalRun:
        run = local_run(*ENDLESS, *ONE_ACTOR, job=slow_game.JOB, environment=IMPORTABLE, prelude=prelude)
        run.until_learning()
        run.until(lambda: run.job_status.state == "Running", 60, "Running")
        return run

    return start


@pytest.mark.long
def test_a_member_that_is_stopped_is_named_until_it_goes_on(started: Callable[..., LocalRun]) -> None:
    run = started()
    for name in ("replay-0", "learner", "actor-0"):
        before = run.announced(name)
        os.kill(int(before["pid"]), signal.SIGSTOP)
        said = f"{name} does not answer"
        run.until(lambda said=said: said in str(run.job_status.condition("Ready")), 40, f"Ready names {name}")
        assert run.reason("Ready") == "Degraded"
        os.kill(int(before["pid"]), signal.SIGCONT)
        run.until(lambda: run.job_status.state == "Running", 60, f"Running again after {name}")
        assert run.announced(name) == before, "it is the same process"
    assert run.job_status.failures == []
    updates = run.until_learning(1)
    run.until(lambda: run.status("learner").get("updates", 0) > updates + 20, 60, "training goes on")


@pytest.mark.long
def test_a_member_that_stays_stopped_is_replaced_and_training_goes_on(started: Callable[..., LocalRun]) -> None:
    run = started("import rljob_operator.core.rules.hangs as hangs; hangs.REPLACED_SECONDS = 7.0")
    for count, name in enumerate(("actor-0", "replay-0", "learner"), 1):
        run.until(lambda: run.job_status.state == "Running", 60, "Running")
        pid = running_members(run.run_dir)[name]
        os.kill(pid, signal.SIGSTOP)
        run.until(
            lambda name=name, pid=pid: running_members(run.run_dir).get(name, pid) != pid and run.status(name),
            60,
            f"another {name}",
        )
        failure = run.until(lambda count=count: run.job_status.failures[count - 1 :], 20, "the failure")[0]
        assert (failure.pod_name, failure.reason, failure.action) == (name, "Hung", "RestartRole")
        assert "stopped answering" in failure.message
        updates = run.status("learner").get("updates", 0)
        run.until(lambda least=updates: run.status("learner").get("updates", 0) > least + 20, 90, "training goes on")
    hung = [
        failure.pod_name for failure in run.job_status.failures
    ]  # on a busy machine more than those that were stopped
    assert run.job_status.restarts.counted == sum(name != "actor-0" for name in hung), "actors never count"


HANG_AT_START = """
import os, pathlib, signal
import rljob_operator.core.rules.hangs as hangs
from rljob_operator.local.process import RoleProcess
hangs.START_NAMED_SECONDS, hangs.START_REPLACED_SECONDS = 15.0, 20.0
start = RoleProcess.start

def start_and_hang(process):
    running = process.pid is not None
    start(process)
    marker = pathlib.Path({marker!r}) / process.name
    if not running and marker.exists():
        marker.unlink()
        os.kill(process.pid, signal.SIGSTOP)

RoleProcess.start = start_and_hang
"""


@pytest.mark.long
def test_a_member_that_hangs_before_it_announces_itself_is_named_and_replaced(
    started: Callable[..., LocalRun], tmp_path: Path
) -> None:
    """The next life of the actor is stopped as soon as it was started: it has no address at which it could be asked."""
    run = started(HANG_AT_START.format(marker=str(tmp_path)))
    (tmp_path / "actor-0").touch()
    os.kill(running_members(run.run_dir)["actor-0"], signal.SIGKILL)
    run.until(lambda: not (tmp_path / "actor-0").exists(), 60, "the next life has hung")
    run.until(lambda: "actor-0 is still starting" in str(run.job_status.condition("Ready")), 120, "it is named")
    failure = run.until(
        lambda: [failure for failure in run.job_status.failures if failure.reason == "Hung"], 120, "the failure"
    )[0]
    assert (failure.pod_name, failure.action) == ("actor-0", "RestartRole")
    assert "did not announce itself" in failure.message
    run.until(lambda: run.job_status.state == "Running" and run.status("actor-0"), 120, "another actor plays")


@pytest.mark.long
def test_a_controller_that_stood_still_itself_blames_nobody(started: Callable[..., LocalRun]) -> None:
    """As when a terminal is stopped with Ctrl-Z, and when a machine sleeps."""
    prelude = "import rljob_operator.core.rules.hangs as hangs; hangs.REPLACED_SECONDS = 5.0; hangs.NAMED_SECONDS = 4.5"
    run = started(prelude)
    members = running_members(run.run_dir)
    for _ in range(2):
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(6.0)  # longer than REPLACED_SECONDS
        run.process.send_signal(signal.SIGCONT)
        time.sleep(3.0)  # longer than the probes' period and a turn: what it would do wrong it would have done
    assert running_members(run.run_dir) == members
    assert run.job_status.failures == []
