"""Moments of an optimiser that have nothing left to remember become zero."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: how a thread computes would stay with the threads that tests after this one start. One gradient, then
# none, as of a unit that no longer fires; the share's thread is started afterwards, as in the learner.
_REMEMBERED = """
import contextlib, sys
import torch
from rljob.algorithms.compute import denormals_as_zero
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
def tenth():
    return float((torch.full((64,), 2e-38) * 0.1).max())
with denormals_as_zero() if sys.argv[1] == "flushed" else contextlib.nullcontext():
    weight = torch.ones(64, requires_grad=True)
    optimizer = torch.optim.Adam([weight], fused=True)
    for update in range(1000):
        weight.grad = torch.full((64,), float(update == 0))
        optimizer.step()
    print(float(optimizer.state[weight]["exp_avg"].max()), DataParallelThreads(2).map(lambda _: tenth(), [0, 1])[1])
print(tenth())
"""


def remembered(how: str) -> list[float]:
    answer = subprocess.run([sys.executable, "-c", _REMEMBERED, how], check=True, capture_output=True, text=True)
    return [float(number) for number in answer.stdout.split()]


def test_a_mean_of_zeros_becomes_zero_in_every_thread_of_a_learner() -> None:
    if min(remembered("kept")) == 0.0:
        pytest.skip("this processor has no such numbers")
    *meanwhile, afterwards = remembered("flushed")
    assert meanwhile == [0.0, 0.0]
    assert afterwards > 0.0, "the thread computes as before"
