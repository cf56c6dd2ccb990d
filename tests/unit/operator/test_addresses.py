"""Where the roles of a local run meet: one folder for all its controllers, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob_operator.local.addresses import Addresses


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    (tmp_path / "run" / "roles").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_folder_stays_the_same(temporary: Path, tmp_path: Path) -> None:
    first = Addresses.of(tmp_path / "run", shards=1)
    assert first.folder.parent == temporary
    assert Addresses.of(tmp_path / "run", shards=1) == first


def test_the_folder_stays_the_same_where_new_folders_inherit_their_group(temporary: Path, tmp_path: Path) -> None:
    """So it is in a pod's volume with fsGroup; a learner and its actors then looked for each other in different folders."""
    temporary.chmod(0o2777)
    first = Addresses.of(tmp_path / "run", shards=1)
    assert first.folder.stat().st_mode & 0o7777 == 0o2700
    assert Addresses.of(tmp_path / "run", shards=1) == first


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_not_taken(mode: int, temporary: Path, tmp_path: Path) -> None:
    first = Addresses.of(tmp_path / "run", shards=1)
    first.folder.chmod(mode)
    assert Addresses.of(tmp_path / "run", shards=1).folder != first.folder
