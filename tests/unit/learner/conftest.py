"""What every test of the learner begins with."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Those who share an update among threads set how many torch takes for each."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
