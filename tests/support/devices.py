"""Devices that a test runs on: the CPU always, a GPU where there is one; and a stand-in for CUDA graphs where there is none."""

from collections.abc import Callable

import pytest
import torch
from rljob.learner.optim.on_device import WARM_UPS, Learned

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")

DEVICES = [
    pytest.param(torch.device("cpu"), id="cpu"),
    pytest.param(torch.device("cuda"), id="cuda", marks=needs_cuda),
]


class LateEvent:
    """What a CUDA event is to those who only ask it: recorded now, true once the test says so by ``happen``."""

    def __init__(self) -> None:
        self.recorded = False
        self.happened = False
        self.waited_for = False

    def record(self, stream: object = None) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.happened

    def happen(self) -> None:
        self.happened = True

    def synchronize(self) -> None:
        assert self.recorded, "nothing would ever end this wait"
        self.waited_for = self.waited_for or not self.happened
        self.happened = True


class LateEvents:
    """Makes such events and keeps them, oldest first."""

    def __init__(self) -> None:
        self.made: list[LateEvent] = []

    def __call__(self) -> LateEvent:
        self.made.append(LateEvent())
        return self.made[-1]


class ByCalling:
    """Replays by calling the function again, and puts what it gives where it gave it first, as a graph does.

    It shows what surrounds a graph: the copies into its inputs, the check, the choice, the state put back. It can't show what a
    real capture shows: that nothing in an update waits for the device, and that no number of the host's is frozen in it.
    """

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, work: Callable[[], Learned]) -> tuple[Learned, Callable[[], object]]:
        for _ in range(WARM_UPS):
            work()
        given = Learned(*(None if tensor is None else tensor.clone() for tensor in work()))  # type: ignore[arg-type]

        def replay() -> None:
            self.replays += 1
            for own, new in zip(given, work(), strict=True):
                if own is not None and new is not None:
                    own.copy_(new)

        return given, replay
