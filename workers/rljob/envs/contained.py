"""A user's environment sets nothing for the role that it runs in."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def contained() -> Iterator[None]:
    """Code of a user's within: how many threads torch has, and which messages are logged, is the same after it as before."""
    torch, disabled = sys.modules.get("torch"), logging.root.manager.disable
    threads = torch.get_num_threads() if torch is not None else 0
    try:
        yield
    finally:
        if torch is not None and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if logging.root.manager.disable != disabled:
            logging.disable(disabled)
