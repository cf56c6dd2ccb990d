"""Weights by relays: bytes out of the learner, and a relay that is killed midway.

Actors are clients as the actor role makes them, each with a relay of its own and with CURVE, on as many "nodes" as are asked for;
all in this process, so that the seconds are those of one machine's processors and not of links. The killed one is the first of a
node, which has others behind it, and it goes when it has half of a version.

    python -m benchmarks.scale.relay [--actors 24] [--nodes 3] [--megabytes 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch
from rljob.weights.exchange import WeightClient, WeightServer
from rljob.weights.published import PART_BYTES
from rljob.weights.relay import Relay
from rljob.wire import RoleKeys, load_keys, write_keys

from benchmarks.common import machine, report

ANYWHERE = "tcp://127.0.0.1:*"
TIMEOUT_SECONDS = 300.0


def actor(server: WeightServer, keys: RoleKeys, node: str) -> WeightClient:
    """A client as an actor's pod has it."""
    relay = Relay(ANYWHERE, keys.server())
    learner, of_relays = keys.client("learner"), keys.client("actor")
    return WeightClient(server.weights, server.notice, learner, relay=relay, node=node, of_relays=of_relays)


def fetched(
    server: WeightServer, module: torch.nn.Module, version: int, actors: list[WeightClient], kill_first: bool
) -> tuple[float, float]:
    """Publishes a version: seconds until all have it, and how many times its bytes have left the learner."""
    size, before, began = len_of(module), server.sent_bytes, time.monotonic()
    server.publish(module, version, 1, {})
    missing = set(actors)
    while missing:
        if time.monotonic() - began > TIMEOUT_SECONDS:
            raise TimeoutError(f"{len(missing)} actors have no version {version}")
        for each in list(missing):
            if each.poll() is not None:
                missing.discard(each)
        under_way = actors[0]._download
        if kill_first and under_way is not None and len(under_way._missing) <= size / PART_BYTES / 2:
            actors[0].close()
            missing.discard(actors[0])
            kill_first = False
    return time.monotonic() - began, (server.sent_bytes - before) / size


def len_of(module: torch.nn.Module) -> int:
    """Bytes of its state."""
    return sum(4 * tensor.numel() for tensor in module.state_dict().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    module = torch.nn.ParameterList([torch.rand(512, 512) for _ in range(round(options.megabytes * 1e6 / 4 / 512**2))])
    with tempfile.TemporaryDirectory() as folder:
        write_keys(file := Path(folder) / "keys.json")
        server = WeightServer(ANYWHERE, ANYWHERE, load_keys(file, "learner").server())
        keys = load_keys(file, "actor")
        with closing(server), ExitStack() as closed:
            ways: dict[str, Callable[[int], str]] = {
                "none": lambda number: f"each-{number}",
                "relays": lambda number: str(number % options.nodes),
            }
            version = 0
            for name, node in ways.items():
                actors = [
                    closed.enter_context(closing(actor(server, keys, node(number)))) for number in range(options.actors)
                ]
                while not all(each.answered for each in actors):
                    for each in actors:
                        each.poll()
                found = []
                for _ in range(options.rounds + 1):
                    version += 1
                    found.append(fetched(server, module, version, actors, kill_first=False))
                seconds, times = (statistics.median(each) for each in zip(*found[1:], strict=True))
                report("relay", way=name, actors=options.actors, seconds=seconds, times_out_of_the_learner=times)
            version += 1
            killed, times = fetched(server, module, version, actors, kill_first=True)
            report("relay_killed", seconds=killed, over_undisturbed=killed / seconds, times_out_of_the_learner=times)
    report("machine", **machine())


if __name__ == "__main__":
    main()
