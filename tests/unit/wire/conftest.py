"""Well-formed messages of every kind, and the folder's own helpers by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.wire.message import Message

sys.path.insert(0, str(Path(__file__).parent))
from mutations import well_formed


@pytest.fixture(scope="session")
def make_message() -> Callable[..., Message]:
    """`make(kind, rows=5, optional=True, seed=0)`: a message of that kind which the schema allows."""
    return well_formed
