from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def toys_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``toys:name`` importable, in worker processes too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
