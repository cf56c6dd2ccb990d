"""Checkpoints on the disk, as a controller sees them without torch: what it says of them, and which learner counts."""

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from rljob.api.conditions import Reason
from rljob.api.exit_codes import EXIT_SUPERSEDED
from rljob.api.learner_status import CheckpointStatement
from rljob.checkpoints.names import FORMAT, MANIFEST, TENSORS, checkpoint_name
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import CheckpointState
from rljob_operator.kube.job.members import members as members_of
from rljob_operator.local.checkpoints import CheckpointWatch

from tests.support.controller import START, Controller, exited, gone, make_job, member, members, sample
from tests.unit.operator.kube.member_pods import ended, pod, running
from tests.unit.operator.kube.rendered import environment, owned, pod_of


def write(directory: Path, updates: int, written_unix: float = 100.0) -> Path:
    path = directory / checkpoint_name(1, updates)
    content = bytes(range(256)) * updates
    about = {"format": FORMAT, "counters": {"updates": updates}, "written_unix": written_unix}
    path.mkdir(parents=True)
    (path / TENSORS).write_bytes(content)
    (path / MANIFEST).write_text(json.dumps({**about, "sha256": hashlib.sha256(content).hexdigest()}))
    return path


def test_the_newest_is_read_again_and_believed(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path)
    assert watch.look().state is CheckpointState.MISSING
    write(tmp_path, 10)
    newest = write(tmp_path, 200, written_unix=123.5)
    seen = watch.look()
    digest = "sha256:" + hashlib.sha256((newest / TENSORS).read_bytes()).hexdigest()
    assert (seen.state, seen.step, seen.time_seconds) == (CheckpointState.VERIFIED, 200, 123.5)
    assert (seen.uri, seen.digest) == (newest.as_uri(), digest)


def test_damage_is_told_and_the_one_before_stands(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path)
    write(tmp_path, 10)
    newest = write(tmp_path, 20)
    assert watch.look().step == 20
    content = bytearray((newest / TENSORS).read_bytes())
    content[7] ^= 1
    time.sleep(0.01)
    (newest / TENSORS).write_bytes(content)
    seen = watch.look()
    assert (seen.state, seen.step, "damaged" in seen.message) == (CheckpointState.CORRUPT, 10, True)
    (newest / MANIFEST).unlink()
    assert watch.look().state is CheckpointState.CORRUPT
    (tmp_path / checkpoint_name(1, 10) / TENSORS).unlink()
    seen = watch.look()
    assert (seen.state, seen.usable) == (CheckpointState.CORRUPT, False)


def test_a_failed_attempt_is_a_storage_error_beside_the_one_that_stands(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path)
    failed = CheckpointStatement.lenient({"state": "Failed", "message": "No space left on device"})
    assert watch.look(failed).state is CheckpointState.STORAGE_ERROR
    write(tmp_path, 10)
    seen = watch.look(failed)
    assert (seen.state, seen.step, seen.message) == (CheckpointState.STORAGE_ERROR, 10, "No space left on device")
    assert watch.look(CheckpointStatement(state="Valid")).state is CheckpointState.VERIFIED


def test_files_are_read_only_when_they_have_changed(tmp_path: Path) -> None:
    watch, path = CheckpointWatch(tmp_path), write(tmp_path, 10)
    assert watch.look().step == 10
    (path / TENSORS).chmod(0)
    before = (path / TENSORS).stat().st_atime_ns
    assert (watch.look().step, (path / TENSORS).stat().st_atime_ns) == (10, before)


def test_the_controller_needs_no_torch() -> None:
    code = "import sys, rljob_operator.local.checkpoints; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_learner_is_given_a_later_epoch_than_any_before_it_has_had() -> None:
    controller = Controller(make_job(), members=members(learner=Phase.ABSENT))
    assert "learner" in controller.after(0.0, learner_epoch=1).start
    controller.look(1.0, members=members(), learner=sample(updates=5, epoch=1))
    # It went back to a checkpoint, three times; nothing is written for that.
    controller.after(1.0, {"learner": sample(updates=9, epoch=4)}, learner_epoch=1)
    assert "learner" in controller.after(60.0, {"members": exited("learner", members())}, learner_epoch=5).start
    assert environment(pod_of(replace(owned(), learner_epoch=5), "learner"))["RLJOB_EPOCH"] == "5"


def test_a_learner_whose_pod_is_refused_keeps_the_epoch_that_it_was_given() -> None:
    """Found by the search: a status that changed at every look would be written at each, for as long as a quota is full."""
    controller = Controller(make_job(), members=members(learner=Phase.ABSENT))
    controller.look()
    why = {"waiting": Reason.QUOTA_EXCEEDED, "waiting_message": "exceeded quota", "placed": False}
    controller.look(1.0, members=(*gone("learner"), member("learner", Phase.ABSENT, **why)))
    assert ("learner" in controller.look(0.0).start, controller.status) == (True, controller.status)


def test_the_end_of_a_superseded_learner_is_no_failure_of_its_successor() -> None:
    over = ended(EXIT_SUPERSEDED, message="a learner of epoch 2 has begun after this one")
    pods = [
        pod(uid="old", phase="Failed", containerStatuses=[over]),
        pod(uid="new", created=30.0, phase="Running", containerStatuses=[running()]),
    ]
    (learner,) = members_of(pods, START)
    assert learner.incarnation == "new"
    Controller(make_job()).after(0.0, {"members": (*gone("learner"), learner)}, counted=0, failures=[])
