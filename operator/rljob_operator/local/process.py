"""One supervised process of a local run: start it, see how it is, ask it to leave, and make it leave.

A process is known by its id together with when it started, so that an id that is used again is not mistaken.

Which process goes first where a machine has fewer cores than the run has busy processes.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rljob.command_errors import Debug

from rljob_operator.core.member import Member, Phase, Role, last_line
from rljob_operator.local.launch import Launch, Launched
from rljob_operator.local.log_files import bound
from rljob_operator.local.run_folder import ProcessIdentity, read_json, write_json
from rljob_operator.surroundings import variables

_NICENESS: Final = {Role.LEARNER: 4, Role.ACTOR: 6}
"""Added to the controller's own. The process that is waited for goes first: a verdict may end the run, and a learner that has
data is not to be held up by actors that make more. Not by so much that an actor could not start, or send its last steps and
leave, in time: where all three want the same cores, the evaluator has 60 %, the learner 25 and the actors 16. On a cluster each
pod has cores of its own."""

_LOWEST: Final = 19
_TRIES: Final = 10
_BUSY_SECONDS: Final = 0.12
"""The kernel lets those without privileges change the priority of one session in a tenth of a second."""


def niceness(role: Role) -> int:
    """The niceness of ``role``, counted from this process's own."""
    return min(_LOWEST, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS.get(role, 0))


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process that leads a session of its own, and of that session.

    Linux shares the processor between sessions first (``CONFIG_SCHED_AUTOGROUP``), each a group with a niceness of its own that
    begins at 0, and only then between the processes of one: niceness alone would change nothing between roles. Where the
    kernel groups otherwise there is no such file, and where a process has ended nothing is left to do.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
    for _ in range(_TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return
            time.sleep(_BUSY_SECONDS)
        else:
            return


_LOGIN: Final = ("RLJOB_REDIS_USERNAME", "RLJOB_REDIS_PASSWORD", "RLJOB_REDIS_CA")
"""Of this process's variables with the names of a role's options, those that a role takes. Its options are its words: others were
meant for another process, as in a pod of a job, or name a Service (RLJOB_METRICS_PORT=tcp://...)."""

_EXIT_NOT_STARTED = 127
"""The exit code of a process that could not be started, as a shell gives it."""
_LOADING = "its libraries are being loaded, which may take minutes from a cold disk"
_KILLED_WITHOUT_A_WORD = "ended without output, as by kill -9 or for lack of memory"


class RoleProcess:
    """The role ``name`` of the run in ``run_dir``, started by ``launch`` with ``command``, which may be changed before a start,
    and with ``variables`` of its own beside those that every such role has.

    Its standard output and error go to ``logs/<name>.log``; it tells where its telemetry is in ``roles/<name>.json``, and which
    process it is stands in ``roles/<name>.process.json``. It has a session of its own, so Ctrl-C does not reach it. ``now`` is
    the wall clock.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        command: Sequence[str],
        run_dir: Path,
        launch: Launch,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._now = now
        self.role = role
        self.command = list(command)
        self.variables: Mapping[str, str] = {}
        self.peers: Mapping[str, str] = {}
        """Variables by which it finds other processes of its role."""
        self._launch = launch
        self._log = run_dir / "logs" / f"{name}.log"
        self._announce = announce_path(run_dir, name)
        self._record_path = run_dir / "roles" / f"{name}.process.json"
        self._child: Launched | None = None
        self._identity: ProcessIdentity | None = None
        self._seen = Member(name, role, pod_name=name)
        """This life as it was seen last. Its times are Unix seconds; ``_began``, when its process was started, and ``_kill_at``
        are of the machine's steady clock, which stands still while the machine sleeps."""
        self._began, self._log_offset = 0.0, 0
        self._kill_at: float | None = None
        self._lives = 0

    @property
    def pid(self) -> int | None:
        """Process id of the running process, or None."""
        return self._identity.pid if self._identity is not None else None

    def start(self) -> None:
        """Start the process; nothing happens where it runs already, or is about to."""
        if self._seen.phase is Phase.STARTING or self._identity is not None:
            return
        self._announce.unlink(missing_ok=True)
        now, self._began, self._kill_at = self._now(), time.monotonic(), None
        self._lives += 1
        life = f"{self.name}.{self._lives}.{now:.3f}"  # others may begin in the same millisecond
        self._seen = Member(self.name, self.role, Phase.STARTING, now, life, pod_name=self.name)
        self._begin()

    def _begin(self) -> None:
        """Start the process, as soon as its libraries are loaded."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RLJOB_") or name in _LOGIN},
            **variables(self.role),
            **self.peers,
            **({"RLJOB_DEBUG": "1"} if Debug.enabled else {}),
        }
        try:
            with self._log.open("ab") as log:
                self._log_offset = log.tell()
                self._child = self._launch(self.command, environment, self.variables, log.fileno(), niceness(self.role))
        except OSError as error:  # no memory, no more processes, no room for a log: an end like any other, tried again
            self._note(
                phase=Phase.EXITED,
                since_seconds=self._now(),
                exit_code=_EXIT_NOT_STARTED,
                last_words=f"can't be started: {error.strerror}",
            )
            return
        if self._child is None:
            return
        # A child that is not waited for keeps its id, so this is our child even if it has ended already.
        pid = self._child.pid
        self._began = time.monotonic()
        self._identity = ProcessIdentity.of(pid) or ProcessIdentity(pid, 0)
        # Without it other programs do not know which process this is; a full disk must not end a run.
        write_json(self._record_path, asdict(self._identity), essential=False)

    def drain(self, grace_seconds: float) -> None:
        """Ask the process to leave; it is killed when it is still there after ``grace_seconds``."""
        if self._loading:
            self._note(phase=Phase.EXITED, since_seconds=self._now(), asked=True)
        if self._identity is None or self._seen.phase is Phase.DRAINING:
            return
        self._identity.send(signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_seconds
        self._note(phase=Phase.DRAINING, since_seconds=self._now(), asked=True)

    def end_hung(self) -> None:
        """End a process that does not answer; even one that is stopped ends so. It counts as an unexpected end."""
        if self._identity is not None:
            self._identity.send(signal.SIGKILL)
            if not self._seen.hung:
                self._note(hung=True)

    def observe(self) -> Member:
        """Look at the process now and tell what it is."""
        if self._loading:
            self._begin()
        if self._identity is not None:
            self._look(self._identity)
            with contextlib.suppress(OSError):
                bound(self._log)
        if self._seen.phase is not Phase.STARTING:
            return self._seen
        return replace(
            self._seen,
            silent_seconds=time.monotonic() - self._began,
            silent_because="is still starting",
            waiting_message=_LOADING if self._loading else "",
        )

    @property
    def _loading(self) -> bool:
        """Whether it starts, and has no process yet."""
        return self._seen.phase is Phase.STARTING and self._identity is None

    def metrics_url(self) -> str | None:
        """Base address of the process's telemetry server, or None while it has not announced one."""
        announced = self._announced() if self._seen.phase in (Phase.READY, Phase.DRAINING) else {}
        return announced.get("metrics_url") or None

    def kill(self) -> None:
        """End the process at once."""
        if self._identity is not None:
            self._identity.send(signal.SIGKILL)
            while self._identity.alive:
                time.sleep(0.01)
            self._ended(self._identity)

    def forget(self) -> None:
        """Forget a process that has gone for good, so that its name can be used afresh."""
        self._record_path.unlink(missing_ok=True)
        self._seen = Member(self.name, self.role, pod_name=self.name)

    def _look(self, identity: ProcessIdentity) -> None:
        if not identity.alive:
            self._ended(identity)
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            identity.send(signal.SIGKILL)
        elif self._seen.phase is Phase.STARTING and self._announced().get("pid") == identity.pid:
            now = self._now()
            self._note(phase=Phase.READY, since_seconds=now, ready_seconds=now)

    def _ended(self, identity: ProcessIdentity) -> None:
        """Note how it ended, and end the processes that it has left behind, such as simulators: it led their session. A replay's
        Redis saves, and ends by itself."""
        if self.role is not Role.REPLAY:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(identity.pid, signal.SIGKILL)
        # Only now: a process that was not waited for keeps its id from others. Where its parent is gone, nobody can tell.
        code = self._child.wait() if self._child is not None else None
        self._identity = self._child = None
        words = "" if self._seen.asked else _last_words(code, self._last_line())
        if self._seen.hung:
            how = "did not announce itself" if self._seen.ready_seconds is None else "stopped answering"
            words = f"it {how} and was ended; {words}"
        self._kill_at = None
        self._note(phase=Phase.EXITED, since_seconds=self._now(), exit_code=code, last_words=words)

    def _announced(self) -> dict[str, Any]:
        return read_json(self._announce)

    def _last_line(self) -> str:
        """The line that says why it ended, of those that this process wrote into its log."""
        try:
            with self._log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                begin = self._log_offset if self._log_offset <= end else 0  # it may have become shorter
                log.seek(max(begin, end - 8192))
                return last_line(log.read().decode(errors="replace"))
        except OSError:
            return ""

    def _note(self, **changes: Any) -> None:
        self._seen = replace(self._seen, **changes)


def announce_path(run_dir: Path, name: str) -> Path:
    """Where the role ``name`` tells where it can be watched. Absolute: it tells the processes of different runs apart."""
    return run_dir.resolve() / "roles" / f"{name}.json"


def _last_words(code: int | None, last_line: str) -> str:
    """What a process logged at its end; one that was killed may have had no chance to."""
    if code is not None and code >= 0:
        return last_line or f"exit code {code}"
    how = _KILLED_WITHOUT_A_WORD
    if code is not None:
        how = f"killed by {next((each.name for each in signal.Signals if each == -code), f'signal {-code}')}"
    return f"{how}; {last_line}" if last_line else how
