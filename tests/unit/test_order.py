"""Which process runs which tests (tests/conftest.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
PLAIN = "import pytest\n@pytest.mark.parametrize('number', range(3))\ndef test_plain(number): pass\n"
ENDS_ITS_PROCESS = "import os\ndef test_before(): pass\ndef test_ends(): os.abort()\ndef test_after(): pass\n"


def test_a_test_that_ends_its_process_fails_once_and_all_others_are_run(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    for number in range(24):
        (tmp_path / f"test_{number:02}.py").write_text(ENDS_ITS_PROCESS if number == 18 else PLAIN)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RLJOB_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider", tmp_path],
        env=clean | {"PYTHONPATH": str(TESTS.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 failed, 71 passed" in done.stdout, done.stdout
