"""Experiments without a learner: what kills do to their journal, what halving costs and finds, what a thousand trials and a
suggestion take.

    python -m benchmarks.experiments killed --kills 1000
    python -m benchmarks.experiments operator         # killed at every write of each case
    python -m benchmarks.experiments halving --seeds 100
    python -m benchmarks.experiments thousand
    python -m benchmarks.experiments suggestions      # needs the extra [optuna]

Runs are simulated (`tests/support/experiment_world.py`): they have scores and play nothing. The core, the journal, and with
``thousand`` the files on the disk are the real ones.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from rljob.api.experiment_check import parse_experiment
from rljob_operator.experiments.decide import chosen, decide
from rljob_operator.experiments.journal import replayed
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.local.experiment_runs import JOURNAL_FILE, ExperimentFolder
from rljob_operator.verbs.experiment_page import write_experiment_report

from benchmarks.common import machine, report
from tests.support.experiment_cluster import World as Cluster
from tests.support.experiment_world import CASES, HALVING, World, document, learning, lived, spread
from tests.unit.operator.experiments.test_on_cluster import CASES as ON_CLUSTER

RATE, GAMMA = "algorithm.learningRate", "algorithm.gamma"
SPACE = {RATE: {"logUniform": {"min": 1e-5, "max": 1e-1}}, GAMMA: {"uniform": {"min": 0.9, "max": 0.999}}}


def killed(kills: int) -> None:
    """The controller is killed at each step of each case in turn, until it was so often; the journal must be a calm life's."""
    done, differs = 0, 0
    calm = {case: World(experiment, spread, fails=fails) for case, (experiment, fails) in CASES.items()}
    for world in calm.values():
        world.controller()
    began = time.process_time()
    for at in itertools.count(1):
        for case, (experiment, fails) in CASES.items():
            if done == kills:
                report(
                    "experiment_killed",
                    kills=done,
                    journals_that_differ=differs,
                    cpu_seconds=time.process_time() - began,
                )
                return
            world = World(experiment, spread, kill_at=1 + (at - 1) % calm[case].steps, fails=fails)
            lived(world)
            ours, theirs = (world.text, world.sent, world.played), (calm[case].text, calm[case].sent, calm[case].played)
            done, differs = done + 1, differs + (ours != theirs)


def operator() -> None:
    """The operator is killed at every write of each case: the journal, the jobs and the judgements must be a calm life's."""
    for case, (experiment, fails) in ON_CLUSTER.items():
        began, calm = time.process_time(), Cluster(experiment, spread, fails=fails)
        ended, differs = calm.live(), 0
        for at in range(1, calm.moments + 1):
            world = Cluster(experiment, spread, kill_at=at, fails=fails)
            ours = world.live(), world.text, world.frames, world.judged
            differs += ours != (ended, calm.text, calm.frames, calm.judged)
        seconds = time.process_time() - began
        report("experiment_operator_killed", case=case, kills=calm.moments, differ=differs, cpu_seconds=seconds)


def halving(seeds: int) -> None:
    """27 trials, factor 3: the share of the frames of all that are played, and where the best of all is found."""
    shares, places = [], []
    for seed in range(seeds):
        curve, true = learning(seed)
        world = World(document(27, prune=HALVING, parallelism=4), curve)
        ranking = [ranked.trial for ranked in lived(world).ranking()]
        shares.append(world.played / (27 * 9000))
        places.append(ranking.index(max(range(27), key=lambda trial, true=true: true[trial])))
    report(
        "experiment_halving",
        seeds=seeds,
        median_share_of_frames=statistics.median(shares),
        largest_share_of_frames=max(shares),
        best_is_first=places.count(0),
        best_is_among_three=sum(place < 3 for place in places),
    )


def finished(opened: ExperimentFolder, scores: Iterator[float]) -> None:
    """All runs get a score until the experiment has ended."""
    while True:
        while (decision := decide(opened.state)) is not None:
            opened.add(decision)
            opened.store()
        if opened.state.end is not None:
            return
        run = opened.state.active[0]
        about = {"trial": run.trial, "seed": run.seed, "rawFrames": opened.state.known.rungs[run.rung]}
        opened.add(
            {"kind": "Score", **about, "mean": next(scores), "standardError": 1.0, "episodes": 100, "solved": False}
        )
        opened.store()


