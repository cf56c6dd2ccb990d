"""Checkpoints: a safetensors file and a JSON manifest with its digest, at a place where they appear complete or not at all.

``epoch-<epoch>-step-<updates>/``, one life of a learner an epoch, and ``best/`` with the weights of the best verdict; in the run
folder's ``checkpoints/`` or in a bucket. The newest is that of the latest epoch, whatever its number of updates, so a learner
that was given up and still writes takes the place of no other. Nothing in a checkpoint is executable: no pickle.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import safetensors.torch
from rljob.checkpoints.files import check_digest, read_manifest, stored, tensors_file
from rljob.checkpoints.location import Location, place
from rljob.checkpoints.names import (
    BEST,
    FORMAT,
    MANIFEST,
    TENSORS,
    CheckpointProblem,
    StorageProblem,
    checkpoint_name,
    claim_name,
    claimed,
    newest_epoch,
    order,
)
from rljob.strict_json import dumps
from torch import Tensor

__all__ = [
    "BEST",
    "FORMAT",
    "MANIFEST",
    "TENSORS",
    "Checkpoint",
    "CheckpointProblem",
    "Location",
    "StorageProblem",
    "checkpoint_name",
    "claim_epoch",
    "latest_epoch",
    "latest_valid",
    "read",
    "retain",
    "stored",
    "take_epoch",
    "write",
]

log = logging.getLogger(__name__)

_MOST_RIVALS: Final = 100


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint: where it is, what it says of itself, its tensors (on the CPU) by name."""

    path: Location
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]

    def section(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with ``prefix.``, without it."""
        return {
            name.removeprefix(f"{prefix}."): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(f"{prefix}.")
        }


def write(
    directory: Location,
    name: str,
    tensors: Mapping[str, Tensor],
    manifest: Mapping[str, Any],
    confirm: Callable[[], None] = lambda: None,
) -> tuple[Location, str]:
    """Write ``directory/name`` and return (its path, the sha256 of its tensors in hex).

    An existing checkpoint of that name is replaced only by the complete new one, and only where ``confirm``, called when that is
    about to appear, raises nothing. Raises CheckpointProblem when the place does not take it; the one before stays then.
    """
    content = safetensors.torch.save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
    digest, where = hashlib.sha256(content).hexdigest(), place(directory)
    file = where.tensors_file(digest)
    document = {**manifest, "format": FORMAT, "tensors": file, "sha256": digest}
    where.write(name, file, content, dumps(document, 1, sort_keys=True).encode(), confirm)
    return directory / name, digest


def read(path: Location) -> Checkpoint:
    """Load and verify the checkpoint ``path``.

    Raises CheckpointProblem when anything about it is not right, StorageProblem where its place cannot be asked.
    """
    manifest = read_manifest(path)
    content = b"".join(place(path.parent).pieces(path.name, tensors_file(path, manifest)))
    check_digest(path, manifest, hashlib.sha256(content).hexdigest())
    return Checkpoint(path, manifest, safetensors.torch.load(content))


def latest_valid(directory: Location, listed: Callable[[Location], list[Location]] = stored) -> Checkpoint | None:
    """The newest checkpoint that verifies, or the first of those that ``listed`` finds there; None where none does. Damaged ones
    are named in the log and passed over.

    Raises StorageProblem where the place cannot be asked: that is no reason to take an older one, or none.
    """
    tried: list[Location] = []
    while (
        found := listed(directory)
    ) != tried:  # another learner may have removed what was listed, and written a newer
        for path in found:
            try:
                return read(path)
            except CheckpointProblem as problem:
                log.warning("%s; trying the one before", problem)
        tried = found
    return None


def claim_epoch(directory: Location, above: int = 0) -> int:
    """Take the next epoch for a learner that begins: later than ``above`` and than any known there, and no other learner's.

    Raises StorageProblem, and CheckpointProblem where this user may not write there.
    """
    where = place(directory)
    first = max(above, newest_epoch(where.names())) + 1
    for epoch in range(first, first + _MOST_RIVALS):
        if where.create(claim_name(epoch)):
            where.clear()
            return epoch
    raise StorageProblem(f"no epoch could be taken in {directory}: {_MOST_RIVALS} others were just before")


def take_epoch(directory: Location, epoch: int) -> bool:
    """Take this very epoch; False where it is taken. Raises StorageProblem."""
    return place(directory).create(claim_name(epoch))


def latest_epoch(directory: Location) -> int:
    """The latest epoch that a learner has taken there; 0 before the first. Raises StorageProblem."""
    return newest_epoch(place(directory).names())


def retain(directory: Location, count: int, epoch: int) -> None:
    """Remove all but the newest ``count`` checkpoints, marks of past epochs, and what interrupted writes left behind.

    Nothing is removed where a learner of a later epoch than ``epoch`` has begun. Raises StorageProblem.
    """
    where = place(directory)
    names = where.names()
    if newest_epoch(names) > epoch:
        return
    checkpoints = sorted((name for name in names if order(name) is not None), key=order, reverse=True)  # type: ignore[arg-type]
    past = [name for name in names if (taken := claimed(name)) is not None and taken < epoch]
    for name in [*checkpoints[max(1, count) :], *past]:
        where.remove(name)
    where.clear()
