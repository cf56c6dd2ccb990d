"""Writes a learner's checkpoints beside the training and remembers how the last one went.

Each life of a learner takes an epoch at the place of its checkpoints. Once a later one is taken there, this one has been
superseded: it writes and removes nothing more, and its learner ends.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from rljob.api.learner_status import CheckpointStatement
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import verify
from rljob.checkpoints.names import CheckpointProblem, StorageProblem, checkpoint_name
from rljob.checkpoints.recording import Recording
from rljob.threads import SupervisedThread

log = logging.getLogger(__name__)


WATCH_SECONDS = 10.0
"""Between two checks of the place for a later epoch. A bucket charges for each."""


class _Wanted(NamedTuple):
    """A checkpoint to write. ``updates`` is None for ``best``."""

    name: str
    updates: int | None
    tensors: Mapping[str, Tensor]
    manifest: Mapping[str, Any]


class Saver:
    """Checkpoints of one run in ``directory``, the newest ``keep`` of them, written one at a time by a thread of its own.

    A checkpoint that cannot be written, for whatever reason, is reported in ``status`` and in the log; the one before stays and
    training goes on. ``recording`` is written after checkpoints and at the end.
    """

    def __init__(self, directory: checkpoint.Location, keep: int, recording: Recording | None = None) -> None:
        self._directory, self._keep, self._recording = directory, keep, recording
        self._epoch = 1
        self.heard_epoch = 0
        """The latest epoch that was found at the place."""
        self._closing = threading.Event()
        self._watch = SupervisedThread("epoch-watch", self._look_for_later_epochs, until=self._closing)
        self._lock = threading.Lock()
        self._best: _Wanted | None = None
        self._writing = False
        self._writer: SupervisedThread | None = None
        self.status = CheckpointStatement(state="Missing")
        """The outcome of what was saved; valid is a checkpoint that was read again after it was written, and has the digest that
        its manifest states."""

    def resumed(self, found: checkpoint.Checkpoint, updates: int) -> None:
        """The run goes on from a checkpoint that verified."""
        self.status = _valid(updates, found.path, str(found.manifest["sha256"]), found.manifest)

    def claim(self, above: int) -> int:
        """Take an epoch later than ``above`` and than any at the place, and return it.

        A place that takes nothing now is reported as a checkpoint that could not be written; the epoch is then only counted.
        Raises CheckpointProblem where this user may not write there.
        """
        try:
            self._epoch = checkpoint.claim_epoch(self._directory, above)
        except StorageProblem as problem:
            self._epoch = above + 1
            self._failed(f"no checkpoint can be written: {problem}")
        return self._epoch

    def claim_next(self) -> int:
        """Take the epoch after the present one, for a learner that goes back to a checkpoint, and return it; the present one
        where another learner has taken it or a later one, which ``heard_epoch`` then tells."""
        try:
            self._look()
            if self.heard_epoch <= self._epoch and checkpoint.take_epoch(self._directory, self._epoch + 1):
                self._epoch += 1
            self._look()
        except (CheckpointProblem, StorageProblem) as problem:
            self._epoch += 1
            self._failed(f"no checkpoint can be written: {problem}")
        return self._epoch

    def watch(self) -> None:
        """Keep ``heard_epoch`` up to date from now on, also while nothing is written."""
        self._watch.start()

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written: asking for another now would make the caller wait."""
        return self._writer is not None and self._writer.alive

    def save(
        self, updates: int, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any], *, wait: bool = False
    ) -> None:
        """Write the checkpoint after ``updates`` updates. The caller must not change the tensors afterwards."""
        self.finish()
        self._start(_Wanted(checkpoint_name(self._epoch, updates), updates, tensors, manifest))
        if wait:
            self.finish()

    def save_best(self, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
        """Write ``best/``: weights that an evaluator has judged better than any before. It waits for nothing: while another is
        being written, however slow its place, the newest such request is kept and carried out next."""
        wanted = _Wanted(checkpoint.BEST, None, tensors, manifest)
        with self._lock:
            if self._writing:
                self._best = wanted
                return
        self.finish()
        self._start(wanted)

    def finish(self) -> None:
        """Wait for the checkpoint under way. Raises ``ThreadEnded`` where its thread has ended before."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            writer.check()

    def close(self) -> None:
        """Wait for the checkpoint under way, as ``finish``; then nothing more is recorded."""
        self._closing.set()
        self.finish()
        self._keep_recording()
        self._watch.close(timeout_seconds=1.0)

    def _start(self, wanted: _Wanted) -> None:
        self._writing = True
        self._writer = SupervisedThread("checkpoint", partial(self._write, wanted))
        self._writer.start()

    def _write(self, first: _Wanted) -> None:
        wanted: _Wanted | None = first
        while wanted is not None:
            self._save(wanted)
            with self._lock:
                wanted, self._best = self._best, None
                self._writing = wanted is not None

    def _save(self, wanted: _Wanted) -> None:
        name, started = wanted.name, time.monotonic()
        try:
            self._confirm(name)
            # Checked again at the end: writing may take minutes, and a machine may stand still for longer.
            path, _ = checkpoint.write(
                self._directory, name, wanted.tensors, wanted.manifest, partial(self._confirm, name)
            )
            whole = verify(path)
        except CheckpointProblem as problem:
            self._failed(str(problem))
            return
        except StorageProblem as problem:
            self._failed(f"the checkpoint {name} could not be written: {problem}; the one before stays valid")
            return
        except Exception as error:
            log.warning("checkpoint %s", name, exc_info=True)
            self._failed(
                f"the checkpoint {name} could not be written: {type(error).__name__}: {error}; the one before stays"
            )
            return
        if wanted.updates is not None:
            self.status = _valid(wanted.updates, path, whole.digest, wanted.manifest)
            try:
                checkpoint.retain(self._directory, self._keep, self._epoch)
            except StorageProblem as problem:
                log.warning("older checkpoints stay: %s", problem)
            self._keep_recording()
        log.info("checkpoint %s written and verified in %.1f s", path.name, time.monotonic() - started)

    def _keep_recording(self) -> None:
        """Where the last checkpoint could be written: a place that does not answer has taken enough of the time to leave."""
        if self._recording is not None and self.status.state != "Failed":
            try:
                self._recording.keep(partial(self._confirm, "of the recording"))
            except (CheckpointProblem, StorageProblem, OSError) as problem:
                log.warning("the recording for `rljob report` stays as it was: %s", problem)

    def _confirm(self, name: str) -> None:
        """Raise CheckpointProblem where a later epoch is taken, StorageProblem where the place cannot be asked."""
        self._look()
        if self.heard_epoch > self._epoch:
            raise CheckpointProblem(
                f"the checkpoint {name} was not written: a learner of epoch {self.heard_epoch} has begun after this one, of "
                f"epoch {self._epoch}, and writes them now"
            )

    def _look(self) -> None:
        self.heard_epoch = max(self.heard_epoch, checkpoint.latest_epoch(self._directory))

    def _look_for_later_epochs(self) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            with contextlib.suppress(StorageProblem):  # told of where a checkpoint can't be written
                self._look()

    def _failed(self, message: str) -> None:
        self.status = replace(self.status, state="Failed", message=message)
        log.error("%s", message)


def _valid(updates: int, path: checkpoint.Location, digest: str, manifest: Mapping[str, Any]) -> CheckpointStatement:
    return CheckpointStatement(
        step=updates,
        path=str(path),
        digest=digest,
        state="Valid",
        written_unix=float(manifest.get("written_unix") or 0.0) or None,
        requested_unix=float(manifest.get("requested_unix") or 0.0),
    )
