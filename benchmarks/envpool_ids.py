"""What `rljob validate` answers for each id of EnvPool with ``backend: EnvPool``: a table, and how many have which answer.

    python -m benchmarks.envpool_ids [--table envpool_ids.csv] [--ids PATTERN]

Each is made and reset as an actor or the evaluator would. They are made one after the other in one process; one that ends it, as
code in C++ may, has that as its answer, and another process goes on behind it. Needs ``rljob[envpool]``.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import re
import signal
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from multiprocessing.connection import Connection

import envpool
from envpool.registration import registry
from rljob.algorithms.suits import check_suits
from rljob.api import parse_job
from rljob.api.networks import NetworkProblem
from rljob.envs import EnvironmentProblem, describe_environment

from benchmarks.common import machine, report
from benchmarks.gymnasium_environments import MANIFEST

PATIENCE_SECONDS = 120.0


def spaces(environment_id: str) -> tuple[str, str]:
    """Its observations and its actions as EnvPool describes them, without their bounds."""
    try:
        spec = envpool.make_spec(environment_id)
        return briefly(spec.gymnasium_observation_space), briefly(spec.gymnasium_action_space)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is an answer)
        return "", str(error).splitlines()[0]


def briefly(space: object) -> str:
    """``Box(-inf, inf, (17,), float64)`` -> ``Box (17,) float64``."""
    return re.sub(r"Box\((?:\[.*?\]|[^,(]*), (?:\[.*?\]|[^,(]*), (\([^)]*\)), (\w+)\)", r"Box \1 \2", str(space))


def answer(environment_id: str) -> str:
    """``ok``, or the problem without the name of the environment."""
    environment = {"id": environment_id, "backend": "EnvPool"}
    job = parse_job(
        {**MANIFEST, "spec": {**MANIFEST["spec"], "environment": environment, "successPolicy": {"rawFrames": 1}}}
    )
    try:
        check_suits(job, describe_environment(environment_id, job.spec.environment.parameters))
    except NetworkProblem as problem:
        return str(problem).partition(": ")[2].partition(": ")[0]
    except EnvironmentProblem as problem:
        return str(problem).splitlines()[0].replace(repr(environment_id), "...").removeprefix("environment ... ")
    return "ok"


def answers(ids: list[str], to: Connection) -> None:
    """In a process of its own: a row for each id."""
    for environment_id in ids:
        to.send((*spaces(environment_id), answer(environment_id)))


def rows(ids: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """(id, observation, actions, answer) of each."""
    context = multiprocessing.get_context("spawn")
    while ids:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=answers, args=(ids, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            while ids and ours.poll(PATIENCE_SECONDS):
                yield ids[0], *ours.recv()
                ids = ids[1:]
            ended = f"no answer within {PATIENCE_SECONDS:g} s"
        except EOFError:
            process.join()
            code = process.exitcode or 0
            ended = f"its process ended by {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        process.kill()
        if ids:
            yield ids[0], "", "", ended
            ids = ids[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="envpool_ids.csv", help="where the table is written")
    parser.add_argument("--ids", default="*", help="which, such as 'Pong*'")
    arguments = parser.parse_args()
    report("machine", **machine())
    counted: Counter[tuple[str, str]] = Counter()
    with open(arguments.table, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("id", "observation", "actions", "answer"))
        for row in rows([each for each in envpool.list_all_envs() if fnmatch(each, arguments.ids)]):
            table.writerow(row)
            file.flush()
            counted[registry.specs[row[0]][0].removeprefix("envpool."), row[3]] += 1
    for (family, said), number in sorted(counted.items()):
        report("envpool_ids", family=family, ids=number, answer=said)


if __name__ == "__main__":
    main()
