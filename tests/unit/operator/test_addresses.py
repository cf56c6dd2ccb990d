"""Where the roles of a local run meet: one folder for all its controllers, and for no other user."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.socket_folder import NoSocketFolder
from rljob.wire import Server
from rljob_operator.local.addresses import Addresses


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "run" / "roles").mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


@pytest.mark.parametrize("mode", [0o700, 0o2777], ids=["", "new folders inherit their group"])
def test_the_folder_stays_the_same_and_is_its_users_alone(mode: int, temporary: Path, tmp_path: Path) -> None:
    """In a pod's volume with fsGroup a learner and its actors once looked for each other in different folders."""
    temporary.chmod(mode)
    first = Addresses.of(tmp_path / "run", shards=1)
    assert (first.folder.parent, first.folder.stat().st_mode & 0o777) == (temporary, 0o700)
    assert Addresses.of(tmp_path / "run", shards=1) == first


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_not_taken(mode: int, temporary: Path, tmp_path: Path) -> None:
    first = Addresses.of(tmp_path / "run", shards=1)
    first.folder.chmod(mode)
    assert Addresses.of(tmp_path / "run", shards=1).folder != first.folder


def test_a_long_folder_for_temporary_files_is_not_used(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("long-" * 15)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    meeting = Addresses.of(tmp_path / "run", shards=1, inference_servers=12)
    assert meeting.folder.parent == Path("/tmp")
    with Server(meeting.inference[11]):
        meeting.remove()


def test_no_folder_for_temporary_files_is_a_sentence(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(NoSocketFolder, match=r"gone.*set TMPDIR to one that can be written"):
        Addresses.of(tmp_path / "run", shards=1)
