"""What a tracker costs a run whose server works, hangs, answers 500 or is absent, and whether every point arrives once.

    python -m benchmarks.tracking --rounds 3 --seconds 40      # needs the extra [wandb]

Each round trains CartPole with PPO once without a tracker, and once with W&B's client for each server
(`tests/support/wandb_server.py`, which is not W&B's own). At half of a run its tracker is killed by SIGKILL; where the server
does not work, it does from two thirds on. What is not there when the run has ended is sent by `rljob track`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rljob.telemetry.recorder import METRICS_FILE, read_records
from rljob.tracking.points import Follower

from benchmarks.common import machine, report
from tests.support.local_run import ENDLESS
from tests.support.wandb_server import WandbServer

EXAMPLE = Path(__file__).parents[1] / "manifests" / "examples" / "cartpole-ppo.yaml"
SERVERS = ("none", "ok", "hang", "fail", "absent")
LOADED_SECONDS = 10.0
"""After so long a run trains at its speed."""


def trained(folder: Path, server: str, seconds: float) -> dict[str, Any]:
    """One run of ``seconds`` and what came of its points."""
    wandb = WandbServer()
    port = wandb.port
    if server in ("hang", "fail"):
        wandb.mode = server
    if server == "absent":
        wandb.close()
    variables = os.environ | {"WANDB_BASE_URL": wandb.url, "WANDB_API_KEY": "0" * 40}
    tracked = [] if server == "none" else ["--set", "tracking.wandb.project=p"]
    command = [sys.executable, "-m", "rljob_operator", "run", str(EXAMPLE), "--run-dir", str(folder)]
    began = time.monotonic()
    run = subprocess.Popen(
        [*command, "--max-seconds", str(seconds), *ENDLESS, *tracked], env=variables, stdout=subprocess.DEVNULL
    )
    time.sleep(seconds / 2)
    if tracked:
        with contextlib.suppress(OSError, ValueError, KeyError):  # its server is away, and it waits to be started again
            os.kill(json.loads((folder / "tracking" / "wandb.json").read_text())["pid"], signal.SIGKILL)
    time.sleep(seconds / 6)
    if server == "absent":
        wandb = WandbServer(port)
    wandb.mode = "ok"
    again = time.monotonic()
    returncode = run.wait()
    ended = time.monotonic()
    records = [record for record in read_records(folder / METRICS_FILE) if "kind" not in record]
    first = next(record for record in records if record["elapsed_seconds"] > LOADED_SECONDS)
    frames, passed = (records[-1][name] - first[name] for name in ("raw_frames", "elapsed_seconds"))
    found: dict[str, Any] = {"steps_per_second": frames / passed, "run_ended_with": returncode}
    if tracked:
        wanted = [point.time_unix for point in Follower(folder / METRICS_FILE).read(10**6)]
        at_the_end = sum(map(len, wandb.rows.values()))
        if at_the_end < len(wanted):
            subprocess.run(
                [sys.executable, "-m", "rljob_operator", "track", str(folder)],
                env=variables,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        rows = [row["_timestamp"] for each in wandb.rows.values() for row in each]
        found |= {
            "points": len(wanted),
            "there_when_the_run_ended": at_the_end,
            "seconds_from_the_servers_return_to_the_runs_end": ended - again,
            "each_once_in_order": rows == wanted,
        }
    wandb.close()
    return {**found, "wall_seconds": ended - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    report("machine", **machine())
    rates: dict[str, list[float]] = {server: [] for server in SERVERS}
    with tempfile.TemporaryDirectory() as base:
        for round in range(options.rounds):
            for server in SERVERS[round % 2 :] + SERVERS[: round % 2]:
                found = trained(Path(base) / f"{round}-{server}", server, options.seconds)
                rates[server].append(found["steps_per_second"])
                report("tracking_run", server=server, round=round, **found)
    plain = rates["none"]
    for server in SERVERS[1:]:
        shares = [rate / without for rate, without in zip(rates[server], plain, strict=True)]
        report("tracking", server=server, median_share_of_untracked_steps=statistics.median(shares), shares=shares)


if __name__ == "__main__":
    main()
