"""A bucket that can't be used: it is said in a sentence and in a bounded time, and training is not kept waiting."""

import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
from rljob.checkpoints import bucket, store as checkpoint
from rljob.checkpoints.location import Location, location
from rljob.checkpoints.names import CheckpointProblem, StorageProblem, checkpoint_name
from rljob.learner.saver import Saver

from tests.support.s3_server import BUCKET, SECRET_KEY, S3Server
from tests.support.waiting import eventually

TENSORS = {"online.x": torch.zeros(100)}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of time, a tenth as long."""
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=0.5), "base": 2}
    monkeypatch.setattr(bucket, "_RETRY", {"max_retries": 8, "retry_timeout": timedelta(seconds=1), "backoff": backoff})
    monkeypatch.setattr(bucket, "REQUEST_SECONDS", 1)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def place() -> Location:
    """Anew each time, since a connection is set up for the credentials that were there at first."""
    return location(f"s3://{BUCKET}/run")


def refusal(directory: Location) -> str:
    with pytest.raises(StorageProblem) as problem:
        checkpoint.latest_valid(directory)
    with pytest.raises(CheckpointProblem, match="could not be written"):
        checkpoint.write(directory, checkpoint_name(1, 1), TENSORS, {})
    words = str(problem.value)
    assert "\n" not in words
    assert SECRET_KEY not in words
    return words


def test_each_refusal_says_what_to_change(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"there is no bucket elsewhere at {s3.url}" in refusal(location("s3://elsewhere/run"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "does not accept the credentials" in refusal(place())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    assert "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in refusal(place())
    s3.add_user("guest", "secret-of-the-guest")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "guest")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-guest")
    words = refusal(place())
    assert "the credentials may not list in s3://checkpoints (403 AccessDenied)" in words
    assert "secret-of-the-guest" not in words
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # not the machine's own, where there is one
    assert "there are no credentials" in refusal(place())


def test_a_server_that_is_gone_is_no_reason_to_begin_anew(s3: S3Server) -> None:
    checkpoint.write(place(), checkpoint_name(1, 1), TENSORS, {})
    s3.stop()
    assert "can't be reached" in refusal(place())
    s3.start()
    assert checkpoint.latest_valid(place()) is not None


def test_a_server_that_is_silent_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    started = time.monotonic()
    assert "did not answer in time" in refusal(place())
    assert time.monotonic() - started < 20


def test_a_server_that_comes_back_in_time_is_waited_for(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bucket._RETRY, "retry_timeout", timedelta(seconds=60))
    monkeypatch.setitem(bucket._RETRY, "max_retries", 100)
    s3.stop()
    saver = Saver(place(), keep=2)
    saver.save(5, TENSORS, {"counters": {"updates": 5}})
    time.sleep(1.0)
    assert saver.busy
    s3.start()
    saver.finish()
    assert saver.status.state == "Valid"


def test_nobody_waits_for_a_server_that_is_slow(s3: S3Server) -> None:
    saver = Saver(place(), keep=2)
    assert saver.claim(0) == 1
    s3.stop()
    saver.save(5, TENSORS, {"counters": {"updates": 5}})
    started = time.monotonic()
    for value in range(3):
        saver.save_best({"policy.x": torch.full((4,), float(value))}, {"value": value})
    assert saver.busy
    assert time.monotonic() - started < 0.5, "the newest of them is written later"
    eventually(lambda: saver.status.state == "Failed")
    assert "could not be written: " in saver.status.message
    saver.finish()
    s3.start()
    saver.save_best({"policy.x": torch.ones(1)}, {"value": 9})
    saver.save(6, TENSORS, {"counters": {"updates": 6}}, wait=True)
    assert (saver.status.state, saver.status.message, saver.status.step) == ("Valid", "", 6)
    assert checkpoint.read(place() / checkpoint.BEST).manifest["value"] == 9
    assert [path.name for path in checkpoint.stored(place())] == [checkpoint_name(1, 6)]


def test_a_learner_that_may_not_write_says_so_before_its_first_checkpoint(s3: S3Server) -> None:
    s3.stop()
    saver = Saver(place(), keep=2)
    assert (saver.claim(3), saver.status.state) == (4, "Failed")
    assert "no checkpoint can be written: " in saver.status.message


def test_large_tensors_go_in_pieces(s3: S3Server) -> None:
    tensors = {"online.x": torch.rand(3 * bucket.PIECE_BYTES // 4 + 7)}
    path, _ = checkpoint.write(place(), checkpoint_name(1, 1), tensors, {})
    assert torch.equal(checkpoint.read(path).tensors["online.x"], tensors["online.x"])
    assert max(file.stat().st_size for file in s3.path("run").rglob("*") if file.is_file()) > 3 * bucket.PIECE_BYTES
