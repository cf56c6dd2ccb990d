"""One version of the weights to hundreds of clients: encodings, the learner's processor time, bytes out of it.

The learner is a process of its own with nothing but its weight server; the clients (`receivers`) are sockets in two others. Each
round publishes one version, and lasts until every client has it. With ``--against`` the same is measured with another tree's
code, in turn.

    python -m benchmarks.scale.weights [--clients 256] [--megabytes 8] [--rounds 3] [--against TREE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from rljob.learner.device import keep_freed_memory
from rljob.weights.server import WeightServer
from rljob.wire import load_keys, message, write_keys
from rljob.wire.version import WIRE_VERSION

from benchmarks.common import machine, report
from benchmarks.scale.links import sent_bytes

HERE = Path(__file__).parents[2]
PROCESSES = 2
TIMEOUT_SECONDS = 300.0


def serve(keys: Path, megabytes: float, host: str = "127.0.0.1") -> None:
    """The learner: publishes a version at each odd line on stdin, and tells at the next what it took."""
    keep_freed_memory()
    packed = _count_packed_bytes()
    server = WeightServer(f"tcp://{host}:*", f"tcp://{host}:*", load_keys(keys, "learner").server())
    layers = max(1, round(megabytes * 1e6 / 4 / 512**2))
    module = torch.nn.ParameterList([torch.rand(512, 512) for _ in range(layers)])
    with closing(server):
        print(
            json.dumps({"weights": server.weights, "notice": server.notice, "wire_version": WIRE_VERSION}), flush=True
        )
        for version, _ in enumerate(sys.stdin, 1):
            began, packed_before, sent_before = _processor_seconds(), packed[0], server.sent_bytes
            thread_began, node_before = time.thread_time(), sent_bytes()
            server.publish(module, version, 1, {"updates": version})
            published = time.thread_time() - thread_began
            print(version, flush=True)
            sys.stdin.readline()  # every client has it
            size = 4 * layers * 512**2
            figures = {
                "megabytes": size / 1e6,
                "encodings": (packed[0] - packed_before) / size,
                "learner_thread_seconds": published,
                "learner_process_seconds": _processor_seconds() - began,
                "gigabytes_out": (server.sent_bytes - sent_before) / 1e9,
                "megabytes_out_of_the_node": (sent_bytes() - node_before) / 1e6,
            }
            print(json.dumps(figures), flush=True)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _count_packed_bytes() -> list[int]:
    """From now on: bytes of the columns of weights that were encoded, and so had their checksum computed."""
    packed, pack = [0], message.pack_column

    def counted(index: int, code: str, array: Any, **more: Any) -> Any:
        packed[0] += array.nbytes if array.nbytes > 1 << 16 else 0
        return pack(index, code, array, **more)

    message.pack_column = counted  # type: ignore[attr-defined]
    return packed


def receive(keys: Path, endpoint: str, wire_version: int, count: int) -> None:
    """Clients that fetch a version for each line on stdin."""
    from benchmarks.scale.receivers import Receivers

    clients = Receivers(endpoint, load_keys(keys, "actor").client("learner"), count, wire_version)
    print("ready", flush=True)
    for have, _ in enumerate(sys.stdin):
        print(json.dumps(clients.fetch(have, TIMEOUT_SECONDS)), flush=True)


@contextmanager
def _process(tree: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """This module in a process of its own, with the code of ``tree``."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'workers'}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.scale.weights", *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def told(process: subprocess.Popen[str]) -> Any:
    """The next line that it says, a JSON value or a word."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process of the measurement ended with {process.wait()}")
    return json.loads(line) if line[0] in '{["0123456789' else line.strip()


def tell(process: subprocess.Popen[str], what: str = "") -> None:
    """Say one line to it."""
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()


def measure(tree: Path, keys: Path, clients: int, megabytes: float, rounds: int) -> dict[str, float]:
    """The medians over ``rounds`` versions, after a first one that is not counted."""
    with _process(tree, "serve", keys, megabytes) as learner:
        ready = told(learner)
        about = ready["weights"], ready["wire_version"], clients // PROCESSES
        with _process(HERE, "receive", keys, *about) as first, _process(HERE, "receive", keys, *about) as second:
            both = first, second
            assert [told(each) for each in both] == ["ready", "ready"]
            found: list[dict[str, float]] = []
            for _ in range(rounds + 1):
                tell(learner)
                assert isinstance(told(learner), int)
                for each in both:
                    tell(each)
                seconds = max(told(each)[1] for each in both)
                tell(learner)
                found.append({**told(learner), "seconds_until_the_last": seconds})
    return {name: statistics.median(each[name] for each in found[1:]) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--megabytes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another tree of this repository")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_keys(keys := Path(folder) / "keys.json")
        for name, tree in {"before": options.against, "after": HERE}.items():
            if tree is not None:
                found = measure(tree, keys, options.clients, options.megabytes, options.rounds)
                report("weights_to_many", tree=name, clients=options.clients, **found)
    print(json.dumps(machine()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
    elif sys.argv[1:2] == ["receive"]:
        receive(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
