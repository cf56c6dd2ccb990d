"""What benchmarks of an actor on one core share: a receiver on another core, and contenders that take turns in short rounds."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import Loop
from rljob.actor.shards import MultiShard
from rljob.wire import CreditLedger, Message, Server

STEPS_A_ROUND = 25


def options_of(description: str | None, seconds: float) -> argparse.Namespace:
    """``--seconds``, ``--envs`` and ``--core`` from the command line."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=seconds, help="for each comparison")
    arguments.add_argument("--envs", type=int, default=16)
    arguments.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    return arguments.parse_args()


@contextmanager
def on_one_core(core: int) -> Iterator[tuple[str, int]]:
    """This process on ``core`` with one torch thread, and a receiver of chunks elsewhere: its endpoint and its core, which is
    the same one where there is no other."""
    logging.basicConfig(level=logging.WARNING)
    other = next((each for each in sorted(os.sched_getaffinity(0)) if each != core), core)
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{Path(folder) / 'drain'}"
        receiver = multiprocessing.get_context("spawn").Process(target=drain, args=(endpoint, other), daemon=True)
        receiver.start()
        os.sched_setaffinity(0, {core})
        torch.set_num_threads(1)
        try:
            yield endpoint, other
        finally:
            receiver.terminate()
            receiver.join()


def stepping(loop: Loop, sink: MultiShard, figures: ActorFigures) -> Callable[[], None]:
    """A step of an actor that its shard has welcomed."""
    while sink.welcome is None:
        sink.poll(0.01)
    loop.start()
    never = threading.Event()

    def step() -> None:
        loop.turn(never)
        figures.clock.stop()  # the other contenders' time is not this actor's

    return step


def drain(endpoint: str, core: int) -> None:
    """The other end: accept every chunk, acknowledge it, keep nothing."""
    os.sched_setaffinity(0, {core})
    server, ledger = Server(endpoint), CreditLedger(64)
    while True:
        if not server.wait(1.0):
            continue
        while (arrived := server.receive_raw()) is not None:
            peer, raw = arrived
            if raw.kind == "hello":
                fields = {"service": "drain", "slot": 0, "slots": 1, "epoch": 0}
                fields["session"] = raw.fields["session"]
                fields["seq"] = ledger.hello(peer, raw.fields["actor"], raw.fields["inc"])
                kind = "welcome"
            elif raw.kind == "chunk":
                ledger.receive(peer, raw.fields["seq"])
                fields, kind = {"seq": raw.fields["seq"], "durable": False}, "ack"
            elif raw.kind == "heartbeat":
                server.send(peer, Message("pulse", {"service": "drain", "known": True}, {}))
                continue
            else:
                continue
            credits = ledger.grantable(peer)
            server.send(peer, Message(kind, {**fields, "credits": credits}, {}))
            ledger.granted(peer, credits)


@dataclass
class Rates:
    """One contender's rounds: steps per second, and steps per CPU second of all threads of this process."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def rounds(contenders: dict[str, Callable[[], None]], seconds: float, num_envs: int) -> dict[str, Rates]:
    """Every contender's rates; the order alternates from round to round."""
    rates = {name: Rates() for name in contenders}
    for step in contenders.values():
        step()
    end, forwards = time.monotonic() + seconds, True
    while time.monotonic() < end:
        for name in list(contenders) if forwards else reversed(contenders):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(STEPS_A_ROUND):
                contenders[name]()
            rates[name].cpu.append(STEPS_A_ROUND * num_envs / (time.process_time() - cpu))
            rates[name].wall.append(STEPS_A_ROUND * num_envs / (time.perf_counter() - wall))
        forwards = not forwards
    return rates


def compare(rates: dict[str, Rates], name: str, to: str) -> dict[str, float | int]:
    """Medians over the rounds. The ratio of CPU times is what a busy machine leaves undisturbed."""
    mine, other = rates[name], rates[to]
    return {
        "rounds": len(mine.wall),
        "steps_per_second": statistics.median(mine.wall),
        "steps_per_cpu_second": statistics.median(mine.cpu),
        "ratio": statistics.median(a / b for a, b in zip(mine.wall, other.wall, strict=True)),
        "ratio_cpu": statistics.median(a / b for a, b in zip(mine.cpu, other.cpu, strict=True)),
    }
