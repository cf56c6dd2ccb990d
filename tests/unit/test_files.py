"""A file or folder is the old one or the new one, whatever fails, and whenever the program ends."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.child import beginning_servers
from rljob.files import recover, remove, replace, replacing


def content(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` by its path, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write_folder(path: Path, text: str) -> None:
    path.mkdir()
    (path / "a").write_text(text)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("before", ["", "old"])
def test_a_file_and_a_folder_are_replaced_and_nothing_is_left_beside_them(
    tmp_path: Path, before: str, durable: bool
) -> None:
    if before:
        (tmp_path / "file").write_text(before)
        write_folder(tmp_path / "folder", before)
    replace(tmp_path / "file", "new\N{GRINNING FACE}", durable=durable)
    with replacing(tmp_path / "folder", durable=durable) as new:
        write_folder(new, "new")
    assert content(tmp_path) == {"file": "new\N{GRINNING FACE}", "folder/a": "new"}


def replaced_but(path: Path, end: Callable[[Path], object]) -> None:
    """Replace the folder ``path``; ``end`` is called with the new one in the block's last line."""
    with replacing(path) as new:
        write_folder(new, "new")
        end(new)


def test_where_the_block_or_the_rename_fails_the_old_one_stays(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", "old")
    with pytest.raises(ZeroDivisionError):
        replaced_but(tmp_path / "best", lambda new: 1 / 0)
    # Once the new one has gone, a disk has taken the first rename and refuses the second.
    with pytest.raises(FileNotFoundError):
        replaced_but(tmp_path / "best", shutil.rmtree)
    assert content(tmp_path) == {"best/a": "old"}


def test_after_a_crash_between_the_two_renames_the_old_folder_is_put_back(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", "old")
    child = os.fork()
    if child == 0:
        rename = Path.rename

        def end_after_it(path: Path, target: Path) -> None:
            rename(path, target)
            os._exit(0)

        Path.rename = end_after_it  # type: ignore[method-assign, assignment]
        with replacing(tmp_path / "best") as new:
            write_folder(new, "new")
    os.waitpid(child, 0)
    assert not (tmp_path / "best").exists()
    recover(tmp_path)
    assert content(tmp_path) == {"best/a": "old"}


def test_what_is_not_essential_is_told_and_does_not_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "missing" / "status.json"
    replace(file, "{}", essential=False)
    assert f"{file} can't be written: No such file or directory" in caplog.text
    with pytest.raises(OSError, match="No such file"):
        replace(file, "{}")


def test_a_folder_or_a_file_is_removed(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", "old")
    (tmp_path / "file").write_text("old")
    for name in ("folder", "file"):
        remove(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_sockets_of_multiprocessing_are_where_a_path_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below macOS's TMPDIR, or a test's."""
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with beginning_servers():
        assert tempfile.gettempdir() == "/tmp"
    assert tempfile.gettempdir() == str(long)
