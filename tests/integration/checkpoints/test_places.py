"""The same promises of a folder and a bucket: whole or not there, in order of (epoch, step), and no learner's place is taken."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.api.learner_status import CheckpointStatement
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import is_checkpoint, verify
from rljob.checkpoints.location import Location, location, place
from rljob.checkpoints.names import CheckpointProblem, checkpoint_name, claim_name
from rljob.checkpoints.recording import METRICS, Recording, kept, unpacked
from rljob.learner.saver import Saver

from tests.support.s3_server import BUCKET, S3Server
from tests.support.waiting import known


@pytest.fixture(params=["folder", "bucket"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of either kind."""
    if request.param == "folder":
        return tmp_path / "checkpoints"
    request.getfixturevalue("s3")
    return location(f"s3://{BUCKET}/runs/one")


def on_disk(where: Location, request: pytest.FixtureRequest) -> Path:
    """The files of a place, wherever they are kept."""
    if isinstance(where, Path):
        return where
    server: S3Server = request.getfixturevalue("s3")
    return server.path(where.key)


def write(directory: Location, epoch: int, updates: int, value: float = 0.0) -> Location:
    manifest = {"counters": {"updates": updates, "epoch": epoch}}
    tensors = {"online.x": torch.full((3,), value)}
    return checkpoint.write(directory, checkpoint_name(epoch, updates), tensors, manifest)[0]


def names(directory: Location) -> list[str]:
    return sorted(place(directory).names())


def test_what_is_written_is_read_back(directory: Location) -> None:
    assert checkpoint.stored(directory) == []
    assert checkpoint.latest_valid(directory) is None
    path = write(directory, 1, 20, value=7.0)
    found = checkpoint.read(path)
    assert found.tensors["online.x"].tolist() == [7.0] * 3
    assert (verify(path).digest, verify(path).updates) == (found.manifest["sha256"], 20)
    assert is_checkpoint(path)
    assert not is_checkpoint(directory)


def test_the_latest_epoch_is_newest_whatever_its_updates(directory: Location) -> None:
    for epoch, updates in ((1, 500), (2, 30), (1, 90), (2, 4), (10, 1)):
        write(directory, epoch, updates)
    expected = [checkpoint_name(*one) for one in ((10, 1), (2, 30), (2, 4), (1, 500), (1, 90))]
    assert [path.name for path in checkpoint.stored(directory)] == expected
    assert known(checkpoint.latest_valid(directory)).path.name == expected[0]


def test_a_write_that_was_cut_off_is_not_seen_and_is_cleared_away(
    directory: Location, request: pytest.FixtureRequest
) -> None:
    write(directory, 1, 10)
    if isinstance(directory, Path):
        (directory / ".new-0a1b2c3d-epoch-000001-step-000000000020").mkdir()
    else:  # the tensors have arrived, the manifest has not
        directory.bucket.put(f"{directory.key}/{checkpoint_name(1, 20)}/tensors-0.safetensors", b"half")
    assert names(directory) == [checkpoint_name(1, 10)]
    assert len(list(on_disk(directory, request).iterdir())) == 2
    checkpoint.retain(directory, 5, 1)
    assert [path.name for path in on_disk(directory, request).iterdir()] == [checkpoint_name(1, 10)]


def test_best_is_the_old_or_the_new_one_for_whoever_reads_meanwhile(directory: Location) -> None:
    def put(value: float) -> None:
        checkpoint.write(directory, checkpoint.BEST, {"policy.x": torch.full((40_000,), value)}, {"value": value})

    put(0.0)
    over = threading.Event()

    def replace() -> None:
        for value in range(1, 15):
            put(float(value))
        over.set()

    writer = threading.Thread(target=replace)
    writer.start()
    read = 0
    while not over.is_set():
        try:
            found = checkpoint.read(directory / checkpoint.BEST)
        except CheckpointProblem:
            continue  # it went between two of its files; the next look finds the new one
        assert set(found.section("policy")["x"].tolist()) == {found.manifest["value"]}
        read += 1
    writer.join()
    assert read > 0
    assert checkpoint.read(directory / checkpoint.BEST).manifest["value"] == 14.0
    assert names(directory) == [checkpoint.BEST]


def test_retention_keeps_the_newest_and_the_best(directory: Location) -> None:
    for epoch, updates in ((1, 500), (2, 5), (2, 20)):
        write(directory, epoch, updates)
    checkpoint.write(directory, checkpoint.BEST, {}, {})
    assert checkpoint.claim_epoch(directory) == 3
    write(directory, 3, 1)
    checkpoint.retain(directory, 2, 3)
    assert names(directory) == sorted(["best", claim_name(3), checkpoint_name(2, 20), checkpoint_name(3, 1)])


