"""The trial of an environment in a process of its own: one that ends its process, as a simulator that crashes does, ends the
trial alone, and its user reads what has happened."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from rljob.envs.errors import EnvironmentProblem
from rljob.envs.target import AtariGame, RegisteredEnvironment, resolve
from rljob.envs.trial import try_environment
from rljob.loading import place_of, short
from rljob.threads import start_contained

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters

_GYMNASIUMS_OWN: Final = "gymnasium."
_SLOW_SECONDS: Final = 20.0


def try_environment_apart(
    environment_id: str, parameters: EnvironmentParameters, *, slow_seconds: float = _SLOW_SECONDS
) -> None:
    """`try_environment` in a process that is begun for it, which takes about a second; Gymnasium's own environments are tried
    here. A process that ends before it has told anything is begun once more. A trial may take its time, as a simulator does that
    loads; where it is stands on stderr every ``slow_seconds``. Raises EnvironmentProblem."""
    if _is_trusted(environment_id, parameters):
        try_environment(environment_id, parameters)
        return
    ended = 0
    for _ in range(2):
        told, ended = _tried(environment_id, parameters, slow_seconds)
        if told == "":
            return
        if told is not None:
            raise EnvironmentProblem(told)
    raise EnvironmentProblem(
        f"environment {short(environment_id)!r}: the process that tried it ended by {_words(ended)} within its "
        "first steps, twice; what it printed is above"
    )


def _is_trusted(environment_id: str, parameters: EnvironmentParameters) -> bool:
    target = resolve(environment_id, parameters)
    if isinstance(target, AtariGame):
        return True
    if not isinstance(target, RegisteredEnvironment):
        return False
    return str(target.entry_point).startswith(_GYMNASIUMS_OWN)


def _tried(environment_id: str, parameters: EnvironmentParameters, slow_seconds: float) -> tuple[str | None, int]:
    """(the problem, empty for none, None where the process ended before it told; its exit code)."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try_and_tell, args=(theirs, environment_id, parameters, slow_seconds))
    process.start()
    theirs.close()
    told = None
    try:
        with ours, suppress(EOFError):
            told = str(ours.recv())
        process.join()
    finally:
        process.kill()
        process.join()
    return told, process.exitcode or 0


def _try_and_tell(to: Connection, environment_id: str, parameters: EnvironmentParameters, slow_seconds: float) -> None:
    tried = threading.current_thread().ident or 0

    def say_where() -> None:
        for times in itertools.count(1):
            time.sleep(slow_seconds)
            where = place_of(sys._current_frames()[tried])
            long = f"its trial takes long, {times * slow_seconds:g} s so far, and is at {where}"
            sys.stderr.write(f"rljob: environment {short(environment_id)!r}: {long}\n")

    start_contained("slow-trial", say_where)
    try:
        try_environment(environment_id, parameters)
    except EnvironmentProblem as problem:
        to.send(str(problem))
    else:
        to.send("")


def _words(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
