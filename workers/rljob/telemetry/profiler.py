"""A sampling profiler inside the process that it samples: it needs no right that a pod lacks, and nothing runs until it is read.

A reader asks for the page ``/profile`` again and again, and gets what was sampled since; five seconds after the last reader the
sampling ends by itself. So reading starts it, as with Go's pprof, and a reader that is killed leaves nothing behind.

A thread looks at the stacks of all threads a hundred times a second. It needs the interpreter's lock to do so, which a thread
that computes in Python gives up only after Python's switch interval: with the usual 5 ms most samples would fall where the lock
is given up anyway, in ``poll`` and the like. So that interval is shortened while a profile is under way.
"""

import faulthandler
import functools
import os
import re
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from rljob.telemetry import timeline
from rljob.telemetry.clock import running_stages
from rljob.telemetry.process import cpu_seconds
from rljob.threads import start_contained

SAMPLE_SECONDS: Final = 0.01
MOST_SHARE: Final = 0.02
"""The share of a core that sampling may take: a process with hundreds of threads is looked at less often."""
SWITCH_SECONDS: Final = 0.0001
LEASE_SECONDS: Final = 5.0

_KEPT_PARTS: Final = 8
_SECOND_NS: Final = 1_000_000_000
_TASKS: Final = Path("/proc/self/task")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Profiler:
    """Samples this process, a part a second, as long as it is read. There is one a process, ``PROFILER``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_KEPT_PARTS)
        self._next = 0
        self._asked_at = 0.0
        self._runs = False

    def read(self, since: int | None = None) -> dict[str, Any]:
        """The parts from number ``since`` on that are whole, and the number that comes ``next``; none without a number.

        Begins to sample, or has the sampling go on. From any thread. A part has ``stacks`` as [thread, positions in ``frames``,
        times seen], the outermost frame first; ``threads``: number -> name, seconds on a core, seconds that it waited for one;
        seconds on a core of ``native`` threads, which have no Python stack, and of processes ``below``. For the rest see
        ``Recording``; ``running`` are stages that began before the part and had not ended: they are in no span yet.
        ``offset_ns``: what makes Unix time of its times, all in nanoseconds.
        """
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._runs:
                start_contained("profile", self._run)
                self._runs = True
            parts = [part for number, part in self._parts if since is not None and number >= since]
            return {"next": self._next, "boot": _text(_BOOT), "parts": parts}

    def _run(self) -> None:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, SWITCH_SECONDS))
        try:
            with TemporaryFile(buffering=0) as file:
                while time.monotonic() - self._asked_at < LEASE_SECONDS:
                    part = _part(file.fileno())
                    with self._lock:
                        self._parts.append((self._next, part))
                        self._next += 1
        finally:
            with self._lock:
                timeline.recording = None
                sys.setswitchinterval(usual)
                self._runs = False


PROFILER: Final = Profiler()


def _part(file: int) -> dict[str, Any]:
    """Sample, by way of the descriptor ``file``, until the wall clock's next whole second, so that the parts of all roles are of
    the same seconds."""
    recording = timeline.recording = timeline.Recording()
    began = now = time.perf_counter_ns()
    offset = time.time_ns() - began
    ends = began + _SECOND_NS - (began + offset) % _SECOND_NS
    threads_before, own_before, all_before = _threads(), time.process_time(), cpu_seconds()
    seen: Counter[bytes] = Counter()
    samples, pause = 0, SAMPLE_SECONDS
    while now < ends:
        time.sleep(min(pause, (ends - now) * 1e-9))
        before = time.thread_time()
        _look(seen, file)
        samples += 1
        pause = max(SAMPLE_SECONDS, (time.thread_time() - before) / MOST_SHARE)
        now = time.perf_counter_ns()
    own = f"{threading.get_ident():#018x}"
    threads = {
        number: (name, ran - before[1], waited - before[2])
        for number, (name, ran, waited) in _threads().items()
        for before in [threads_before.get(number, ("", 0.0, 0.0))]
    }
    own_seconds = time.process_time() - own_before
    frames: dict[str, int] = {}
    stacks: Counter[tuple[int, ...]] = Counter()
    for printed, count in seen.items():
        number, *functions = _stack(printed.decode(errors="replace"))
        if functions and number != own:
            stacks[(int(number, 16), *(frames.setdefault(each, len(frames)) for each in functions))] += count
    return {
        "began_ns": began,
        "ended_ns": now,
        "offset_ns": offset,
        "samples": samples,
        "frames": list(frames),
        "stacks": [(number, positions, count) for (number, *positions), count in stacks.items()],
        "threads": threads,
        "native": max(0.0, own_seconds - sum(ran for _, ran, _ in threads.values())),
        "below": max(0.0, cpu_seconds() - all_before - own_seconds),
        "spans": recording.spans,
        "flows": recording.flows,
        "left_out": recording.left_out,
        "running": [(stage, since) for stage, since in running_stages() if since < began],
    }


def _look(seen: Counter[bytes], file: int) -> None:
    """Count the stack of each thread, as Python's own handler of faults prints it into ``file``.

    That walks the interpreter's frames without making objects of them, which ``sys._current_frames`` does: those keep
    frames alive that their threads have left, and a process of Python 3.11 has crashed of it or stopped for ever
    (cpython#111363, cpython#106883).
    """
    os.lseek(file, 0, os.SEEK_SET)
    faulthandler.dump_traceback(file, all_threads=True)
    printed = os.pread(file, os.lseek(file, 0, os.SEEK_CUR), 0)
    seen.update(printed.split(b"\n\n"))


def _threads() -> dict[str, tuple[str, float, float]]:
    """Python's number of each thread -> name, seconds on a core, and waiting for one; 0 where the system does not say."""
    found = {}
    for thread in filter(lambda each: each.ident, threading.enumerate()):  # one that is about to start has no number
        # A fork's main thread has the native_id of the process that it was forked from, before Python 3.13.
        task = os.getpid() if thread is threading.main_thread() else thread.native_id
        ran, waited, *_ = (_text(_TASKS / str(task) / "schedstat") or "0 0").split()
        found[str(thread.ident)] = thread.name, int(ran) * 1e-9, int(waited) * 1e-9
    return found


_THREAD: Final = re.compile(r"hread (0x[0-9a-f]+) ")
_FRAME: Final = re.compile(r'  File "(.*)", line \S+ in (.*)')


def _stack(printed: str) -> list[str]:
    """A thread's number and its functions, the outermost first; only the number of one that has no Python now."""
    first, *lines = printed.splitlines() or [""]
    thread = _THREAD.search(first)
    frames = [_label(*frame.groups()) for line in reversed(lines) if (frame := _FRAME.match(line))]
    return [thread[1] if thread else "0x0", *frames]


@functools.cache
def _label(file: str, function: str) -> str:
    """``_learn (rljob/learner/loop.py)``, without what separates frames in a file of stacks."""
    known = [*sys.path, str(Path(__file__).parents[2])]  # an editable installation finds this package by other means
    roots = (f"{root}/" for root in sorted(known, key=len, reverse=True) if root)
    short = file.removeprefix(next((root for root in roots if file.startswith(root)), ""))
    return f"{function} ({short})".replace(";", "_")


def _text(path: Path) -> str:
    """What a file of the kernel says; empty where it is not there, as of a thread that has ended."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
