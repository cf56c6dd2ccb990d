"""`make fuzz`: every randomised test with fresh draws, round after round, until the time is over or a round has found something.

Each round is one pytest with one seed; with that seed it can be run again. Exits 1 if something was found.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent


def play_round(seed: int, until: float, tests: list[str]) -> int:
    """Pytest's exit code after one round. ``until``: the monotonic second after which no further test begins."""
    print(f"seed {seed}", flush=True)
    environment = os.environ | {"RLJOB_FUZZ_SEED": str(seed), "RLJOB_FUZZ_UNTIL": str(until)}
    command = [sys.executable, "-m", "pytest", f"--hypothesis-seed={seed}", "--no-header", "-rN", *tests]
    return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    """Parse the command line and play the rounds that it asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=[str(TESTS)], help="files, folders or single tests")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long new tests begin (default: 300)")
    parser.add_argument("--seed", type=int, help="play one round with this seed, to its end")
    options = parser.parse_args()
    if options.seed is not None:
        return play_round(options.seed, float("inf"), options.tests)
    until, rounds = time.monotonic() + options.seconds, 0
    while rounds == 0 or time.monotonic() < until:
        code = play_round(secrets.randbelow(1 << 32), until, options.tests)
        if code != 0:
            return code
        rounds += 1
    print(f"nothing found in {rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
