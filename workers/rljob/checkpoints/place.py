"""The seam between checkpoints and what they lie on: a folder of a disk, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol


class Place(Protocol):
    """Holds the checkpoints of one run by name, each a manifest and a file of tensors.

    Whatever its medium, it promises that a checkpoint is whole or not there at all: for whoever looks while it is written, and
    after a write or a removal that was cut off anywhere. Every method raises `StorageProblem` where the place cannot be asked.
    """

    def names(self) -> list[str]:
        """Of all that is whole here: checkpoints, ``best``, and marks of epochs; in no order."""

    def holds(self, name: str) -> bool:
        """Whether a checkpoint of that name is there."""

    def tensors_file(self, digest: str) -> str:
        """The name of the file that tensors of this digest (sha256 in hex) are to be kept in."""

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        """Put a checkpoint there, in place of one of that name. ``confirm`` is called when all but the last step is done, which
        makes it appear: what it raises leaves the one that was there. Raises CheckpointProblem where it is not taken; the one
        that was there stays then, too."""

    def pieces(self, name: str, file: str) -> Iterator[bytes]:
        """A file of a checkpoint, piece by piece. Raises CheckpointProblem where it is not there."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint or a mark; one that is not there is no problem."""

    def clear(self) -> None:
        """Remove what interrupted writes left behind."""

    def create(self, name: str) -> bool:
        """Put an empty mark there; False where somebody else has. Raises CheckpointProblem where this user may write nothing."""
