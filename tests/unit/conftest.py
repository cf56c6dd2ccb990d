"""What every unit test begins with."""

import sys

import pytest


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a user's file is put on the path by loading it, and taken off after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
