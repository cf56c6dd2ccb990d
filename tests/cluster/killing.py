"""Kills an operator's process at one of its awaits: a fork of this one takes turns until SIGKILL ends it there.

Nothing of a process that is killed runs any more: no `finally`, no answer is read, and its connections are the kernel's to close.
What it has asked of the API server may happen, now or a moment later, or not.
"""

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from typing import Any


class Life:
    """The life of one process: it ends at the moment of this number. Before and after a task waits there is a moment each,
    while ``counts`` is set."""

    def __init__(self, ends_at: int) -> None:
        self._ends_at, self._moments = ends_at, 0
        self.counts = False

    def task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        """The loop's task factory."""
        return asyncio.Task(_Mortal(coroutine, self), loop=loop, **options)

    def moment(self) -> None:
        """One has come."""
        if not self.counts:
            return
        self._moments += 1
        if self._moments == self._ends_at:
            os.kill(os.getpid(), signal.SIGKILL)


class _Mortal(Coroutine[Any, Any, Any]):
    def __init__(self, inner: Coroutine[Any, Any, Any], life: Life) -> None:
        self._inner, self._life = inner, life

    def send(self, value: Any) -> Any:
        self._life.moment()
        waits_for = self._inner.send(value)
        self._life.moment()
        return waits_for

    def throw(self, *problem: Any) -> Any:
        self._life.moment()
        return self._inner.throw(*problem)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def killed_at(moment: int, live: Callable[[Life], Coroutine[Any, Any, None]]) -> bool:
    """Whether a process that lives so was killed at this moment; False where it was through before. Not within a running loop."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            life = Life(moment)
            with asyncio.Runner() as runner:
                runner.get_loop().set_task_factory(life.task)
                runner.run(live(life))
            code = 0
        except BaseException:  # noqa: BLE001  whatever it was, the fork must not go on as a second run of the tests
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "a turn has failed by itself"
    return False