def thousand() -> None:
    """A thousand trials with halving: memory, files, and the time of a line, of a resume and of the page."""
    experiment = document(1000, search={"random": {"trials": 1000}, "parameters": SPACE}, prune=HALVING, parallelism=50)
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        parse_experiment(document(2))  # so that what is loaded once does not count
        gc.collect()
        before, began, wall = psutil.Process().memory_info().rss, time.process_time(), time.monotonic()
        opened = ExperimentFolder(folder)
        opened.take(experiment)
        finished(opened, (float(n * 37 % 1009) for n in itertools.count()))
        opened.close()
        seconds, wall = time.process_time() - began, time.monotonic() - wall
        grown = psutil.Process().memory_info().rss - before
        lines = (folder / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
        began = time.process_time()
        state = replayed(lines)
        resumed = time.process_time() - began
        began = time.process_time()
        page = write_experiment_report(folder)
        report(
            "experiment_of_a_thousand_trials",
            lines=len(lines),
            runs_started_once=len(state.runs) == 1000,
            journal_bytes=sum(map(len, lines)),
            status_bytes=(folder / "status.json").stat().st_size,
            grown_mib=grown / 2**20,
            cpu_seconds=seconds,
            wall_seconds=wall,
            resume_cpu_seconds=resumed,
            page_cpu_seconds=time.process_time() - began,
            page_bytes=page.stat().st_size,
        )


def suggestions() -> None:
    """CPU time of a suggestion after so many trials, and of the replay of a journal of a thousand."""
    for parameters in (1, 2, 8):
        space: dict[str, Any] = dict(itertools.islice(SPACE.items(), parameters))
        names = ("entropyCost", "ppo.gaeLambda", "valueCost", "ppo.clipRange", "ppo.targetKl", "evaluationWeightsDecay")
        space |= {
            f"algorithm.{name}": {"uniform": {"min": 0.1, "max": 0.9}} for name in names[: max(0, parameters - 2)]
        }
        search = {"tpe": {"trials": 1000}, "parameters": space}
        state = ExperimentState()
        state.apply({"kind": "Settings", "experiment": document(1000, search=search, parallelism=4)})
        for trial in range(1000):
            if trial in (100, 999):
                times = []
                for _ in range(6):
                    began = time.process_time()
                    chosen(state, trial)
                    times.append(time.process_time() - began)
                report(
                    "experiment_suggestion",
                    parameters=parameters,
                    trials=trial,
                    cpu_ms=1e3 * statistics.median(times[1:]),
                )
            drawn = dict(state.known.settings(trial))
            state.apply({"kind": "Start", "trial": trial, "seed": 1, "rawFrames": 9000, "set": drawn})
            score = {
                "mean": -abs(math.log10(drawn[RATE]) + 3),
                "standardError": 0.1,
                "episodes": 100,
                "rawFrames": 9000,
            }
            state.apply({"kind": "Score", "trial": trial, "seed": 1, "solved": False, **score})
    world = World(document(1000, search={"tpe": {"trials": 1000}, "parameters": SPACE}, parallelism=4), spread)
    began = time.process_time()
    world.controller()
    lived_seconds = time.process_time() - began
    began = time.process_time()
    replayed(world.text.splitlines(keepends=True))
    report(
        "experiment_of_a_thousand_suggestions",
        cpu_seconds=lived_seconds,
        replay_cpu_seconds=time.process_time() - began,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("killed", "operator", "halving", "thousand", "suggestions"))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    report("machine", **machine())
    if options.what == "killed":
        killed(options.kills)
    elif options.what == "operator":
        operator()
    elif options.what == "halving":
        halving(options.seeds)
    elif options.what == "thousand":
        thousand()
    else:
        suggestions()


if __name__ == "__main__":
    main()
