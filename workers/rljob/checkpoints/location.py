"""Where checkpoints are: a folder of this machine, or a prefix of a bucket, which is written and joined like a path; and how they
are kept in each.

In a folder each is replaced as a whole. In a bucket nothing can be renamed: the manifest is written last and removed first, and
the file of tensors is called by its digest, so that a checkpoint that is written anew (``best``) does not take the tensors from
under the manifest that is there.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rljob import files
from rljob.api import RLJob
from rljob.checkpoints.bucket import Bucket, NoObject
from rljob.checkpoints.names import MANIFEST, TENSORS, CheckpointProblem, StorageProblem, claimed, is_checkpoint_name
from rljob.sources import user_path

_S3 = "s3://"


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A prefix of a bucket: of a run's checkpoints, or of one of them. ``key`` has no slash at either end."""

    bucket: Bucket
    key: str

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> "ObjectPath":
        """Without the last part of the key."""
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self.bucket, f"{self.key}/{name}" if self.key else name)

    def as_uri(self) -> str:
        """``s3://bucket/key``."""
        return self.bucket.uri(self.key)

    def __str__(self) -> str:
        return self.as_uri()


Location = Path | ObjectPath


def place(directory: Location) -> "Folder | Prefix":
    """How checkpoints are kept in ``directory``."""
    return Folder(directory) if isinstance(directory, Path) else Prefix(directory.bucket, directory.key)


def location(text: str, endpoint: str = "") -> Location:
    """What a path, ``file:///path`` or ``s3://bucket/prefix`` names; ``endpoint`` is the URL of a server that is not AWS's own.

    Raises CheckpointProblem for anything else.
    """
    if text.startswith(_S3):
        return _in_bucket(text, endpoint)
    if "://" not in text:
        return user_path(text)
    url = urlsplit(text)
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise CheckpointProblem(f"{text} can't be read here; file:///path/to/run and s3://bucket/prefix can")
    return Path(unquote(url.path))


def bucket_of(job: RLJob) -> ObjectPath | None:
    """Where in a bucket the checkpoints of a job lie; None where it names no bucket. Raises CheckpointProblem."""
    storage = job.spec.checkpoint.storage
    store = storage.object_store if storage is not None else None
    return _in_bucket(store.url, store.endpoint) if store is not None else None


def directory_of(job: RLJob, run_dir: Path) -> Location:
    """Where the checkpoints of a job lie: in the bucket that it names, else in its run folder. Raises CheckpointProblem."""
    return bucket_of(job) or run_dir / "checkpoints"


def _in_bucket(text: str, endpoint: str) -> ObjectPath:
    bucket, _, key = text.removeprefix(_S3).partition("/")
    parts = [part for part in key.split("/") if part]
    if not bucket or {".", ".."} & set(parts):
        raise CheckpointProblem(f"{text} names no place in a bucket; s3://bucket/prefix does")
    return ObjectPath(Bucket(bucket, endpoint), "/".join(parts))


_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Folder:
    """Holds the checkpoints of one run on a disk, by name, each a manifest and a file of tensors; `Prefix` does in a bucket.

    A checkpoint is whole or not there at all: for a reader while it is written, and after a write or a removal that was cut off
    anywhere. Every method raises `StorageProblem` where the place cannot be asked.
    """

    path: Path

    def names(self) -> list[str]:
        """The names of all that is whole here: checkpoints, ``best``, and marks of epochs; in no order."""
        try:
            with os.scandir(self.path) as entries:
                return [
                    each.name
                    for each in entries
                    if (is_checkpoint_name(each.name) if each.is_dir() else claimed(each.name) is not None)
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageProblem(f"{self.path} can't be read: {error.strerror}") from None

    def holds(self, name: str) -> bool:
        """Whether a checkpoint of that name is there."""
        return (self.path / name / MANIFEST).exists()

    def tensors_file(self, digest: str) -> str:
        """The name of the file that tensors of this digest (sha256 in hex) are to be kept in."""
        return TENSORS

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        """Put a checkpoint there, in place of one of that name. ``confirm`` is called before the last step, which makes it
        appear: what it raises leaves the one that was there. Raises CheckpointProblem where it is not taken; the one that was
        there stays then, too."""
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
        """A file of a checkpoint, piece by piece. Raises CheckpointProblem where it is not there."""
        path = self.path / name
        try:
            with (path / file).open("rb") as content:
                while piece := content.read(_PIECE_BYTES):
                    yield piece
        except OSError as error:
            raise CheckpointProblem(f"{path} is not a readable checkpoint: {error}") from None

    def remove(self, name: str) -> None:
        """Remove a checkpoint or a mark; one that is not there is no problem."""
        path = self.path / name
        with contextlib.suppress(OSError):
            files.remove(path) if path.is_dir() else path.unlink()

    def clear(self) -> None:
        """Remove what interrupted writes left behind."""
        files.recover(self.path)

    def create(self, name: str) -> bool:
        """Put an empty mark there; False where there is one. Raises CheckpointProblem where this user may write nothing."""
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


@dataclass(frozen=True, slots=True)
class Prefix:
    """As `Folder`, in a bucket. ``prefix`` has no slash at either end; empty is the whole bucket."""

    bucket: Bucket
    prefix: str

    def names(self) -> list[str]:
        keys = self._keys()
        whole = [name for name in {key.split("/")[0] for key in keys} if f"{name}/{MANIFEST}" in keys]
        checkpoints = [name for name in whole if is_checkpoint_name(name)]
        return [*checkpoints, *(key for key in keys if claimed(key) is not None)]

    def holds(self, name: str) -> bool:
        return f"{name}/{MANIFEST}" in self._keys(name)

    def tensors_file(self, digest: str) -> str:
        return f"tensors-{digest[:16]}.safetensors"

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        try:
            self.bucket.put(self._key(f"{name}/{tensors_file}"), tensors)
            confirm()
            self.bucket.put(self._key(f"{name}/{MANIFEST}"), manifest)
            kept = {f"{name}/{tensors_file}", f"{name}/{MANIFEST}"}
            self._delete([key for key in self._keys(name) if key not in kept])
        except StorageProblem as problem:
            raise CheckpointProblem(
                f"the checkpoint {name} could not be written: {problem}; the one before stays valid"
            ) from problem

    def pieces(self, name: str, file: str) -> Iterator[bytes]:
        try:
            yield from self.bucket.pieces(self._key(f"{name}/{file}"))
        except NoObject:
            where = self.bucket.uri(self._key(name))
            raise CheckpointProblem(f"{where} is not a readable checkpoint: it has no {file}") from None

    def remove(self, name: str) -> None:
        if claimed(name) is not None:
            self._delete([name])
            return
        self._delete([f"{name}/{MANIFEST}"])
        self._delete(self._keys(name))

    def clear(self) -> None:
        keys = self._keys()
        for name in {key.split("/")[0] for key in keys if "/" in key}:
            if is_checkpoint_name(name) and f"{name}/{MANIFEST}" not in keys:
                self._delete([key for key in keys if key.startswith(f"{name}/")])

    def create(self, name: str) -> bool:
        return self.bucket.create(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _keys(self, name: str = "") -> list[str]:
        """The keys of the objects under the prefix, or of those of one checkpoint; without the prefix."""
        below = self._key(name) if name else self.prefix
        cut = len(self.prefix) + 1 if self.prefix else 0
        return [key[cut:] for key in self.bucket.keys(below)]

    def _delete(self, names: list[str]) -> None:
        if names:
            self.bucket.delete([self._key(name) for name in names])
