"""Writes a learner's checkpoints beside the training and remembers how the last one went."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import CheckpointProblem, verify
from rljob.threads import SupervisedThread

log = logging.getLogger(__name__)


class Saver:
    """Checkpoints of one run in ``directory``, the newest ``keep`` of them, written one at a time by a thread of its own.

    A checkpoint that cannot be written, for whatever reason, is reported in ``status`` and in the log; the one before stays and
    training goes on.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._writer: SupervisedThread | None = None
        self._status: dict[str, Any] = {
            "step": 0,
            "path": "",
            "digest": "",
            "state": "Missing",
            "message": "",
            "written_unix": None,
            "requested_unix": 0.0,
        }

    def resumed(self, found: checkpoint.Checkpoint, updates: int) -> None:
        """The run goes on from a checkpoint that verified."""
        self._status = _valid(updates, found.path, str(found.manifest["sha256"]), found.manifest)

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written: asking for another now would make the caller wait."""
        return self._writer is not None and self._writer.alive

    @property
    def status(self) -> dict[str, Any]:
        """``{"step", "path", "digest", "state": Valid | Missing | Failed, "message", "written_unix", "requested_unix"}``.

        Valid: it was read again after it was written, and has the digest that its manifest states; it answers the request of
        ``requested_unix``, and those before. ``written_unix`` is None where there is none. After a failure, all but
        ``state`` and ``message`` are those of the newest one that is valid."""
        return dict(self._status)

    def save(
        self, updates: int, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any], *, wait: bool = False
    ) -> None:
        """Write the checkpoint after ``updates`` updates. The caller must not change the tensors afterwards."""
        self._begin(checkpoint.step_name(updates), updates, tensors, manifest)
        if wait:
            self.finish()

    def save_best(self, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
        """Write ``best/``: weights that an evaluator has judged better than any before."""
        self._begin(checkpoint.BEST, None, tensors, manifest)

    def finish(self) -> None:
        """Wait for the checkpoint under way. Raises ``ThreadEnded`` where its thread did not live to say what became of it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            writer.check()

    def close(self) -> None:
        """Wait for the checkpoint under way, as ``finish``."""
        self.finish()

    def _begin(
        self, name: str, updates: int | None, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]
    ) -> None:
        self.finish()
        self._writer = SupervisedThread("checkpoint", partial(self._save, name, updates, tensors, manifest))
        self._writer.start()

    def _save(self, name: str, updates: int | None, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
        started = time.monotonic()
        try:
            path, _ = checkpoint.write(self._directory, name, tensors, manifest)
            whole = verify(path)
        except CheckpointProblem as problem:
            self._failed(str(problem))
            return
        except Exception as error:
            log.warning("checkpoint %s", name, exc_info=True)
            self._failed(
                f"the checkpoint {name} could not be written: {type(error).__name__}: {error}; the one before stays"
            )
            return
        if updates is not None:
            self._status = _valid(updates, path, whole.digest, manifest)
            checkpoint.retain(self._directory, self._keep)
        log.info("checkpoint %s written and verified in %.1f s", path.name, time.monotonic() - started)

    def _failed(self, message: str) -> None:
        self._status = {**self._status, "state": "Failed", "message": message}
        log.error("%s", message)


def _valid(updates: int, path: Path, digest: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": updates,
        "path": str(path),
        "digest": digest,
        "state": "Valid",
        "message": "",
        "written_unix": float(manifest.get("written_unix") or 0.0) or None,
        "requested_unix": float(manifest.get("requested_unix") or 0.0),
    }
