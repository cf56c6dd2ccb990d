"""A checkpoint on request, and the test hook that slows a learner down."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import stored, verify
from rljob.checkpoints.names import CheckpointProblem
from rljob.roles.learner import wanted_since
from rljob.roles.slowdown import LEARNER_DELAY_FILE, slowed_down

from tests.unit.learner.test_non_finite import learner, ready


def test_a_request_is_answered_once_with_a_checkpoint_that_verifies(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:

        def kept() -> list[Path]:
            one._housekeeping()
            one._saver.finish()
            return stored(tmp_path)

        one.request_checkpoint(time.time())
        assert kept() == [], "before the first update there is nothing to save"
        status = one.status().checkpoint
        assert (status.written_unix, status.interval_seconds > 0) == (None, True)
        one._learn(ready(1.0))
        (path,) = kept()
        status = one.status().checkpoint
        assert (status.digest, status.written_unix <= time.time()) == (verify(path).digest, True)
        one._learn(ready(1.0))
        assert kept() == [path], "the same request asks for nothing more"
        one.request_checkpoint(time.time() + 3600.0)
        second = path.with_name(checkpoint.checkpoint_name(1, 2))
        assert [kept() for _ in range(3)] == [[second, path]] * 3, "once, even from the future"
        one._learn(ready(1.0))
        one.request_checkpoint(asked := time.time() - 3600.0)
        newest = kept()[0]
        assert newest.name == checkpoint.checkpoint_name(1, 3), "nor does a clock that was set back matter"
        assert verify(newest).manifest["requested_unix"] == asked


def test_a_damaged_checkpoint_does_not_verify(tmp_path: Path) -> None:
    with learner(tmp_path, "Fail") as one:
        one._learn(ready(1.0))
        one._save(wait=True)
    (path,) = stored(tmp_path)
    content = bytearray((path / checkpoint.TENSORS).read_bytes())
    content[-1] ^= 1
    (path / checkpoint.TENSORS).write_bytes(content)
    with pytest.raises(CheckpointProblem, match="damaged"):
        verify(path)


@pytest.mark.parametrize("note", [{}, {"sinceUnix": "now"}, {"sinceUnix": True}, {"sinceUnix": float("nan")}])
def test_a_request_needs_a_time(note: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="sinceUnix"):
        wanted_since(note)


def test_the_slowdown_is_inert_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turn() -> None:
        """A turn of the loop."""

    monkeypatch.delenv(LEARNER_DELAY_FILE, raising=False)
    assert slowed_down(LEARNER_DELAY_FILE, lambda: 1, turn) is turn
    delay = tmp_path / "delay"
    monkeypatch.setenv(LEARNER_DELAY_FILE, str(delay))
    updates, delays = 1, list[float]()
    monkeypatch.setattr("rljob.roles.slowdown.time.sleep", delays.append)
    slowed_down(LEARNER_DELAY_FILE, lambda: updates, turn)()
    assert delays == [], "no file, no delay"
    delay.write_text("1.0")
    slow = slowed_down(LEARNER_DELAY_FILE, lambda: updates, turn)
    slow(), slow()
    assert delays == [1.0], "a turn without an update is not delayed"
