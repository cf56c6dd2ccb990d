"""Environments in worker processes: Gymnasium's AsyncVectorEnv, plus what it leaves to its user when a worker dies."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import queue
import resource
import signal
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker

from rljob.child import beginning_servers
from rljob.envs.base import EnvironmentProblem, seed_generators
from rljob.loading import short

log = logging.getLogger(__name__)

_LOST = (EOFError, BrokenPipeError, ConnectionResetError)
_LAST_WORDS_SECONDS = 0.2


class ProcessVector(AsyncVectorEnv):
    """One process an environment, observations through shared memory, SAME_STEP.

    Workers come from a fork server, because the caller holds threads (ZeroMQ, torch) whose locks a plain fork would copy
    in whatever state they are. When a worker dies or an environment raises, every other worker is ended and
    EnvironmentProblem names the environment; the object is then closed. ``seed``: of what environments draw while they are made.
    """

    def __init__(self, environment_id: str, makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]], seed: int) -> None:
        self._environment_id = environment_id
        self.processes = []
        self.parent_pipes = []
        # Asked before any is begun: the fork server ends with a traceback where it is refused a file in the middle of a start. A
        # worker costs this process up to three, and the server and a start a few.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 < limit < len(os.listdir("/proc/self/fd")) + 16 + 3 * len(makers):
            raise EnvironmentProblem(
                f"environment {short(environment_id)!r}: its copies in processes of their own need more open files than "
                f"this process may have, {limit} (ulimit -n); raise that, or make fewer copies (actors.envsPerActor)"
            )
        # No module of a user's, which may begin threads; workers need not load what is loaded here.
        multiprocessing.set_forkserver_preload(["rljob.api", "rljob.envs.single", __name__])
        try:
            with beginning_servers():
                super().__init__(
                    makers,
                    shared_memory=True,
                    context="forkserver",
                    daemon=False,  # a simulator may have processes of its own
                    worker=functools.partial(_work, seed),
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except Exception as error:  # noqa: BLE001 (workers that were begun have to end)
            self._fail(error)

        # Also where this is never closed: Python waits at its end for processes that are no daemons.
        util.Finalize(self, _end, (self.processes, self.parent_pipes), exitpriority=0)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            return super().reset(seed=seed, options=options)
        except Exception as error:  # noqa: BLE001 (whatever it was, the workers can't be asked for anything any more)
            self._fail(error)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        try:
            return super().step(actions)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fail(error)

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise what a worker raised, itself; Gymnasium would print its traceback and wrap it in a second one."""
        if all(successes):
            return
        _, _, error, trace = self.error_queue.get()
        log.debug("%s", trace)
        raise error

    def _fail(self, error: BaseException) -> NoReturn:
        dead = self._dead_worker() if isinstance(error, _LOST) else None
        if dead is not None:
            with contextlib.suppress(queue.Empty):
                _, _, error, _ = self.error_queue.get(timeout=_LAST_WORDS_SECONDS)
                dead = None
        self.closed = True
        _end(self.processes, self.parent_pipes)
        if dead is not None:
            index, exit_code = dead
            how = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
            raise EnvironmentProblem(
                f"environment {index} of {short(self._environment_id)!r}: its worker process ended ({how}); the other "
                f"{len(self.processes) - 1} were stopped",
                environment=index,
            ) from error
        raise error

    def _dead_worker(self) -> tuple[int, int] | None:
        """(index, exit code) of the first worker found dead; a pipe may break a moment before its process is gone."""
        wait([process.sentinel for process in self.processes], timeout=0.5)
        codes = ((index, process.exitcode) for index, process in enumerate(self.processes))
        return next(((index, code) for index, code in codes if code is not None), None)


def _end(processes: Sequence[BaseProcess], pipes: Sequence[Connection[Any, Any] | None]) -> None:
    """End the workers that were begun; the pipes are those to them, and None once they are closed."""
    begun = [process for process in processes if process.ident is not None]
    for process in begun:
        process.terminate()
    for process in begun:
        process.join(timeout=0.2)
        if process.is_alive():
            process.kill()
            process.join()
    for pipe in pipes:
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _work(seed: int, index: int, *arguments: Any) -> None:
    """Gymnasium's worker, which by itself does not tell why it could not make its environment."""
    # Ctrl-C reaches the whole process group; only the owner decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seed_generators(seed + index)
    try:
        _async_worker(index, *arguments)
    except EnvironmentProblem as problem:
        arguments[4].put((index, type(problem), problem, ""))  # Gymnasium's queue of errors
