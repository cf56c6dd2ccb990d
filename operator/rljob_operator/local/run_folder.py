"""The folder of one run: its name, how files in it are written, and which controller has it: one of this machine and namespace,
one elsewhere that shares the disk, or none.

A process is named wherever it runs: a bare process id is used again, and means another process elsewhere.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rljob.errors import UsageError
from rljob.files import recover, replace
from rljob.strict_json import dumps

JOB_FILE: Final = "job.yaml"
"""The stored object: the job as written. Users and their verbs write it, the controller reads it."""
ACCEPTED_FILE: Final = "job-accepted.yaml"
"""The last job that could be run, as written. The controller writes it and compares a later one with it."""
EFFECTIVE_FILE: Final = "job-effective.yaml"
"""The job in force: the same with its preset and every default filled in. The controller writes it, the roles are started from
it."""
EXPERIMENT_FILE: Final = "experiment.yaml"
"""The manifest of an experiment, whose folder has a run folder for each of its runs."""
STATUS_FILE: Final = "status.json"
OUTCOME_FILE: Final = "outcome.json"
CONTROLLER_LOG: Final = "logs/controller.log"
"""What a controller prints that was started without a terminal."""
RUNS: Final = Path("runs")
"""Where runs without --run-dir go, and where verbs without RUN look."""
_NAMED: Final = 4
"""Runs of an experiment that are named where one of them has to be."""


class RunFolderProblem(UsageError):
    """The run folder can't be used as asked; the message says why and what would work."""


@contextlib.contextmanager
def telling(path: Path, doing: str = "written", then: str = "") -> Iterator[None]:
    """What the disk refuses of a file or folder is told as a RunFolderProblem, with what to do ``then``."""
    try:
        yield
    except OSError as error:
        raise RunFolderProblem(f"{path}: can't be {doing}: {error.strerror}{then}") from error


_ANOTHER: Final = "; name another --run-dir"


