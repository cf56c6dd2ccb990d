"""A real Redis for the tests of this folder, and writers that look at it often."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.replay import log_writer
from rljob.replay.embedded_redis import EmbeddedRedis


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_MEMORY_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(log_writer, "_ROOM_CHECK_SECONDS", 0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as started:
        yield started
