"""`python -m tests.search`: explore the small jobs in two processes, and print what does not hold with the shortest way there.

With ``--fields``, change each field of a job that runs on a real API server instead (`tests.search.fields`).

Exits 1 where something was found.
"""

import argparse
import json
import multiprocessing
import sys
import time

from tests.search import fields
from tests.search.explorer import Explorer, Result
from tests.search.jobs import JOBS, short_waits
from tests.search.world import World

PROCESSES = 2


def explore(name: str, seconds: float, states: int) -> Result:
    """One job, in a process of its own."""
    with short_waits():
        return Explorer(JOBS[name]).run(seconds, states)


def tell(result: Result) -> None:
    """What was explored, and each finding with the command that shows it again."""
    figures = {name: value for name, value in vars(result).items() if name != "findings"}
    print(json.dumps(figures), flush=True)
    for finding in result.findings:
        print(f"\n{result.job}: {finding.words}")
        for step in finding.path:
            print(f"  {step}")
        print(f"  again: python -m tests.search --replay {result.job}:{','.join(map(str, finding.steps))}\n")


def replay(way: str) -> None:
    """The events of a way, and after each what there is."""
    name, _, steps = way.partition(":")
    explorer = Explorer(JOBS[name])

    def line(world: World) -> str:
        status = explorer.statuses[world.status]
        pods = [f"{pod.uid} {'leaving ' if pod.deleted >= 0 else ''}{pod.stage.name.lower()}" for pod in world.pods]
        return f"{status.state or 'new':<12}{status.restarts.counted} counted  {', '.join(pods) or 'no pods'}"

    world = explorer.new
    with short_waits():
        for event, world in explorer.replayed([int(step) for step in steps.split(",") if step]):
            print(f"{event:<60} {line(world)}")
        print(explorer.broken(world))


def main() -> int:
    """Parse the command line and do what it asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all jobs together (default: 600)")
    parser.add_argument("--states", type=int, default=10**9, help="of each job, at most")
    parser.add_argument("--job", choices=sorted(JOBS), action="append", help="this one alone; may be given again")
    parser.add_argument("--replay", metavar="JOB:STEP,...", help="print the events of a way that was found")
    parser.add_argument(
        "--fields", metavar="PART", nargs="?", const="", help="change each field whose path has this in it"
    )
    options = parser.parse_args()
    if options.fields is not None:
        return fields.main(options.seconds, options.fields)
    if options.replay:
        replay(options.replay)
        return 0
    names, began = options.job or list(JOBS), time.monotonic()
    rounds = -(-len(names) // PROCESSES)
    work = [(name, options.seconds / rounds, options.states) for name in names]
    with multiprocessing.Pool(min(PROCESSES, len(work)), maxtasksperchild=1) as pool:
        results = pool.starmap(explore, work, chunksize=1)
    for result in results:
        tell(result)
    seconds, states = time.monotonic() - began, sum(result.states for result in results)
    print(f"{states:,} distinct states, {sum(r.explored for r in results):,} of them explored, in {seconds:.0f} s")
    return 1 if any(result.findings for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
