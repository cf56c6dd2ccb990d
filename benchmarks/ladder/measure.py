"""A rung, trained until a watch has seen enough: a loop in a process of its own, or `rljob run`. And the peer of the first."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import torch
import yaml
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.compute import denormals_as_zero
from rljob.threads import usable_cores

from benchmarks.gpu import jobs
from benchmarks.ladder import rungs
from benchmarks.ladder.loops import SynchronousLoop
from benchmarks.ladder.readings import Reading, Watch
from benchmarks.ladder.rungs import Rung
from tests.support.paths import ROOT

W = TypeVar("W", bound=Watch)

_TURNS_TRIED = 40
_GAMES_OF_A_RECORD = 20
"""A learner's record has the mean return of so many games."""


def trained(rung: Rung, watch: W, seed: int, fill: int, max_seconds: float) -> W:
    """``watch``, once it has seen enough; what trains has ended. ``max_seconds``: of `rljob run`, with its start."""
    if rung.apart:
        return _apart(rung, watch, seed, fill, max_seconds)
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn")
    ) as process:  # so that nothing of one is left for the next
        return process.submit(in_one_process, rung, watch, seed, fill).result()


def in_one_process(rung: Rung, watch: W, seed: int, fill: int) -> W:
    """As ``trained``, in this process, with one torch thread or one a core, whichever is faster here; the result tells."""
    with denormals_as_zero():
        loop = SynchronousLoop(rung, seed, fill)
        while loop.updater.updates == 0:
            loop.turn()
        threads = faster_threads(loop)
        torch.set_num_threads(threads)
        while not watch.note(loop.reading()):
            loop.turn()
    watch.result["threads"] = threads
    return watch


def faster_threads(loop: SynchronousLoop) -> int:
    """Torch's threads meet after each operation, and the operations of a small network are short: a second may cost more than it
    brings. The better of two tries each."""
    took = {1: math.inf, usable_cores(): math.inf}
    for threads in (*took, *took):
        torch.set_num_threads(threads)
        loop.turn()
        began = time.perf_counter()
        for _ in range(_TURNS_TRIED):
            loop.turn()
        took[threads] = min(took[threads], time.perf_counter() - began)
    return min(took, key=took.__getitem__)


def _apart(rung: Rung, watch: W, seed: int, fill: int, max_seconds: float) -> W:
    games = TrainingGames(rung, seed)
    noted, enough = 0, False

    def on_look(records: Sequence[dict[str, Any]]) -> bool:
        nonlocal noted, enough
        points = [record for record in records if "steps_total" in record]
        new, noted = points[noted:], len(points)
        if new and not enough:
            for point in new:
                games.note(point)
            enough = watch.note(reading_of(new[-1], descendants_cpu_seconds(), games.mean_return))
        return enough

    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "job.yaml"
        manifest.write_text(yaml.safe_dump(rungs.job(rung, seed, fill)))
        jobs.run(manifest, Path(folder) / "run", (), max_seconds, on_look)
    return watch


def reading_of(point: dict[str, Any], cpu_seconds: float, mean_return: float | None) -> Reading:
    """What a learner's record says."""
    return Reading(
        seconds=point["elapsed_seconds"],
        frames=int(point["steps_total"]),
        samples=int(point["updates"] * point["batch_size"]),
        cpu_seconds=cpu_seconds,
        mean_return=mean_return,
    )


class TrainingGames:
    """The mean of the last hundred games of the greedier half of the actor's environments, from records that have the mean of
    the last twenty: five of them that lie far enough apart to share no game."""

    def __init__(self, rung: Rung, seed: int) -> None:
        params = rungs.learning_parameters(rung)
        epsilons = ApeXDQN().exploration(params, 0, 1, rung.environments)
        greedy = int((epsilons <= np.sort(epsilons)[(len(epsilons) - 1) // 2]).sum())
        # Environments end games at different rates: two more are waited for.
        self._apart = math.ceil(_GAMES_OF_A_RECORD * rung.environments / greedy) + 2
        self._means: list[tuple[float, float]] = []

    def note(self, point: dict[str, Any]) -> None:
        """Take a record in."""
        games, mean = point.get("episodes_total") or 0.0, point.get("mean_return")
        if mean is None or point.get("games", 0) < _GAMES_OF_A_RECORD:
            return
        if not self._means or games - self._means[-1][0] >= self._apart:
            self._means.append((games, mean))

    @property
    def mean_return(self) -> float | None:
        """None before there were a hundred."""
        newest = self._means[-rungs.GAMES // _GAMES_OF_A_RECORD :]
        full = len(newest) * _GAMES_OF_A_RECORD == rungs.GAMES
        return sum(mean for _, mean in newest) / len(newest) if full else None


def descendants_cpu_seconds() -> float:
    """Processor time of all processes that this one has started, so far as they live."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            total += times.user + times.system
    return total


def peer(python: str, seconds: float, warm_up_seconds: float, fill: int, seed: int, threads: int) -> dict[str, float]:
    """Stable-Baselines3's DQN on the first rung's terms: its frames, network and batch, an update a frame."""
    options = {
        "--seconds": seconds,
        "--warm-up-seconds": warm_up_seconds,
        "--threads": threads,
        "--seed": seed,
        "--frame-size": 42,
        "--network": "Compact",
        "--train-freq": 1,
        "--learning-starts": fill,
    }
    words = [str(word) for option in options.items() for word in option]
    script = ROOT / "benchmarks" / "peers" / "sb3_dqn.py"
    answer = subprocess.run([python, str(script), *words], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    return {
        "frames_per_second": found["steps_per_second"],
        "frames_per_cpu_second": found["steps_per_second"] / found["cores"],
        "samples_per_frame": 32 * found["updates_per_second"] / found["steps_per_second"],
        "cores": found["cores"],
        "threads": threads,
    }
