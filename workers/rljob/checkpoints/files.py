"""Checkpoints as files: where they lie and whether they are whole. Needs no torch, so a controller can look, too."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
BEST = "best"
_PREFIX = "step-"
_PIECE_BYTES = 1 << 20


class CheckpointProblem(ValueError):
    """A checkpoint that cannot be used or written; the message says which, why, and what would be right."""


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """A checkpoint whose tensors have the digest that its manifest states. ``digest``: sha256 in hex."""

    path: Path
    manifest: dict[str, Any]
    digest: str

    @property
    def updates(self) -> int:
        """The learner's updates when it was written."""
        counters = self.manifest.get("counters")
        return int(counters.get("updates", 0)) if isinstance(counters, dict) else 0


def verify(path: Path) -> VerifiedFiles:
    """Read the checkpoint directory ``path`` again and compare digests. Raises CheckpointProblem when anything is not right."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        digest = hashlib.sha256()
        with (path / TENSORS).open("rb") as tensors:
            while piece := tensors.read(_PIECE_BYTES):
                digest.update(piece)
    except (OSError, ValueError) as error:
        raise CheckpointProblem(f"{path} is not a readable checkpoint: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointProblem(f"{path} is not a checkpoint of format {FORMAT}")
    if digest.hexdigest() != manifest.get("sha256"):
        raise CheckpointProblem(f"{path} is damaged: its tensors do not have the digest that its manifest states")
    return VerifiedFiles(path, manifest, digest.hexdigest())


def step_name(updates: int) -> str:
    """The directory name of the checkpoint after ``updates`` updates; names sort as numbers do."""
    return f"{_PREFIX}{updates:012d}"


def stored(directory: Path) -> list[Path]:
    """The checkpoints in ``directory``, newest first, unverified; ``best`` is not among them."""
    whole = (path for path in directory.glob(f"{_PREFIX}*") if re.fullmatch(rf"{_PREFIX}\d+", path.name))
    return sorted((path for path in whole if path.is_dir()), reverse=True)
