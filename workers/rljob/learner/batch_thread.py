"""The thread that keeps batches ready for the training loop: what all sources of batches have in common."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rljob.learner.staging import on_current_stream
from rljob.threads import SupervisedThread, Waker


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ready:
    """A batch to learn from, on the device once ``ready`` has happened; its ``staging`` is handed back with it.

    ``policy_version`` int64, of any shape: the version that chose each action, 0 for none. ``origins``: while the process is
    profiled, the segments that are used for the first time. ``played``: steps and raw frames of all actors when it was put
    together.
    """

    batch: Any
    policy_version: NDArray[np.int64]
    staging: Any
    ready: Any = None
    origins: Sequence[str] = ()
    played: tuple[int, int] = 0, 0

    def wait(self) -> Any:
        """The batch itself, once the current stream waits for its copy; the host does not."""
        return on_current_stream(self.batch, self.ready)


B = TypeVar("B", bound=Ready)


class BatchThread(ABC, Generic[B]):
    """Runs ``_run`` on a thread of its own, once ``_thread`` is started; its end is raised by ``_taken``, as ``ThreadEnded``.

    Public methods, and ``_taken``, are for the training loop's thread.
    """

    def __init__(self, name: str) -> None:
        self._ready: deque[B] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._waker = Waker()
        self._thread = SupervisedThread(name, self._run, until=self._stop, ended=self._wake_loop)

    @property
    def ready_batches(self) -> int:
        return len(self._ready)

    def idle(self, seconds: float) -> None:
        """Training stands still for so long."""
        time.sleep(seconds)

    def close(self) -> None:
        """Stop the thread and release its sockets."""
        self._stop.set()
        self._waker.wake()
        self._wake_loop()
        self._thread.close(timeout_seconds=5.0)
        self._waker.close()

    @abstractmethod
    def _run(self) -> None:
        """Make batches until ``_stop`` is set; a call of ``_waker.wake`` is to end a wait. Release the sockets then."""

    def _hand_over(self, batch: B) -> None:
        """The thread has made a batch ready."""
        with self._changed:
            self._ready.append(batch)
            self._changed.notify()

    def _taken(self, timeout_seconds: float) -> B | None:
        """The oldest ready batch, or None after ``timeout_seconds`` without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._thread.failed or self._stop.is_set(), timeout_seconds)
            self._thread.check()
            return self._ready.popleft() if self._ready else None

    def _wake_loop(self) -> None:
        with self._changed:
            self._changed.notify_all()
