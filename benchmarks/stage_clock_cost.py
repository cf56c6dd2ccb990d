"""What the always-on stage clock costs: nanoseconds a change of stage, and its share of a loop with 10,000 changes a second.

The call is timed by itself, less the loop around it, and the best of many short turns counts: another program can only
ever make a turn slower. (Timing a whole loop with and without the clock cannot resolve it: on a busy machine two runs of
the *same* loop differ by several percent.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from rljob.telemetry.clock import StageClock

from benchmarks.common import machine, report

CHANGES_PER_SECOND = 10_000
STAGES = ("env", "infer", "encode", "send", "blocked")


def nanoseconds_per_change(changes: int, turns: int) -> float:
    """Time of one ``enter``, the call included, the loop around it not."""

    def timed(enter: Callable[[str], object] | None) -> float:
        begun = time.perf_counter()
        if enter is None:
            for _ in range(changes // len(STAGES)):
                for _stage in STAGES:
                    pass
        else:
            for _ in range(changes // len(STAGES)):
                for stage in STAGES:
                    enter(stage)
        return time.perf_counter() - begun

    clock = StageClock(STAGES)
    loop = min(timed(None) for _ in range(turns))
    return (min(timed(clock.enter) for _ in range(turns)) - loop) / changes * 1e9


def main() -> None:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changes", type=int, default=2_000, help="changes of stage a turn")
    parser.add_argument("--turns", type=int, default=300)
    options = parser.parse_args()
    cost = nanoseconds_per_change(options.changes, options.turns)
    share = cost * 1e-9 * CHANGES_PER_SECOND
    report("stage_clock_cost", change_nanoseconds=cost, share_at_10_khz=share, target="< 0.01", **machine())


if __name__ == "__main__":
    main()
