"""What a controller says about checkpoints on the disk, without torch."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from rljob.api.learner_status import CheckpointStatement
from rljob.checkpoints.names import FORMAT, MANIFEST, TENSORS, checkpoint_name
from rljob_operator.core.observed import CheckpointState
from rljob_operator.local.checkpoints import CheckpointWatch


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
