"""What one more of each thing is said to bring to a throttled run, beside what giving it brings.

    python -m benchmarks.next_unit [--units actor core shard link] [--rounds 1] [--seconds 30]

Each unit is throttled in a run of its own, its gain is computed from that run's figures as the report and `rljob why` do, and
a second run has it. actor: simulators that sleep, so that cores are free, and a learner that is held to half an actor, one
and a half, and three. core: CartPole with Ape-X, all processes held to one core, then two. shard: a replay service that is
slow in each turn. link: unrolls of noise over TCP on a loopback device of a network namespace, which ``tc tbf`` holds to
``--megabits``, then to twice that; simulators sleep here too, since cores that all roles share would be the limit of a faster
link; it needs root. One JSON line a comparison.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rljob.telemetry.report import what_buys
from rljob.telemetry.run_folder import read_run_folder
from rljob.telemetry.sizing import NextUnits

from benchmarks.common import machine, report
from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES, SLOWED
from tests.support.slowed.sitecustomize import LEARNER_DELAY_FILE, REPLAY_DELAY_FILE

SETTLING_SECONDS = 10.0
_TCP = """
import rljob_operator.local.addresses as addresses
_of = addresses.Addresses.of.__func__
def _over_tcp(cls, run_dir, shards, servers=0):
    found, ports = _of(cls, run_dir, shards, servers), iter(range(42001, 42100))
    tcp = lambda: f"tcp://127.0.0.1:{next(ports)}"
    ingest, sample = (tuple(tcp() for _ in range(shards)) for _ in range(2))
    return addresses.Addresses(found.folder, ingest, sample, tcp(), tcp())
addresses.Addresses.of = classmethod(_over_tcp)
"""
"""For the controller's process: the roles meet as pods do, over TCP."""


class Setting(NamedTuple):
    """One run: its job, what is different in it, and the cores it may use."""

    job: Path
    sets: Sequence[str]
    delays: Mapping[str, float]
    cores: frozenset[int] | None = None
    prelude: str = ""


def run(setting: Setting, seconds: float) -> tuple[float, NextUnits]:
    """Steps a second over ``seconds`` after it has settled, and what one more of each would bring by the figures of that time."""
    with tempfile.TemporaryDirectory(prefix="next-unit-") as folder:
        files = {}
        for variable, delay in setting.delays.items():
            files[variable] = str(Path(folder) / variable)
            Path(files[variable]).write_text(str(delay))
        words = [word for item in setting.sets for word in ("--set", item)]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, setting.cores or before)
        try:
            running = LocalRun(
                setting.job,
                Path(folder) / "run",
                *ENDLESS,
                *words,
                environment=SLOWED | files,
                prelude=setting.prelude,
            )
        finally:
            os.sched_setaffinity(0, before)
        try:
            running.until_learning(updates=2)
            time.sleep(SETTLING_SECONDS)
            begun = time.time()
            time.sleep(seconds)
            whole = read_run_folder(running.run_dir)
        finally:
            running.close()
        # The report looks at the later half of all records: the settled ones, after as many that only make them the later half.
        later = [
            point for point in whole.points if point["time_unix"] > begun and point["time_unix"] <= begun + seconds
        ]
        first = whole.points.index(later[0]) - 1
        points = (*[whole.points[first]] * len(later), *later)
        alone = {"machine": {}} if setting.prelude else {}  # over a link the roles are as on machines of their own
        found = what_buys(dataclasses.replace(whole, points=points, facts={**whole.facts, **alone}))
        assert found is not None, "the figures of a run that learns tell"
        return found.steps_per_second, found


def compared(
    unit: str, name: str, without: Setting, having: Setting, seconds: float, rounds: int, **about: Any
) -> None:
    """Report the gain that is computed beside the one that is measured, medians of the rounds."""
    pairs = []
    for _ in range(rounds):
        rate, found = run(without, seconds)
        given, _ = run(having, seconds)
        share = next(each.share for each in found.units if each.name == name)
        pairs.append((rate, given, share, found.knee))
    rate, given, share, knee = (statistics.median(each) for each in zip(*pairs, strict=True))
    _report(unit, rate, given, share, **about, knee=knee)


