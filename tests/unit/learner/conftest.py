"""What every test of the learner begins with."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Those who share an update among threads set how many torch takes for each."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def compiled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled here is compared and not timed, and g++ takes as long again to make it fast."""
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")


@pytest.fixture
def traced_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile traces is called as it was traced: its C++ compiler, which takes ten seconds, changes nothing of when
    a graph is made and of what is fixed in it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
