"""How tests are drawn and ordered (tests/conftest.py): `make fuzz` draws afresh and tells what repeats a finding."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DRAWING = """
import pathlib
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(st.integers(0, 10**9))
def test_hypothesis_draws(number):
    with pathlib.Path("drawn").open("a") as file:
        print(number, file=file)

def test_others_draw(any_seed):
    with pathlib.Path("drawn").open("a") as file:
        print(any_seed(7), file=file)

def test_nothing_is_drawn():
    pathlib.Path("plain").touch()
"""
FINDING = """
def test_luck(any_seed):
    assert any_seed(3) == 3
"""

PLAIN = "import pytest\n@pytest.mark.parametrize('number', range(3))\ndef test_plain(number): pass\n"
ENDS_ITS_PROCESS = "import os\ndef test_before(): pass\ndef test_ends(): os.abort()\ndef test_after(): pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tests with this project's rules for draws."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    return tmp_path


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RLJOB_", "PYTEST"))}
    clean["PYTHONPATH"] = str(TESTS.parent)  # the rules import from tests
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


def drawn(folder: Path, *command: str | Path) -> list[str]:
    done = run(folder, *command, "test_draws.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "drawn").read_text().split()
    (folder / "drawn").unlink()
    return lines


@pytest.mark.timeout(600)
def test_fixed_draws_are_the_same_and_fresh_ones_follow_their_seed(folder: Path) -> None:
    (folder / "test_draws.py").write_text(DRAWING)
    fixed = [drawn(folder, "-m", "pytest", "-p", "no:cacheprovider") for _ in range(2)]
    assert ("7" in fixed[0], fixed[0]) == (True, fixed[1])
    (folder / "plain").unlink()
    one, same, other = (drawn(folder, TESTS / "fuzz.py", "--seed", seed) for seed in ("11", "11", "12"))
    assert (one, len({tuple(fixed[0]), tuple(one), tuple(other)})) == (same, 3)
    assert not (folder / "plain").exists(), "a round is of randomised tests alone"


def test_rounds_go_on_until_the_time_is_over(folder: Path) -> None:
    (folder / "test_draws.py").write_text(DRAWING)
    done = run(folder, TESTS / "fuzz.py", "--seconds", "0.01", "test_draws.py")
    assert (done.returncode, "nothing found in 1 rounds" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_a_find_ends_it_and_can_be_seen_again(folder: Path) -> None:
    (folder / "test_luck.py").write_text(FINDING)
    found = run(folder, TESTS / "fuzz.py", "--seconds", "60", "test_luck.py")
    again = re.search(r"To see it again: make fuzz SEED=(\d+) TESTS=(\S+)", found.stdout)
    assert (found.returncode, again is not None) == (1, True), found.stdout
    assert run(folder, TESTS / "fuzz.py", "--seed", again[1], again[2]).returncode == 1


def test_a_test_that_ends_its_process_fails_once_and_all_others_are_run(folder: Path) -> None:
    for number in range(24):
        (folder / f"test_{number:02}.py").write_text(ENDS_ITS_PROCESS if number == 18 else PLAIN)
    done = run(folder, "-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider")
    assert "1 failed, 71 passed" in done.stdout, done.stdout
