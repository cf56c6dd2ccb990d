"""One rank of a learner as a process: ``python -m tests.support.rank RANK COUNT PORT WHAT FILE``, which does ``WHAT(ranks)`` and
stores the answer."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rljob.learner.ranks import Meeting

from tests.support.ports import free_ports


def answers(what: str, folder: Path, count: int = 2) -> list[Any]:
    """What each rank answers to ``module:function``."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "tests.support.rank"]
    ranks = [
        subprocess.Popen([*words, str(rank), str(count), str(port), what, str(folder / f"{rank}.pt")])
        for rank in range(count)
    ]
    try:
        assert [rank.wait(90) for rank in ranks] == [0] * count
    finally:
        for rank in ranks:
            rank.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, count, port = map(int, sys.argv[1:4])
    meeting = Meeting(rank, count, ("127.0.0.1", port), 1, {})
    meeting.agree()
    module, _, name = sys.argv[4].partition(":")
    torch.save(getattr(importlib.import_module(module), name)(meeting.group(torch.device("cpu"))), sys.argv[5])
