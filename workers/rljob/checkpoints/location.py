"""Where checkpoints are: a path of this machine, or one in a bucket, which is written and joined like a path; and the methods of
a place of either kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from rljob.api import RLJob
from rljob.checkpoints.bucket import Bucket
from rljob.checkpoints.in_bucket import Prefix
from rljob.checkpoints.names import CheckpointProblem
from rljob.checkpoints.on_disk import Folder
from rljob.sources import user_path


class Storage(Protocol):
    """Holds the checkpoints of one run by name, each a manifest and a file of tensors.

    Whatever its medium, it promises that a checkpoint is whole or not there at all: for a reader while it is written, and
    after a write or a removal that was cut off anywhere. Every method raises `StorageProblem` where the place cannot be asked.
    """

    def names(self) -> list[str]:
        """The names of all that is whole here: checkpoints, ``best``, and marks of epochs; in no order."""

    def holds(self, name: str) -> bool:
        """Whether a checkpoint of that name is there."""

    def tensors_file(self, digest: str) -> str:
        """The name of the file that tensors of this digest (sha256 in hex) are to be kept in."""

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        """Put a checkpoint there, in place of one of that name. ``confirm`` is called before the last step, which makes it
        appear: what it raises leaves the one that was there. Raises CheckpointProblem where it is not taken; the one that was
        there stays then, too."""

    def pieces(self, name: str, file: str) -> Iterator[bytes]:
        """A file of a checkpoint, piece by piece. Raises CheckpointProblem where it is not there."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint or a mark; one that is not there is no problem."""

    def clear(self) -> None:
        """Remove what interrupted writes left behind."""

    def create(self, name: str) -> bool:
        """Put an empty mark there; False where there is one. Raises CheckpointProblem where this user may write nothing."""


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


def place(directory: Location) -> Storage:
    """``directory`` as a `Storage`."""
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
