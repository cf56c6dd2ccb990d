"""Users' code, run in a process of its own: code that ends its process, such as a simulator that crashes, that takes over signals
or changes the folder does so only there, and the user reads what has happened."""

from __future__ import annotations

import faulthandler
import functools
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import gymnasium

from rljob.child import Child
from rljob.envs.base import EnvironmentProblem
from rljob.envs.factory import describe_environment
from rljob.envs.spec import EnvironmentSpec, handed_over
from rljob.envs.trial import try_environment
from rljob.loading import place_of, short
from rljob.threads import start_contained

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters
    from rljob.api.environment import EnvironmentSource

T = TypeVar("T")

_KNOWN_MAKERS: Final = ("gymnasium.", "ale_py.")
_LOOK_SECONDS: Final = 0.05
_LEAVE_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 20.0


def environment_of(run_dir: Path, source: EnvironmentSource, *, tried: bool = False) -> EnvironmentSpec:
    """What ``source`` is, as it was handed over in ``run_dir``; where it was not, as on a cluster, it is described, and
    ``tried``, now. Raises EnvironmentProblem."""
    handed = handed_over(run_dir, source)
    return handed or describe_environment_apart(source.id, source.parameters, tried=tried)


def describe_environment_apart(
    environment_id: str, parameters: EnvironmentParameters, *, tried: bool = False, slow_seconds: float = SLOW_SECONDS
) -> EnvironmentSpec:
    """`describe_environment`, and where it shall be ``tried`` `try_environment`, `apart`. Raises EnvironmentProblem."""
    return apart(
        environment_id,
        functools.partial(_described, environment_id, parameters, tried),
        own=parameters.runs_foreign_code,
        slow_seconds=slow_seconds,
    )


def apart(environment_id: str, call: Callable[[], T], *, own: bool = False, slow_seconds: float = SLOW_SECONDS) -> T:
    """What ``call`` gives or raises, which makes the environment; called in a process that is begun for it, which takes about a
    second, unless it is Gymnasium's own code, or ALE's, that makes it, and nothing else of it is its user's ``own``.

    Arguments and answers can be pickled. A process that ends before it has answered is begun once more. It may take its time, as
    a simulator does that loads; where it is stands on stderr every ``slow_seconds``. What it has begun ends with it.
    """
    if not own and not _made_by_a_user(environment_id):
        return call()
    what, code = f"environment {short(environment_id)!r}", 0
    for _ in range(2):
        answer, code = _answer(what, call, slow_seconds)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer[0]
    raise EnvironmentProblem(
        f"{what}: the process that tried it ended by {_words(code)} while it was made or within its first steps, twice; what it "
        "printed is above"
    )


def _made_by_a_user(environment_id: str) -> bool:
    """Whether the code of a user, or of a package that the user installed, makes this environment."""
    registered = gymnasium.registry.get(environment_id)
    return ":" in environment_id if registered is None else not str(registered.entry_point).startswith(_KNOWN_MAKERS)


def _answer(what: str, call: Callable[[], T], slow_seconds: float) -> tuple[tuple[T] | Exception | None, int]:
    """(what came of the call, None where the process ended before it said; its exit code)."""
    process, answer = Child(__name__, what, call, slow_seconds, title=what, talks=True, orphaned=signal.SIGKILL), None
    try:
        # Not until the link is closed: processes that the call has begun may hold it open.
        while not process.link.poll(_LOOK_SECONDS) and process.poll() is None:
            pass
        with suppress(EOFError, OSError):
            if process.link.poll():
                answer = process.link.recv()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_SECONDS)
    finally:
        process.leave()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return answer, process.returncode


def main(to: Connection[Any, Any], what: str, call: Callable[[], object], slow_seconds: float) -> None:
    """Answer with what came of the call, in the process that was begun for it."""
    os.dup2(2, 1)
    faulthandler.enable(all_threads=False)
    caller = threading.current_thread().ident or 0

    def say_where() -> None:
        for times in itertools.count(1):
            time.sleep(slow_seconds)
            where = place_of(sys._current_frames()[caller])
            sys.stderr.write(
                f"rljob: {what}: its trial takes long, {times * slow_seconds:g} s so far, and is at {where}\n"
            )

    start_contained("slow-trial", say_where)
    try:
        to.send((call(),))
    except Exception as error:  # noqa: BLE001 (it is raised where it is waited for)
        to.send(that_travels(error))


def that_travels(error: Exception) -> Exception:
    """``error`` as it is, or in words where it can't be read back: whatever a user's code raises."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (as above)
        return EnvironmentProblem(str(error))
    return error


def _described(environment_id: str, parameters: EnvironmentParameters, tried: bool) -> EnvironmentSpec:
    spec = describe_environment(environment_id, parameters)
    if tried:
        try_environment(environment_id, parameters, spec)
    return spec


def _words(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
