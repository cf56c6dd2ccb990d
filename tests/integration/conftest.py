"""A real S3 server, a small disk, and time: whole runs take longer than other tests, above all where others use the machine."""

from pathlib import Path

import pytest

from tests.support.disks import small_disk
from tests.support.s3_server import s3

__all__ = ["s3", "small_disk"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))