def sleeping(game: str) -> list[str]:
    """IMPALA on simulators that take their time and no core."""
    return [
        f"spec.environment.id=tests.support.slow_game:{game}",
        f"spec.environment.kwargs={json.dumps({'step_seconds': 0.002})}",
        "spec.environment.backend=Sync",
        "spec.actors.envsPerActor=4",
        "spec.autoscaling.mode=Disabled",
        "spec.algorithm.compile=false",
        "spec.successPolicy.rawFrames=1000000000000",  # the preset's goal is of another environment
    ]


def actor(seconds: float, rounds: int) -> None:
    """Sleeping simulators, one actor then two, beside learners of three speeds."""
    sets = sleeping("make")
    alone, _ = run(Setting(EXAMPLES / "cartpole-impala.yaml", [*sets, "spec.actors.replicas=1"], {}), seconds)
    for speed in (0.5, 1.5, 3.0):
        delay = 20 * 16 / (speed * alone)
        one, two = (
            Setting(
                EXAMPLES / "cartpole-impala.yaml", [*sets, f"spec.actors.replicas={count}"], {LEARNER_DELAY_FILE: delay}
            )
            for count in (1, 2)
        )
        compared("actor", "an actor on a core of its own", one, two, seconds, rounds, learner_in_actors=speed)


def core(seconds: float, rounds: int) -> None:
    """All processes on one core, then on two."""
    sets = ["spec.algorithm.compile=false", "spec.actors.replicas=1", "spec.autoscaling.mode=Disabled"]
    first, second, *_ = sorted(os.sched_getaffinity(0))
    one, two = (
        Setting(EXAMPLES / "cartpole-apex.yaml", sets, {}, frozenset(cores)) for cores in ({first}, {first, second})
    )
    compared("core", "a core more for what runs", one, two, seconds, rounds)


def shard(seconds: float, rounds: int) -> None:
    """A replay service that needs so long for every turn, then two of them."""
    sets = ["spec.autoscaling.mode=Disabled", "spec.environment.kwargs={step_seconds: 0.001}", "spec.actors.replicas=2"]
    sets += ["spec.actors.envsPerActor=4", "spec.algorithm.compile=false"]
    one, two = (
        Setting(slow_game.JOB, [*sets, f"spec.replay.shards={count}"], {REPLAY_DELAY_FILE: 0.05}) for count in (1, 2)
    )
    compared("shard", "a replay shard", one, two, seconds, rounds)


def link(seconds: float, rounds: int, megabits: float) -> None:
    """Unrolls over a link of so many megabits, then of twice as many. In a network namespace of its own."""
    if os.environ.get("NEXT_UNIT_NAMESPACE") != "own":
        words = ["--units", "link", "--seconds", str(seconds), "--rounds", str(rounds), "--megabits", str(megabits)]
        command = [shutil.which("unshare") or "unshare", "--net", sys.executable, "-m", "benchmarks.next_unit", *words]
        subprocess.run(command, check=True, env=os.environ | {"NEXT_UNIT_NAMESPACE": "own"})
        return
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
    sets = [*sleeping("noisy"), "spec.actors.replicas=1"]
    settings = Setting(EXAMPLES / "cartpole-impala.yaml", sets, {}, prelude=_TCP)
    found = []
    for rate in (megabits, 2 * megabits) * rounds:
        shaped = ["rate", f"{rate}mbit", "burst", "16kb", "latency", "400ms"]
        subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *shaped], check=True)
        found.append(run(settings, seconds))
    slow, fast = (statistics.median(each[0] for each in found[first::2]) for first in (0, 1))
    share = statistics.median(
        unit.share for _, units in found[::2] for unit in units.units if unit.name == "a network twice as fast"
    )
    _report("link", slow, fast, share, megabits=megabits)


def _report(unit: str, without: float, having: float, share: float, **about: Any) -> None:
    """One line: steps a second without and with the unit, and its gain as computed and as measured."""
    report(
        "next_unit",
        unit=unit,
        **about,
        steps_per_second=without,
        given_steps_per_second=having,
        predicted_gain=share,
        measured_gain=having / without - 1,
        error_of_the_rate=(1 + share) * without / having - 1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", nargs="+", default=["actor", "core", "shard", "link"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--megabits", type=float, default=4.0)
    arguments = parser.parse_args()
    report("next_unit_machine", machine=machine())
    ways = {"actor": actor, "core": core, "shard": shard}
    for unit in arguments.units:
        if unit == "link":
            link(arguments.seconds, arguments.rounds, arguments.megabits)
        else:
            ways[unit](arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
