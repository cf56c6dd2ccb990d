"""Checkpoints in a folder of a disk: written under another name, flushed and renamed, so that they appear whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rljob.checkpoints.names import BEST, MANIFEST, TENSORS, CheckpointProblem, StorageProblem, claimed, order

_PIECE_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".partial"


@dataclass(frozen=True, slots=True)
class Folder:
    """A `Place` on a disk. A crash, a full disk or a kill leaves the checkpoint before as it was."""

    path: Path

    def names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return [each.name for each in entries if _is_ours(each.name, each.is_dir())]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageProblem(f"{self.path} can't be read: {error.strerror}") from None

    def holds(self, name: str) -> bool:
        return (self.path / name / MANIFEST).exists()

    def tensors_file(self, digest: str) -> str:
        return TENSORS

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        final, temporary = self.path / name, self.path / f".{name}.{secrets.token_hex(4)}{_UNFINISHED}"
        try:
            temporary.mkdir(parents=True)
            _write(temporary / tensors_file, tensors)
            _write(temporary / MANIFEST, manifest)
            _flush_directory(temporary)
            confirm()
            self._put_in_place(temporary, final)
            _flush_directory(self.path)
        except (CheckpointProblem, StorageProblem):
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            reason = error.strerror or str(error)
            raise CheckpointProblem(
                f"the checkpoint {final} could not be written: {reason}; the one before stays valid"
            ) from error

    def pieces(self, name: str, file: str) -> Iterator[bytes]:
        path = self.path / name
        try:
            with (path / file).open("rb") as content:
                while piece := content.read(_PIECE_BYTES):
                    yield piece
        except OSError as error:
            raise CheckpointProblem(f"{path} is not a readable checkpoint: {error}") from None

    def remove(self, name: str) -> None:
        path = self.path / name
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        with contextlib.suppress(OSError):
            shutil.rmtree(self._aside(path), ignore_errors=True)

    def clear(self) -> None:
        for path in self.path.glob(f".*{_UNFINISHED}"):
            shutil.rmtree(path, ignore_errors=True)

    def create(self, name: str) -> bool:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        except PermissionError as error:  # no patience mends it
            raise CheckpointProblem(
                f"{self.path} can't be written by user {os.geteuid()} of group {os.getegid()} ({error.strerror}), so nothing "
                f"that is learned would be kept: give the folder to that user (chown -R {os.geteuid()}), or have the learner run "
                "as its owner (on a cluster runAsUser in the securityContext of learner.podTemplate)"
            ) from None
        except OSError as error:
            raise StorageProblem(f"{self.path / name} can't be written: {error.strerror}") from None
        return True

    def _put_in_place(self, temporary: Path, final: Path) -> None:
        """Rename over ``final``. A folder cannot be replaced in one step, so an old one is moved aside first."""
        aside = self._aside(final) if final.exists() else None
        temporary.rename(final)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)

    def _aside(self, path: Path) -> Path:
        """The checkpoint under a name that is not taken for one."""
        return path.rename(path.with_name(f".{path.name}.{secrets.token_hex(4)}.old{_UNFINISHED}"))


def _is_ours(name: str, is_folder: bool) -> bool:
    return (order(name) is not None or name == BEST) if is_folder else claimed(name) is not None


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some filesystems cannot; the rename is still ordered after the data
            os.fsync(handle)
    finally:
        os.close(handle)
