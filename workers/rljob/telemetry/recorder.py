"""The written record of a run: TensorBoard events and ``metrics.jsonl``, the same names and numbers in both; the events have
tags that other libraries' users know (``known_tags``) beside them, and not what processes take, which would be a third of them.

Every record is written and handed to the operating system at once, so a run that is killed loses at most the record
under way; nothing waits for the disk. A disk that is full costs records, counted and told once, never the training.
"""

import io
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from rljob.files import replacing
from rljob.strict_json import dumps
from rljob.telemetry.catalogue import known_tags
from rljob.telemetry.flat_figures import Stages, flatten_status, number
from rljob.telemetry.process import describe_machine

log = logging.getLogger(__name__)

METRICS_FILE: Final = "metrics.jsonl"
TENSORBOARD_DIRECTORY: Final = "tensorboard"
EVALUATION: Final = "evaluation"
CHECKPOINT: Final = "checkpoint"
MACHINE: Final = "machine"
LEARNER: Final = "learner"
KINDS: Final = (EVALUATION, CHECKPOINT, MACHINE, LEARNER)
"""Values of ``"kind"``: the last two hold the facts that figures depend on, at each opening and at each change."""
MOST_POINTS: Final = 10_000
"""Records of figures that are kept, five hours at one in two seconds. A full record gives up every second one, so the oldest lie
furthest apart and it always spans the run; what has a kind is kept."""
EVENTS_APART: Final = 5_000
"""Two events of figures lie at least this part of the run's time apart: nothing is taken out of a file that TensorBoard follows,
so its events become rarer, 30,000 in the first month. It draws a thousand of them."""

_LEARNER_FACTS = (
    "device",
    "device_name",
    "device_memory_bytes",
    "driver",
    "precision",
    "compute_seconds",
    "mirror",
    "compiled",
    "captured",
    "rewards",
    "environment",
    "epoch",
)


