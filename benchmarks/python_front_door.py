"""How long `import rljob` takes, how soon `rljob.run` returns, and whether `attach` finds the run of a program that was killed.

    python -m benchmarks.python_front_door [--rounds 5]

Each round is a program of its own that starts CartPole and is killed by SIGKILL as soon as it has; another one attaches, looks
and stops the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.common import report

EXAMPLE = Path(__file__).parents[1] / "manifests" / "examples" / "cartpole-ppo.yaml"
START = """
import time; began = time.perf_counter()
import rljob; imported = time.perf_counter()
run = rljob.run({example!r}, folder={folder!r}); returned = time.perf_counter()
import json, os, signal
print(json.dumps([imported - began, returned - imported]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
ATTACH = """
import json, time
import rljob
began = time.perf_counter()
run = rljob.attach({folder!r}); state = run.status.state; seen = time.perf_counter()
run.stop()
print(json.dumps([seen - began, state, run.status.state]))
"""


def program(text: str) -> list[object]:
    """What a program of its own prints as JSON, however it ends."""
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, check=False)
    found: list[object] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = []
    with tempfile.TemporaryDirectory() as base:
        for number in range(parser.parse_args().rounds):
            folder = f"{base}/{number}"
            started = program(START.format(example=str(EXAMPLE), folder=folder))
            rounds.append((*started, *program(ATTACH.format(folder=folder))))
    imports, returns, attaches, found, ended = zip(*rounds, strict=True)
    report(
        "python_front_door",
        import_seconds=round(median(imports), 4),
        run_returns_seconds=round(median(returns), 3),
        slowest_run_returns_seconds=round(max(returns), 3),
        attach_and_look_seconds=round(median(attaches), 3),
        found_after_kill=sorted(set(found)),
        ended=sorted(set(ended)),
        rounds=len(rounds),
    )


if __name__ == "__main__":
    main()
