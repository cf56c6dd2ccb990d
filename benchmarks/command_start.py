"""Processor seconds until an `rljob` command has said what it has to say, where that takes no work: what its start costs.

    python -m benchmarks.command_start [--rounds 9] [--beside CHECKOUT]

With ``--beside`` another checkout's too, by the same Python, in rounds that alternate. One JSON line a command: medians.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.common import machine, report
from tests.support.paths import ROOT

COMMANDS = {
    "version": ["--version"],
    "help": ["--help"],
    "get": ["get", "--help"],
    "validate": ["validate", "manifests/examples/cartpole-ppo.yaml"],
    "actor": ["worker", "actor", "--help"],
}


def cpu_seconds(checkout: Path, words: list[str]) -> float:
    """Of one command, run from a checkout's sources."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'workers'}:{checkout / 'operator'}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rljob_operator", *words]
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    report("machine", **machine())
    checkouts = {"here": ROOT} | ({"beside": options.beside.resolve()} if options.beside is not None else {})
    for name, words in COMMANDS.items():
        taken: dict[str, list[float]] = {each: [] for each in checkouts}
        for number in range(options.rounds):
            for each in checkouts if number % 2 == 0 else reversed(checkouts):
                taken[each].append(cpu_seconds(checkouts[each], words))
        medians = {f"{each}_cpu_seconds": statistics.median(seconds) for each, seconds in taken.items()}
        report("command_start", command=name, **medians)


if __name__ == "__main__":
    main()