class Recorder(AbstractContextManager["Recorder"]):
    """Appends to ``run_dir/metrics.jsonl`` and ``run_dir/tensorboard/``; safe to open again after any kind of end.

    A JSONL line is ``{"time_unix", "elapsed_seconds", "updates", "raw_frames", <figures>}``; one with ``"kind"`` is an
    event of its own (``evaluation``, ``checkpoint``, ``machine``, ``learner``). ``elapsed_seconds`` counts the time that a
    recorder was open and goes on from the last line of an earlier one, so a pause between two parts of a run is not in
    it. TensorBoard's step is ``raw_frames``; where a run goes on from an earlier one, what lay beyond it is shown no more.

    Args:
        run_dir: the run folder; made if missing.
        wall: seconds since 1970, for the stamps. monotonic: seconds, for the elapsed time.

    Methods may be called from any thread. :attr:`failures` counts the records that could not be written.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._stages: Stages | None = None
        self._evaluated: set[tuple[Any, ...]] = set()
        self._checkpoint: tuple[Any, ...] | None = None
        self._facts: dict[str, Any] = {}
        self._points = 0
        self._begun = False
        self._next_event_seconds = 0.0
        path = run_dir / METRICS_FILE
        self._offset_seconds = self._recall(path)
        self._opened = monotonic()
        events = run_dir / TENSORBOARD_DIRECTORY
        name = f"events.out.tfevents.{wall():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._lines = _Appender(path)
        self._events = _Appender(events / name)
        if _ends_within_a_line(path):
            self._write(self._lines, b"\n")  # the process that wrote before was killed in the middle of a line
        self._write(self._events, _framed(Event(wall_time=wall(), file_version="brain.Event:2")))
        self._point(0, 0, {**describe_machine(), "kind": MACHINE}, {})

    def record(self, figures: Mapping[str, float], raw_frames: int, updates: int, *, state: str = "") -> None:
        """One point in time. Figures that are not finite are left out of TensorBoard and ``null`` in the JSONL."""
        self._point(raw_frames, updates, {**({"state": state} if state else {}), **figures}, figures)

    def record_status(self, status: Mapping[str, Any]) -> None:
        """One point in time from a learner's status document, and whatever evaluation or checkpoint is new in it."""
        raw_frames, updates = _count(status, "raw_frames_total"), _count(status, "updates")
        figures = flatten_status(status, self._stages)
        if isinstance(stages := status.get("stages"), Mapping):
            self._stages = {role: dict(seconds) for role, seconds in stages.items() if isinstance(seconds, Mapping)}
        facts = {name: status[name] for name in _LEARNER_FACTS if status.get(name) is not None}
        if facts != self._facts:
            self._facts = facts
            self._point(raw_frames, updates, {**facts, "kind": LEARNER}, {})
        self.record(figures, raw_frames, updates, state=str(status.get("state", "")))
        for evaluation in status.get("evaluations") or ():
            self.record_evaluation(evaluation)
        checkpoint = status.get("checkpoint")
        if isinstance(checkpoint, Mapping) and checkpoint.get("state") not in (None, "", "Missing"):
            identity = tuple(checkpoint.get(key) for key in ("step", "digest", "state"))
            if identity != self._checkpoint:
                self._checkpoint = identity
                self._point(raw_frames, updates, {**checkpoint, "kind": CHECKPOINT}, {})

    def record_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """One verdict of the evaluator; one that is in the record already is not written twice.

        Args:
            evaluation: ``version``, ``updates``, ``raw_frames``, ``mean``, ``standard_error``, ``mean_length_steps``,
                ``episodes`` and ``seconds``, the time that the evaluation took; ``metrics``, what the environment reports,
                which becomes ``episode/<name>`` as in other records.
        """
        with self._lock:
            if (identity := _identity(evaluation)) in self._evaluated:
                return
            self._evaluated.add(identity)
        line = {name: value for name, value in evaluation.items() if name != "metrics"}
        means = {f"episode/{name}": mean for name, mean in (evaluation.get("metrics") or {}).items()}
        told = (*means, "mean", "standard_error", "mean_length_steps", "episodes", "seconds")
        scalars = {f"{EVALUATION}/{name}": value for name, value in {**line, **means}.items() if name in told}
        raw_frames, updates = _count(evaluation, "raw_frames"), _count(evaluation, "updates")
        self._point(raw_frames, updates, {**line, **means, "kind": EVALUATION}, scalars)

    def close(self) -> None:
        """Closes both files. Recording afterwards is an error."""
        with self._lock:
            self._lines.close()
            self._events.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _point(self, raw_frames: int, updates: int, line: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        with self._lock:
            self._append(raw_frames, updates, line, scalars)

    def _append(self, raw_frames: int, updates: int, line: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        now = self._wall()
        elapsed = self._offset_seconds + self._monotonic() - self._opened
        document = {
            **line,
            "time_unix": now,
            "elapsed_seconds": round(elapsed, 3),
            "updates": updates,
            "raw_frames": raw_frames,
        }
        self._write(self._lines, f"{dumps(document)}\n".encode())
        self._points += "kind" not in document
        if self._points > MOST_POINTS:
            self._thin()
        if "kind" not in document:
            if elapsed < self._next_event_seconds:
                return
            self._next_event_seconds = elapsed * (1 + 1 / EVENTS_APART)
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, raw in {**known_tags(scalars), **scalars}.items()
            if (value := number(raw)) is not None and not name.startswith("processes/")
        ]
        if values:
            if not self._begun:
                self._begun = True
                start = SessionLog(status=SessionLog.START)
                self._write(self._events, _framed(Event(wall_time=now, step=raw_frames, session_log=start)))
            event = Event(wall_time=now, step=raw_frames, summary=Summary(value=values))
            self._write(self._events, _framed(event))

    def _write(self, target: "_Appender", data: bytes) -> None:
        try:
            target.append(data)
        except OSError as error:
            self.failures += 1
            if self.failures == 1:
                log.warning("cannot write %s: %s; training goes on, missing records are counted", target.path, error)

    def _thin(self) -> None:
        """Keep every second record of figures. One at a time, to save the learner's memory."""
        path, self._points = self._lines.path, 0
        try:
            with replacing(path) as new, new.open("wb") as kept:
                for record in _every_second(iter_records(path)):
                    kept.write(f"{dumps(record)}\n".encode())
                    self._points += "kind" not in record
            self._lines.reopen()
        except OSError as error:
            log.warning("%s can't be thinned: %s", path, error)

    def _recall(self, path: Path) -> float:
        """Elapsed seconds at the end of the record so far; also notes which evaluations it holds."""
        elapsed = 0.0
        with suppress(OSError):  # no record yet, or one that cannot be read: this recorder starts from zero
            for record in iter_records(path):
                self._points += "kind" not in record
                elapsed = max(elapsed, number(record.get("elapsed_seconds")) or 0.0)
                if record.get("kind") == EVALUATION:
                    self._evaluated.add(_identity(record))
        return elapsed


def read_records(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a ``metrics.jsonl``, oldest first; a line cut short by a crash is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    return list(iter_records(path))


def iter_records(path: Path) -> Iterator[dict[str, Any]]:
    """As ``read_records``, one at a time."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def thinned(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that have a kind, and of the others at most ``MOST_POINTS``, as a recorder would have kept them."""
    kept: list[dict[str, Any]] = []
    points = 0
    for record in records:
        kept.append(record)
        points += "kind" not in record
        if points > MOST_POINTS:
            kept = list(_every_second(kept))
            points = sum("kind" not in one for one in kept)
    return kept


def _every_second(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that have a kind, and of the others the first, the third and so on."""
    kept = False
    for record in records:
        kept = kept if "kind" in record else not kept
        if "kind" in record or kept:
            yield record


def _count(document: Mapping[str, Any], name: str) -> int:
    return int(number(document.get(name)) or 0)


def _ends_within_a_line(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:  # none, or an empty one
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
    return False


def _identity(evaluation: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells two verdicts apart: a resumed learner may give out a version number a second time."""
    return tuple(number(evaluation.get(name)) for name in ("version", "raw_frames", "mean"))


def _framed(event: Event) -> bytes:
    """The event in TensorBoard's record framing: length and payload, each with its checksum."""
    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()


class _Appender:
    """A file that grows by whole records: one that does not fit is removed again, so what follows it stays readable.

    The file is opened when first needed and again after an error, so a folder that comes back is written to again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.FileIO | None = None
        self._closed = False

    def append(self, data: bytes) -> None:
        """Raises OSError when ``data`` is not in the file as a whole; then none of it is."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = io.FileIO(self.path, "a")
        file = self._file
        start = os.fstat(file.fileno()).st_size
        try:
            written = file.write(data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes fit on the disk")
        except OSError:
            self._file = None
            try:
                file.truncate(start)
            finally:
                file.close()
            raise

    def reopen(self) -> None:
        """Go on with the file that has taken the place of the one before."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self._closed = True
        self.reopen()
