"""Which checkpoints are at a place, and whether they are whole. Needs no torch, so a controller can check, too."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.api.load import load_manifest
from rljob.checkpoints.location import Location, directory_of, place
from rljob.checkpoints.names import BEST, FORMAT, JUDGED, MANIFEST, TENSORS, CheckpointProblem, order

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """A checkpoint whose tensors have the digest that its manifest states. ``digest``: sha256 in hex."""

    path: Location
    manifest: dict[str, Any]
    digest: str

    @property
    def updates(self) -> int:
        """The learner's updates when it was written."""
        counters = self.manifest.get("counters")
        return int(counters.get("updates", 0)) if isinstance(counters, dict) else 0


def verify(path: Location) -> VerifiedFiles:
    """Read a checkpoint again and compare digests.

    Raises CheckpointProblem when anything about it is not right, StorageProblem where its place cannot be asked.
    """
    manifest = read_manifest(path)
    digest = hashlib.sha256()
    for piece in place(path.parent).pieces(path.name, tensors_file(path, manifest)):
        digest.update(piece)
    check_digest(path, manifest, digest.hexdigest())
    return VerifiedFiles(path, manifest, digest.hexdigest())


def read_manifest(path: Location) -> dict[str, Any]:
    """The manifest of a checkpoint. Raises as `verify`."""
    content = b"".join(place(path.parent).pieces(path.name, MANIFEST))
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointProblem(f"{path} is not a readable checkpoint: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointProblem(f"{path} is not a checkpoint of format {FORMAT}")
    return manifest


def tensors_file(path: Location, manifest: Mapping[str, Any]) -> str:
    """The name of the file that a checkpoint's tensors are in. Raises CheckpointProblem for what is none."""
    name = manifest.get("tensors", TENSORS)
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        raise CheckpointProblem(f"{path} is not a readable checkpoint: its manifest names no file of tensors")
    return name


def check_digest(path: Location, manifest: Mapping[str, Any], digest: str) -> None:
    """Raises CheckpointProblem where the tensors are not those that the manifest was written for."""
    if digest != manifest.get("sha256"):
        raise CheckpointProblem(f"{path} is damaged: its tensors do not have the digest that its manifest states")


def stored(directory: Location) -> list[Location]:
    """The checkpoints in ``directory``, newest first, unverified; ``best`` is not among them. Raises StorageProblem."""
    placed = [(found, name) for name in place(directory).names() if (found := order(name)) is not None]
    return [directory / name for _, name in sorted(placed, reverse=True)]


def policies(directory: Location) -> list[Location]:
    """Where the policy of a run may be, in the order in which it is looked for: the best by its experiment's games, the best by
    its evaluator's, then the newest. Raises StorageProblem."""
    kept = [directory / name for name in (JUDGED, BEST)]
    return [*filter(is_checkpoint, kept), *stored(directory)]


def is_checkpoint(path: Location) -> bool:
    """Whether this is a checkpoint itself, and not a place that holds some. Raises StorageProblem."""
    return place(path.parent).holds(path.name)


def directory_in(source: Location) -> Location:
    """Where the checkpoints of ``source`` are: for a run folder the place that its job names, else ``source`` itself.

    Raises ManifestError for a run folder whose job can't be read.
    """
    if isinstance(source, Path) and (source / "job.yaml").is_file():
        return directory_of(load_manifest(source / "job.yaml"), source)
    if isinstance(source, Path) and (source / "checkpoints").is_dir():
        return source / "checkpoints"
    return source
