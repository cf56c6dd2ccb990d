"""Writes a learner's checkpoints beside the training and remembers how the last one went."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from rljob.learner import checkpoint
from rljob.learner.checkpoint_files import CheckpointProblem, verify

log = logging.getLogger(__name__)


class Saver:
    """Checkpoints of one run in ``directory``, the newest ``keep`` of them, written one at a time by a thread of its own.

    A checkpoint that cannot be written is reported in ``status`` and in the log; the one before stays and training goes on.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._status: dict[str, Any] = {
            "step": 0,
            "path": "",
            "digest": "",
            "state": "Missing",
            "message": "",
            "written_unix": 0.0,
        }

    def resumed(self, found: checkpoint.Checkpoint, updates: int) -> None:
        """The run goes on from a checkpoint that verified."""
        written = float(found.manifest.get("written_unix") or 0.0)
        self._status = _valid(updates, found.path, str(found.manifest["sha256"]), written)

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written: asking for another now would make the caller wait."""
        return self._pending is not None and not self._pending.done()

    @property
    def status(self) -> dict[str, Any]:
        """``{"step", "path", "digest", "state": Valid | Missing | Failed, "message", "written_unix"}``.

        Valid: it was read again after it was written, and has the digest that its manifest states. After a failure, all but
        ``state`` and ``message`` are those of the newest one that is valid."""
        return dict(self._status)

    def save(
        self, updates: int, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any], *, wait: bool = False
    ) -> None:
        """Write the checkpoint after ``updates`` updates. The caller must not change the tensors afterwards."""
        self.finish()
        self._pending = self._pool.submit(self._save, checkpoint.step_name(updates), updates, tensors, manifest)
        if wait:
            self.finish()

    def save_best(self, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
        """Write ``best/``: weights that an evaluator has judged better than any before."""
        self.finish()
        self._pending = self._pool.submit(self._save, checkpoint.BEST, None, tensors, manifest)

    def finish(self) -> None:
        """Wait for the checkpoint under way."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        self.finish()
        self._pool.shutdown()

    def _save(self, name: str, updates: int | None, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
        started = time.monotonic()
        try:
            path, _ = checkpoint.write(self._directory, name, tensors, manifest)
            whole = verify(path)
        except CheckpointProblem as problem:
            self._status = {**self._status, "state": "Failed", "message": str(problem)}
            log.error("%s", problem)
            return
        if updates is not None:
            self._status = _valid(updates, path, whole.digest, float(manifest.get("written_unix") or 0.0))
            checkpoint.retain(self._directory, self._keep)
        log.info("checkpoint %s written and verified in %.1f s", path.name, time.monotonic() - started)


def _valid(updates: int, path: Path, digest: str, written_unix: float) -> dict[str, Any]:
    return {
        "step": updates,
        "path": str(path),
        "digest": digest,
        "state": "Valid",
        "message": "",
        "written_unix": written_unix,
    }
