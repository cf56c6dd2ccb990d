"""Checkpoints in a folder of a disk, each replaced as a whole."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rljob import files
from rljob.checkpoints.names import MANIFEST, TENSORS, CheckpointProblem, StorageProblem, claimed, is_checkpoint_name

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Folder:
    """A `Storage` on a disk. A crash, a full disk or a kill leaves the checkpoint before as it was."""

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
        final = self.path / name
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with files.replacing(final, durable=True) as new:
                new.mkdir()
                (new / tensors_file).write_bytes(tensors)
                (new / MANIFEST).write_bytes(manifest)
                files.flush(new)  # before it is confirmed, which is to be as late as possible
                confirm()
        except OSError as error:
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
            files.remove(path)

    def clear(self) -> None:
        files.recover(self.path)

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


def _is_ours(name: str, is_folder: bool) -> bool:
    return is_checkpoint_name(name) if is_folder else claimed(name) is not None
