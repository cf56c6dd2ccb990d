"""Devices that a test runs on: the CPU always, a GPU where there is one."""

from __future__ import annotations

import pytest
import torch

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
