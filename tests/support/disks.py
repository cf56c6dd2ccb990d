"""Small disks to fill."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 4 MiB, or of the size that the test asks for; skips the test where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", f"size={getattr(request, 'param', '4m')}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a tmpfs can't be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Take the last page of the file system with this file."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
