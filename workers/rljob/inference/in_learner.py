"""An inference server inside the learner's process: a thread, and the learner's latest weights by reference."""

import threading
from types import TracebackType
from typing import Any, Self

import torch

from rljob.inference.server import InferenceServer
from rljob.threads import SupervisedThread
from rljob.weights.exchange import WeightServer
from rljob.weights.flat import Weights


class LatestWeights:
    """What the learner published last, as a source: no socket and no copy, since published weights never change."""

    answered = True

    def __init__(self, published: WeightServer) -> None:
        self._published = published
        self._seen: Weights | None = None

    def poll(self) -> Weights | None:
        """The latest weights if they are others than the last time, else None."""
        latest = self._published.latest
        if latest is self._seen:
            return None
        self._seen = latest
        return latest


class InferenceThread:
    """Runs ``server`` beside the training loop, as a context manager; where it ends, so does the loop (`rljob.threads`).

    torch computes outside the interpreter's lock, so the two meet only between their operations; they do share the cores. The
    server computes in its own thread alone, as an actor would.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = SupervisedThread("inference", self._run, until=self._stop)

    def status(self) -> dict[str, Any]:
        """The server's part of the status document."""
        return self._server.status()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.close(timeout_seconds=5.0)

    def _run(self) -> None:
        # For this thread only. With a second one a few rows of a small network take as long as the scheduler lets that one
        # wait: 56 ms instead of 0.3 on a busy machine.
        torch.set_num_threads(1)
        self._server.run(self._stop)
