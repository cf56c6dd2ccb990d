"""Weights to actors on nodes whose links are held: with and without relays, and with a relay that is killed midway.

The learner and every node are processes of their own, in network namespaces of their own where ``--mbit`` holds their links
(Linux, as root; `benchmarks.scale.links`), else on loopback. Actors are clients as the actor role makes them, each with a relay
of its own and with CURVE; those of a node share a process. The killed one is the first of a node, which has others behind it;
it goes when it has half of a version.

    python -m benchmarks.scale relay [--mbit 200] [--actors 24] [--nodes 3] [--megabytes 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from rljob.weights.client import WeightClient
from rljob.weights.relay import Relay
from rljob.wire import load_keys, write_keys

from benchmarks.common import machine, report
from benchmarks.scale.links import address, inside, links
from benchmarks.scale.weights import tell, told

HERE = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300.0


def act(keys: Path, weights: str, notice: str, host: str, nodes: list[str]) -> None:
    """Actors of these nodes, one an entry. For each line on stdin: the seconds until all of them have the version that it names.
    ``VERSION kill`` ends the first of them when it has half of the version."""
    own, anywhere = load_keys(keys, "actor"), f"tcp://{host}:*"
    actors = [
        WeightClient(
            weights,
            notice,
            own.client("learner"),
            relay=Relay(anywhere, own.server()),
            node=node,
            of_relays=own.client("actor"),
        )
        for node in nodes
    ]
    while not all(each.answered for each in actors):
        for each in actors:
            each.poll()
        time.sleep(0.01)
    print("ready", flush=True)
    for line in sys.stdin:
        version, _, kill = line.strip().partition(" ")
        began, missing = time.monotonic(), set(actors)
        while missing and time.monotonic() - began < TIMEOUT_SECONDS:
            for each in list(missing):
                if each.poll() is not None and each.version == int(version):
                    missing.discard(each)
            if kill and has_half(actors[0]):
                actors[0].close()
                missing.discard(actors.pop(0))
                kill = ""
            time.sleep(0.001)
        print(json.dumps(time.monotonic() - began if not missing else None), flush=True)
    for each in actors:
        each.close()


def has_half(actor: WeightClient) -> bool:
    """Whether half of a version's parts have come."""
    under_way = actor._download
    return under_way is not None and 2 * len(under_way._missing) <= len(under_way._digests)


@contextmanager
def process(number: int, mbit: int, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """This package's modules in a process of namespace ``number``, or of this one where no link is held."""
    command = [sys.executable, "-m", *map(str, arguments)]
    started = subprocess.Popen(
        inside(number, command) if mbit else command,
        cwd=HERE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with started:
        yield started
        assert started.stdin is not None
        started.stdin.close()


def rounds_of(options: argparse.Namespace, keys: Path, way: str) -> tuple[list[tuple[float, float, float]], float]:
    """(seconds until the last has it, copies out of the learner, megabytes out of its node) of each version; its size in MB.

    The last one is that of the killed relay, where there are relays.
    """
    with ExitStack() as during:
        hosts = [address(number) if options.mbit else "127.0.0.1" for number in range(options.nodes + 1)]
        learner = during.enter_context(
            process(0, options.mbit, "benchmarks.scale.weights", "serve", keys, options.megabytes, hosts[0])
        )
        ready, nodes = told(learner), []
        for number in range(1, options.nodes + 1):
            share = range(number - 1, options.actors, options.nodes)
            names = [f"each-{each}" if way == "none" else str(number) for each in share]
            about = ready["weights"], ready["notice"], hosts[number], *names
            nodes.append(
                during.enter_context(process(number, options.mbit, "benchmarks.scale.relay", "act", keys, *about))
            )
        assert {told(each) for each in nodes} == {"ready"}
        found, kinds = [], [""] * (options.rounds + 1) + (["kill"] if way == "relays" else [])
        for kind in kinds:
            tell(learner)
            version = told(learner)
            for number, each in enumerate(nodes):
                tell(each, f"{version} {kind if number == 0 else ''}")
            seconds = [told(each) for each in nodes]
            if None in seconds:
                raise TimeoutError(f"some actors have no version {version} after {TIMEOUT_SECONDS:g} s")
            tell(learner)
            figures = told(learner)
            size = figures["megabytes"]
            found.append((max(seconds), 1000 * figures["gigabytes_out"] / size, figures["megabytes_out_of_the_node"]))
        return found[1:], size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=0, help="of each node's link; 0: loopback")
    parser.add_argument("--actors", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=3, help="beside the learner's")
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=("none", "relays"), default=["none", "relays"])
    options = parser.parse_args()
    about = {name: getattr(options, name) for name in ("mbit", "actors", "nodes")}
    report("machine", **machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        links(options.nodes + 1, options.mbit) if options.mbit else nullcontext(),
    ):
        write_keys(keys := Path(folder) / "keys.json")
        for way in options.ways:
            found, size = rounds_of(options, keys, way)
            killed = found.pop() if way == "relays" else None
            seconds, copies, megabytes = (statistics.median(each) for each in zip(*found, strict=True))
            report("relay", way=way, **about, megabytes=size, seconds=seconds, copies_out_of_the_learner=copies,
                   megabytes_out_of_its_node=megabytes)  # fmt: skip
            if killed is not None:
                report("relay_killed", **about, megabytes=size, seconds=killed[0], over_undisturbed=killed[0] / seconds,
                       copies_out_of_the_learner=killed[1], megabytes_out_of_its_node=killed[2])  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["act"]:
        act(Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6:])
    else:
        main()