def new_run_dir(job_name: str) -> Path:
    """Make ``runs/<name>-<local time>``, with a number behind it where another run that starts now has that. Raises
    RunFolderProblem."""
    base = RUNS / f"{job_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        with telling(folder, then=_ANOTHER), contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def prepare(run_dir: Path, *, resume: bool) -> None:
    """Make sure that ``run_dir`` can take a run: a new one, or with ``resume`` the one that is in it.

    Raises RunFolderProblem where a fresh run meets files of an older one, where a resumed run finds nothing to resume, and
    where the folder can't be written.
    """
    if resume:
        if not (run_dir / JOB_FILE).is_file():
            raise RunFolderProblem(
                f"{run_dir}: nothing to resume here (no {JOB_FILE}); leave out --resume to start a run"
            )
    elif run_dir.exists() and run_dir.is_dir() and any(run_dir.iterdir()):
        raise RunFolderProblem(
            f"{run_dir}: not empty; add --resume to go on with the run in it, or name another --run-dir"
        )
    with telling(run_dir, then=_ANOTHER):
        for folder in (run_dir, run_dir / "roles", run_dir / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
            recover(folder)


def is_stored_job(file: Path, run_dir: Path) -> bool:
    """Whether ``file`` is the stored job of ``run_dir`` itself."""
    try:
        return file.samefile(run_dir / JOB_FILE)
    except OSError:
        return False


def stored_runs(folder: Path = RUNS) -> list[Path]:
    """The run folders in ``folder`` and in experiments there: first the one whose controller was the last to begin."""
    found = [path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{JOB_FILE}")]
    # Of two that began at once, one is a copy, which no controller has.
    return sorted(found, key=lambda run: (read_json(run / LOCK_FILE).get("since_unix", 0), holder(run) is not None))[
        ::-1
    ]


def newest() -> Path:
    """The newest run under ``runs/``, or the experiment that it is a run of. Raises RunFolderProblem."""
    runs = stored_runs()
    if not runs:
        raise RunFolderProblem(f"no run under {RUNS}/ here; give the folder of a run, as `rljob run` printed it")
    around = runs[0].parent
    return around if (around / EXPERIMENT_FILE).is_file() else runs[0]


def chosen_run(run: Path | None) -> Path:
    """The run that a verb is about: ``run``, or the newest under ``runs/``. Raises RunFolderProblem."""
    run = newest() if run is None else run
    if not run.exists():
        raise RunFolderProblem(f"{run}: no such folder; give the folder of a run, as `rljob run` printed it")
    if (run / EXPERIMENT_FILE).is_file():
        here = ", ".join(map(str, stored_runs(run)[:_NAMED])) or "none yet"
        raise RunFolderProblem(
            f"{run}: an experiment's folder; name one of its runs, the newest of which are {here} "
            f"(`rljob get {shlex.quote(str(run))}` shows all)"
        )
    if not (run / JOB_FILE).is_file():
        raise RunFolderProblem(f"{run}: not a run folder (no {JOB_FILE} in it); see the folder {RUNS}/")
    return run


def resume_command(run_dir: Path) -> str:
    """What to type to go on with a run."""
    return f"rljob run {shlex.quote(str(run_dir / JOB_FILE))} --run-dir {shlex.quote(str(run_dir))} --resume"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; empty where there is none that can be read."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write_json(path: Path, document: Mapping[str, Any], *, essential: bool = True) -> None:
    """Replace ``path`` by ``document`` in one step. Raises OSError as `rljob.files.replace`; the old one stays then."""
    replace(path, dumps(document, 2) + "\n", essential=essential)


LOCK_FILE: Final = "controller.lock"
"""Locked by the controller of the run folder that it is in (`rljob_operator.local.run_folder`), and names it."""
_NAMED_SECONDS: Final = 0.5
"""In which whatever takes a lock writes its name."""


_PROC: Final = Path("/proc")


_BOOT: Final = next((each.read_text().strip() for each in _PROC.glob("sys/kernel/random/boot_id")), "")
_NAMESPACE: Final = next((os.readlink(each) for each in _PROC.glob("self/ns/pid")), "")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: its id, its start in clock ticks since the machine started, and where both count: this boot of this machine, and
    this namespace of process ids, unless others are given. ``host`` is for people."""

    pid: int
    start_ticks: int
    boot: str = _BOOT
    namespace: str = _NAMESPACE
    host: str = field(default=os.uname().nodename, compare=False)

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The process that has this id here now; None where none runs (one that has ended and waits to be reaped counts as
        gone)."""
        stat = _stat(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, stat[1])

    @property
    def of_here(self) -> bool:
        """Whether its id means a process of this boot and this namespace."""
        return (self.boot, self.namespace) == (_BOOT, _NAMESPACE)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs, here."""
        return ProcessIdentity.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, but never to another process that got the same id later, or has it here."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> tuple[str, int] | None:
    """(state letter, start ticks) of a process; its name, which comes before them, may hold spaces and brackets."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@dataclass(frozen=True, slots=True)
class Holder:
    """The controller that has a run: its process, None where it has not written its name yet, and since when (Unix seconds)."""

    process: ProcessIdentity | None
    since: float

    @property
    def here(self) -> bool:
        """Whether it is a living process that a signal from here reaches; else it is elsewhere, and only its files are here."""
        return self.process is not None and self.process.alive

    def __str__(self) -> str:
        if self.process is None:
            return "a controller that is about to begin"
        elsewhere = "" if self.process.of_here else f" of another machine or container, {self.process.host}"
        return f"pid {self.process.pid}{elsewhere}"


def holder(run_dir: Path) -> Holder | None:
    """The controller that has ``run_dir`` now, here or elsewhere; None where none runs. This alone tells."""
    deadline = time.monotonic() + _NAMED_SECONDS
    # Without such a file none has begun; nor can it where the disk has no locks.
    with contextlib.suppress(OSError), (run_dir / LOCK_FILE).open() as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            named = json.loads(os.pread(file.fileno(), 4096, 0) or b"{}")
            process = ProcessIdentity(**named["process"]) if named.get("process") else None
            # Of here and gone, it is the name of the one before.
            if (process is not None and (process.alive or not process.of_here)) or time.monotonic() > deadline:
                return Holder(process, named.get("since_unix", 0.0))
            time.sleep(0.02)
    return None


class ControllerLock:
    """Held by the controller of ``run_dir`` from its start to its end.

    The kernel gives the lock back when the holder dies, also by kill -9, so there are no stale locks. The file says who
    holds it; processes that the controller starts do not inherit it.

    ``for_another``: it is taken for a controller that is about to be started with ``file`` as its standard input, and that keeps
    it from then on. So there is no moment in which the run has no controller.
    """

    def __init__(self, run_dir: Path, *, for_another: bool = False) -> None:
        self._file: int | None = None
        self._run_dir = run_dir
        self._for_another = for_another

    def __enter__(self) -> Self:
        with telling(self._run_dir, then=_ANOTHER):
            file = os.open(self._run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        with contextlib.suppress(OSError), open(os.devnull) as nothing:  # there may be no standard input
            if os.path.sameopenfile(file, 0):  # it was taken for this process, and is for none that it starts
                os.dup2(0, file, inheritable=False)
                os.dup2(nothing.fileno(), 0)
        if not _taken(file):
            os.close(file)
            raise RunFolderProblem(
                f"{self._run_dir}: another controller ({holder(self._run_dir)}) has this run; "
                f"end it with `rljob stop {self._run_dir}` first"
            )
        self._file = file
        self.name(None if self._for_another else os.getpid())
        return self

    @property
    def file(self) -> int:
        """The file descriptor that the lock is held by."""
        assert self._file is not None, "within `with`"
        return self._file

    def name(self, pid: int | None) -> None:
        """Write into the file who has the run: the process ``pid`` of here, or None for one that is about to be known."""
        process = ProcessIdentity.of(pid) if pid is not None else None
        document = json.dumps({"process": process and asdict(process), "since_unix": time.time()}) + "\n"
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, document.encode(), 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _taken(file: int) -> bool:
    """Try for the lock, and again for a moment: a verb that only asks who the owner is holds it for microseconds."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False
