"""The published speed ladder for DQN on Pong, six rungs, with this project's parts at 42x42 on this machine's cores.

    python -m benchmarks.ladder.bench --rounds 3 --seconds 30 --sb3-python SB3/bin/python --markdown ladder.md \\
        --picture docs/images/speed-ladder.svg
    python -m benchmarks.ladder.bench --solve synchronous apart-tensors --seeds 1 2

The first command: frames/s of each rung, one after the other in rounds whose order alternates, so that the machine's drift meets
all; one JSON line a measurement and one a rung with the ratios (``table.py`` says how they are taken). A frame is an agent step,
as in what was published. A rung takes about 20 s beside its ``--seconds``: three rounds of 30 s about 20 minutes.
``--json`` keeps the measurements; ``--from`` makes table and picture of such a file again, without measuring.

The second: minutes until the mean of the last hundred training games is 17, as published, for some rungs and seeds, one after
the other; one that is not there after ``--max-minutes`` is told as unsolved.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import machine, report
from benchmarks.ladder import measure, rungs
from benchmarks.ladder.picture import draw
from benchmarks.ladder.readings import Solving, SpeedWindow
from benchmarks.ladder.table import PEER, markdown, rows_of

Found = dict[str, list[dict[str, float]]]
"""By the names of rungs and of the peer, a round's figures after the other's."""
_START_SECONDS = 300.0
"""More than the processes of `rljob run` take to start and to play ``--fill`` frames."""
GOAL = 3.5
_QUIET_CORES = 0.1


def measured(options: argparse.Namespace, about: dict[str, Any]) -> Found:
    """The rounds' figures by the names of rungs; reported one by one, and kept after each round."""
    names = [*(rung.name for rung in rungs.MEASURED), *([PEER] if options.sb3_python else [])]
    found: Found = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            if name == PEER:  # with as many threads as the first rung found better; that comes first in the first round
                threads = int(found[rungs.LADDER[0].name][-1]["threads"])
                figures = _peer(options, seed=1 + number, threads=threads)
            else:
                figures = _window(name, options, seed=1 + number)
            report("ladder_round", rung=name, round=number, **figures)
            found[name].append(figures)
        if options.json:
            options.json.write_text(json.dumps({"machine": about, "rounds": found}, indent=1) + "\n")
    return found


def _peer(options: argparse.Namespace, seed: int, threads: int) -> dict[str, float]:
    return measure.peer(options.sb3_python, options.seconds, options.warm_up_seconds, options.fill, seed, threads)


def _window(name: str, options: argparse.Namespace, seed: int) -> dict[str, float]:
    rung = next(each for each in rungs.MEASURED if each.name == name)
    window = SpeedWindow(options.warm_up_seconds, options.seconds)
    limit = _START_SECONDS + options.warm_up_seconds + options.seconds
    result = measure.trained(rung, window, seed, options.fill, limit).result
    if not result:
        raise SystemExit(f"{name}: no window of {options.seconds:g} s after its first update within {limit:g} s")
    return result


def tell(found: Found, about: dict[str, Any], options: argparse.Namespace) -> None:
    """The rows, the table and the picture."""
    rows = rows_of(rungs.MEASURED, found)
    for row in rows:
        figures = asdict(row)
        report("ladder", rung=figures.pop("name"), **figures)
    others = statistics.median(
        each["others_cores"] for windows in found.values() for each in windows if "others_cores" in each
    )
    last = next(row for row in rows if row.name == rungs.LADDER[-1].name)
    busy = f"other programs took {others:.1f} of {about['cores']} cores meanwhile"
    report(
        "ladder_summary",
        end_to_end=last.over_first,
        goal=GOAL,
        reached=last.over_first > GOAL,
        others_cores=others,
        quiet=others <= _QUIET_CORES,
        machine=about,
    )
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    if options.picture:
        rounds = len(found[rungs.LADDER[0].name])
        draw(options.picture, rows, f"{about['date']}, {about['commit']}: medians of {rounds} rounds; {busy}")


def solve(options: argparse.Namespace) -> None:
    """Minutes to solved of the rungs that are asked for."""
    for seed in options.seeds:
        for name in options.solve:
            rung = next(each for each in rungs.MEASURED if each.name == name)
            watch = Solving(rungs.SOLVED, 60 * options.max_minutes)
            limit = _START_SECONDS + 60 * options.max_minutes
            result = measure.trained(rung, watch, seed, options.fill, limit).result
            report("ladder_solved", rung=name, seed=seed, target=rungs.SOLVED, games=rungs.GAMES, **result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=_above_zero(int), default=3)
    parser.add_argument("--seconds", type=_above_zero(float), default=30.0)
    parser.add_argument("--warm-up-seconds", type=float, default=5)
    parser.add_argument(
        "--fill",
        type=_above_zero(int),
        help="frames before the first update; 1,000, or, to solve, the published 10,000",
    )
    parser.add_argument(
        "--sb3-python",
        type=_program,
        help="Python of a virtual environment with stable-baselines3; left out: without it",
    )
    parser.add_argument("--json", type=Path, help="keep the measurements in this file, round by round")
    parser.add_argument(
        "--from", dest="kept", type=_kept, metavar="JSON", help="measure nothing: take the measurements of such a file"
    )
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--solve", nargs="+", choices=[rung.name for rung in rungs.MEASURED], metavar="RUNG")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--max-minutes", type=_above_zero(float), default=120.0)
    options = parser.parse_args()
    options.fill = options.fill or (rungs.FILL if options.solve else 1_000)
    if options.solve:
        report("machine", **machine())
        solve(options)
        return
    about, found = options.kept or (machine(), None)
    tell(found or measured(options, about), about, options)


def _above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    return number


def _program(text: str) -> str:
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"there is no program {text}")
    return text


def _kept(text: str) -> tuple[dict[str, Any], Found]:
    """The machine and the rounds of a file that ``--json`` has written."""
    try:
        kept = json.loads(Path(text).read_text())
        about, found = kept["machine"], kept["rounds"]
        lengths = {len(found[rung.name]) for rung in rungs.MEASURED} | {len(each) for each in found.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text} is not a file that --json has written: {error!r}") from error
    if len(lengths) != 1 or 0 in lengths:
        raise argparse.ArgumentTypeError(f"{text} has rounds of differing rungs: {sorted(lengths)} measurements")
    return about, found


if __name__ == "__main__":
    main()
