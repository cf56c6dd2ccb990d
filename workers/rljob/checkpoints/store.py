"""Checkpoints: a safetensors file and a JSON manifest with its digest, in a directory that appears complete or not at all.

``<run>/checkpoints/step-<updates>/{tensors.safetensors, manifest.json}``, and ``best/`` with the weights of the best verdict.
A directory is written under a temporary name, flushed to the disk and renamed; so a crash, a full disk or a kill leaves the
previous checkpoint as the newest valid one. Nothing in it is executable: no pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from rljob.checkpoints.files import BEST, FORMAT, MANIFEST, TENSORS, CheckpointProblem, step_name, stored
from torch import Tensor

__all__ = [
    "BEST",
    "FORMAT",
    "MANIFEST",
    "TENSORS",
    "Checkpoint",
    "CheckpointProblem",
    "latest_valid",
    "read",
    "retain",
    "step_name",
    "stored",
    "write",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint: where it is, what it says of itself, its tensors (on the CPU) by name."""

    path: Path
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]

    def section(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with ``prefix.``, without it."""
        return {
            name.removeprefix(f"{prefix}."): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(f"{prefix}.")
        }


def write(directory: Path, name: str, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> tuple[Path, str]:
    """Write ``directory/name`` and return (its path, the sha256 of its tensors in hex).

    An existing checkpoint of that name is replaced only by the complete new one. Raises CheckpointProblem when the disk
    does not take it; nothing is left behind then.
    """
    final, temporary = directory / name, directory / f".{name}.{os.getpid()}.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        content = safetensors.torch.save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
        digest = hashlib.sha256(content).hexdigest()
        _write(temporary / TENSORS, content)
        document = {**manifest, "format": FORMAT, "tensors": TENSORS, "sha256": digest}
        _write(temporary / MANIFEST, json.dumps(document, indent=1, sort_keys=True).encode())
        _flush_directory(temporary)
        _replace(temporary, final)
        _flush_directory(directory)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or str(error)
        raise CheckpointProblem(
            f"the checkpoint {final} could not be written: {reason}; the one before stays valid"
        ) from error
    return final, digest


def read(path: Path) -> Checkpoint:
    """Load and verify the checkpoint directory ``path``. Raises CheckpointProblem when anything about it is not right."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        content = (path / TENSORS).read_bytes()
    except (OSError, ValueError) as error:
        raise CheckpointProblem(f"{path} is not a readable checkpoint: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointProblem(f"{path} is not a checkpoint of format {FORMAT}")
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise CheckpointProblem(f"{path} is damaged: its tensors do not have the digest that its manifest states")
    return Checkpoint(path, manifest, safetensors.torch.load(content))


def latest_valid(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that verifies, or None. Damaged ones are named in the log and passed over."""
    for path in stored(directory):
        try:
            return read(path)
        except CheckpointProblem as problem:
            log.warning("%s; trying the one before", problem)
    return None


def retain(directory: Path, count: int) -> None:
    """Remove all but the newest ``count`` checkpoints, and what interrupted writes left behind."""
    for path in stored(directory)[max(1, count) :]:
        shutil.rmtree(path, ignore_errors=True)
    for path in directory.glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def _replace(temporary: Path, final: Path) -> None:
    """Rename over ``final``. A directory cannot be replaced in one step, so an old one is moved aside first."""
    if not final.exists():
        temporary.rename(final)
        return
    aside = final.with_name(f".{final.name}.old.partial")
    shutil.rmtree(aside, ignore_errors=True)
    final.rename(aside)
    temporary.rename(final)
    shutil.rmtree(aside, ignore_errors=True)


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