def test_every_learner_has_an_epoch_of_its_own(directory: Location) -> None:
    write(directory, 4, 10)
    with ThreadPoolExecutor(6) as several:
        taken = list(several.map(lambda _: checkpoint.claim_epoch(directory), range(6)))
    assert sorted(taken) == [5, 6, 7, 8, 9, 10]
    assert (checkpoint.claim_epoch(directory, above=20), checkpoint.latest_epoch(directory)) == (21, 21)


def test_a_learner_that_was_given_up_writes_and_removes_nothing(directory: Location, closes: Any) -> None:
    """As after a network that was cut: its successor goes on from an older step than it has reached itself."""
    old, new = (closes(Saver(directory, keep=1)) for _ in range(2))
    tensors = {"online.x": torch.zeros(2)}

    def save(saver: Saver, updates: int) -> CheckpointStatement:
        saver.save(updates, tensors, {"counters": {"updates": updates}}, wait=True)
        return saver.status

    assert old.claim(0) == 1
    assert save(old, 100).state == "Valid"
    assert new.claim(1) == 2
    status = save(old, 900)
    assert (status.state, status.step) == ("Failed", 100)
    assert "a learner of epoch 2 has begun after this one, of epoch 1" in str(status.message)
    old.save_best(tensors, {})
    old.finish()
    assert names(directory) == [claim_name(1), checkpoint_name(1, 100), claim_name(2)], "no best, and nothing is lost"
    assert save(new, 150).state == "Valid"
    checkpoint.retain(directory, 1, 1)
    save(old, 1000)
    assert names(directory) == [claim_name(2), checkpoint_name(2, 150)]
    assert known(checkpoint.latest_valid(directory)).path.name == checkpoint_name(2, 150)


def test_what_a_superseded_learner_had_begun_to_write_appears_no_more(directory: Location, closes: Any) -> None:
    """It stood still while it wrote, for as long as its successor needed to begin."""
    old = closes(Saver(directory, keep=1))
    old.claim(0)
    old.save_best({"policy.x": torch.zeros(2)}, {"verdict": 1})
    old.finish()

    def stands_still_and_goes_on() -> None:
        checkpoint.claim_epoch(directory)
        old._confirm("best")

    with pytest.raises(CheckpointProblem, match="a learner of epoch 2 has begun after this one, of epoch 1"):
        checkpoint.write(directory, "best", {"policy.x": torch.ones(2)}, {"verdict": 2}, stands_still_and_goes_on)
    assert checkpoint.read(directory / "best").manifest["verdict"] == 1
    if isinstance(directory, Path):
        assert list(directory.glob(".*")) == []
    assert old.claim_next() == 1, "going back to a checkpoint makes it no later than its successor"
    assert (old.heard_epoch, checkpoint.latest_epoch(directory)) == (2, 2)


def test_one_that_was_removed_while_it_was_looked_for_is_no_reason_to_begin_anew(
    directory: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(directory, 1, 10)
    real = checkpoint.read

    def read(path: Location) -> checkpoint.Checkpoint:
        if path == first:
            place(directory).remove(first.name)
            write(directory, 1, 20)
        return real(path)

    monkeypatch.setattr(checkpoint, "read", read)
    assert known(checkpoint.latest_valid(directory)).path.name == checkpoint_name(1, 20)


def test_a_recording_goes_on_on_another_node_and_is_its_own_jobs(directory: Location, tmp_path: Path) -> None:
    def life(node: str, uid: str, lines: str) -> Saver:
        recording = Recording("kind: RLJob\n", uid, tmp_path / node, directory).restored()
        saver = Saver(directory, 5, recording)
        saver.claim(0)
        recording.run_dir.mkdir(exist_ok=True)
        with (recording.run_dir / METRICS).open("a") as metrics:
            metrics.write(lines)
        saver.save(1, {}, {"counters": {"updates": 1}}, wait=True)
        return saver

    first = life("node-1", "uid-1", '{"of": 1}\n{"torn')
    assert unpacked(kept(directory, "uid-1")) == ("kind: RLJob\n", b'{"of": 1}\n', ""), "it comes with the checkpoint"
    life("node-2", "uid-1", '{"of": 2}\n').close()
    first.close()
    assert unpacked(kept(directory, "uid-1"))[1] == b'{"of": 1}\n{"of": 2}\n', "a superseded learner changes nothing"
    life("node-3", "uid-2", '{"of": 3}\n').close()
    assert [unpacked(kept(directory, uid))[1].count(b"\n") for uid in ("uid-1", "uid-2")] == [2, 1]
    checkpoint.retain(directory, 1, 3)
    assert names(directory) == [claim_name(3), checkpoint_name(3, 1)], "it is no checkpoint, and is not cleared away"
    assert kept(directory, "uid-1")
    with pytest.raises(CheckpointProblem, match="no recording of it at"):
        kept(directory, "uid-3")
