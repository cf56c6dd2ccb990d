"""The process that sends one run to one tracker: reads what is new, hands it over, and tries again for ever.

``python -m rljob.tracking.sender RUN wandb|mlflow``, or a `Child` of a run's controller. SIGTERM ends it; then it sends the rest
first, for a minute at most. With ``--once`` it ends when all is sent.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer
from setproctitle import setproctitle

from rljob.api import load_manifest
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError
from rljob.files import replace
from rljob.strict_json import dumps
from rljob.telemetry.recorder import METRICS_FILE
from rljob.telemetry.run_folder import EFFECTIVE_FILE
from rljob.tracking.points import Follower, noted_ending
from rljob.tracking.tracker import FOLDER, IDENTITY_VARIABLE, TRACKERS, Sent, TrackedRun, Tracker, wanted

IDENTITY_FILE: Final = "run-id"
LOOK_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 15.0
"""Between two tries while a server is away."""
LAST_SECONDS: Final = 60
_NICENESS: Final = 10
_MOST_POINTS: Final = 500
_LONGEST_PROBLEM: Final = 300
log = logging.getLogger(__name__)


def opened(name: str, run: TrackedRun) -> Tracker:
    """A connection to the tracker ``name``; its client is loaded only here."""
    if name == "wandb":
        from rljob.tracking.services import InWandb

        return InWandb(run)
    from rljob.tracking.services import InMLflow

    return InMLflow(run)


def send(
    path: Path,
    sent: Sent,
    connect: Callable[[], Tracker],
    tell: Callable[[dict[str, Any]], None],
    *,
    stop: threading.Event,
    once: bool,
    ended: Callable[[], str],
) -> None:
    """Send the points in ``path`` until ``stop`` is set, or ``once`` was asked for, and all of them are sent.

    Args:
        connect: opens a connection and adjusts ``sent`` to what the server has; it is called again after every failure.
        tell: is given how it goes: ``points`` sent, the last ``problem``, ``url``.
        ended: how the run has ended, as `Tracker.finish` takes it.
    """
    tracker: Tracker | None = None
    follower = Follower(path)
    wait_seconds, problem, url = LOOK_SECONDS, "", ""
    while True:
        points = None
        try:
            if tracker is None:
                tracker = connect()
                follower = Follower(path, sent.last)
                url = tracker.url
            if points := follower.read(_MOST_POINTS):
                tracker.send(points)
            elif once or stop.is_set():
                tracker.finish(ended())
                tell({"points": len(sent), "problem": "", "url": url, "done": True})
                return
            wait_seconds, problem = LOOK_SECONDS, ""
        except Exception as error:
            tracker, points = None, None
            wait_seconds = min(LONGEST_WAIT_SECONDS, 2 * wait_seconds)
            if (said := in_words(error)) != problem:
                problem = said
                log.warning("%s; trying again", problem, exc_info=log.isEnabledFor(logging.DEBUG))
        tell({"points": len(sent), "problem": problem, "url": url, "done": False})
        if not points:
            time.sleep(1.0) if stop.is_set() else stop.wait(wait_seconds)


def in_words(error: Exception) -> str:
    """What an error says, in one line of bounded length: its beginning and its end, where clients put the cause. What is in the
    user's hands needs no name of a type."""
    kind, words = type(error).__name__, " ".join(str(error).split())
    said = words if isinstance(error, UsageError) else f"{kind}: {words}" if words else kind
    return said if len(said) <= _LONGEST_PROBLEM else f"{said[:100]} ... {said[105 - _LONGEST_PROBLEM :]}"


def identity(folder: Path) -> str:
    """What the run is found by at the trackers. Raises OSError."""
    path = folder / IDENTITY_FILE
    if IDENTITY_VARIABLE in os.environ:
        return os.environ[IDENTITY_VARIABLE]
    with contextlib.suppress(
        FileExistsError
    ):  # linked, so that of two trackers that begin both have the same one, whole
        made = folder / f".{IDENTITY_FILE}.{os.getpid()}"
        made.write_text(uuid.uuid4().hex)
        try:
            os.link(made, path)
        finally:
            made.unlink()
    return path.read_text()


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Only one process sends a run to a tracker. Raises UsageError where another one does."""
    with (folder / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process sends this run to {TRACKERS[name]} now: {folder / name}.json") from None
        yield


def main(words: Sequence[str]) -> None:
    """Send a run until told to end."""
    parser = argparse.ArgumentParser("rljob tracker")
    parser.add_argument("run", type=Path)
    parser.add_argument("tracker", choices=TRACKERS)
    parser.add_argument("--job", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--once", action="store_true")
    asked = parser.parse_args(words)
    setproctitle(f"rljob tracker {asked.tracker}")
    os.nice(_NICENESS)
    logging.basicConfig(format="%(asctime)s %(message)s")
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        signal.alarm(LAST_SECONDS)  # which ends the process, whatever a client is waiting for

    signal.signal(signal.SIGTERM, end)
    folder = asked.run / FOLDER
    with one_line_errors():
        folder.mkdir(exist_ok=True)
        with alone(folder, asked.tracker):
            sent = Sent(folder / f"{asked.tracker}.sent")

            def connect() -> Tracker:
                job = load_manifest(asked.job or asked.run / EFFECTIVE_FILE, asked.set)
                wanted(job.spec.tracking)
                return opened(asked.tracker, TrackedRun(identity(folder), job, folder, sent))

            def tell(state: dict[str, Any]) -> None:
                document = {"pid": os.getpid(), "time_unix": time.time(), **state}
                replace(folder / f"{asked.tracker}.json", dumps(document), essential=False)

            send(
                asked.run / METRICS_FILE,
                sent,
                connect,
                tell,
                stop=stop,
                once=asked.once,
                ended=partial(noted_ending, asked.run),
            )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except typer.Exit as end:  # the line is written; a traceback behind it would be taken for the reason
        sys.exit(end.exit_code)
