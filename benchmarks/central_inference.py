"""What central inference saves an actor, and what it costs to ask.

1. one actor on Pong at 84x84, with a network of its own against asking a server: steps a CPU-second of the actor's process
   (all its threads, sockets included), and its environments alone with random actions, which is the most that asking could
   reach (``ceiling_ratio_cpu``). All play in the same process, pinned to one core, in turn in short rounds; medians of the
   ratios within a round. The server and the receiver of the experience are other processes on another core.
2. the server under more actors than this machine has cores for: simulated ones that take as long to step as a real one, without
   the work. Latency from a request's arrival to its answer, mean batch, and observations a second.

Usage: ``python -m benchmarks.central_inference [--seconds 20] [--envs 16] [--core 0]``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.acting import ActorIdentity
from rljob.acting.network import choose_compute
from rljob.actor.figures import ActorFigures
from rljob.actor.grouped import GROUPS, GroupedLoop
from rljob.actor.loop import ActorLoop, Loop
from rljob.actor.policy import ActingPolicy
from rljob.actor.session import Compression, ReplaySession
from rljob.actor.shards import MultiShard
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.envs import describe_environment, make_vector_environment
from rljob.envs.base import GroupedEnvironment
from rljob.experience import make_builder
from rljob.inference.client import InferenceClient, RemotePolicy
from rljob.inference.model import ServedModel
from rljob.inference.server import InferenceServer
from rljob.weights.flat import Weights, snapshot
from rljob.wire import Client

from benchmarks.actor_throughput import GAME, NoWeights
from benchmarks.common import machine, report
from benchmarks.one_core import compare, on_one_core, options_of, rounds, stepping
from tests.support.inference import Given

ENVIRONMENT = EnvironmentParameters()
NETWORKS: dict[str, tuple[str, Any]] = {
    "Ape-X Nature fp32": ("ApeXDQN", ApeXDQNParameters(precision="FP32")),
    "Ape-X Nature auto": ("ApeXDQN", ApeXDQNParameters(precision="Auto")),
    "IMPALA Deep auto": ("IMPALA", ImpalaParameters(network="Deep", precision="Auto")),
}
STEP_SECONDS = 0.0004  # of one Pong environment on one core; what a simulated actor waits instead of stepping


def weights_of(name: str) -> Weights:
    method, parameters = NETWORKS[name]
    torch.manual_seed(0)
    return snapshot(algorithm(method).build(describe_environment(GAME, ENVIRONMENT), parameters, ENVIRONMENT), 1, 0, {})


def serve(endpoint: str, name: str, max_batch: int, rows: int, core: int, asked: Connection) -> None:
    """The server's process: answers, and tells its status whenever something comes through ``asked``."""
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    method, parameters = algorithm(NETWORKS[name][0]), NETWORKS[name][1]
    spec = describe_environment(GAME, ENVIRONMENT)
    network = method.build(spec, parameters, ENVIRONMENT)
    sample = torch.zeros((rows, *spec.observation_shape), dtype=torch.uint8)
    measured = choose_compute(network, method.infer, sample, 0, parameters.precision)
    model = ServedModel(network, spec, method, 0, measured, max_batch)
    server = InferenceServer(endpoint, model, Given(weights_of(name)), 0.002)

    def on_turn() -> None:
        if asked.poll():
            asked.recv()
            asked.send(server.status())

    server.run(threading.Event(), on_turn)


class Serving:
    """A server in a process of its own, for as long as the block lasts."""

    def __init__(self, name: str, max_batch: int, rows: int, core: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.endpoint = f"ipc://{Path(tempfile.mkdtemp()) / 'inference'}"
        self._asks, asked = context.Pipe()
        self._process = context.Process(
            target=serve, args=(self.endpoint, name, max_batch, rows, core, asked), daemon=True
        )

    def status(self) -> dict[str, Any]:
        self._asks.send("status")
        status: dict[str, Any] = self._asks.recv()
        return status

    def __enter__(self) -> Serving:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def actor(name: str, num_envs: int, replay: str, server: str | None) -> tuple[Callable[[], None], ActorFigures, str]:
    """A whole actor with a network of its own (``server`` None) or without: its step, its figures and how it computes."""
    method, parameters = algorithm(NETWORKS[name][0]), NETWORKS[name][1]
    spec = describe_environment(GAME, ENVIRONMENT)
    layout = method.layout(spec, parameters)
    label = f"{name} {'local' if server is None else 'central'}".replace(" ", "-")
    identity = ActorIdentity(label, "benchmark", num_envs)
    figures = ActorFigures(identity)
    session = ReplaySession(
        Client(replay), identity, figures.heartbeat, compression=Compression(layout.compressed_columns)
    )
    figures.sink = sink = MultiShard([session])
    recorder = make_builder(layout, num_envs, 0.99, False, label, "benchmark", 0)
    generator = np.random.default_rng(0)
    loop: Loop
    computed = "elsewhere"
    if server is None:
        policy = ActingPolicy(method, spec, parameters, ENVIRONMENT, num_envs, generator)
        policy.load(weights_of(name))
        computed = str(policy.measured.place)
        environment = make_vector_environment(GAME, ENVIRONMENT, num_envs, 0)
        loop = ActorLoop(environment, policy, recorder, sink, NoWeights(), figures)
    else:
        size = num_envs // GROUPS
        grouped = GroupedEnvironment(
            [make_vector_environment(GAME, ENVIRONMENT, size, g * size) for g in range(GROUPS)]
        )
        client = InferenceClient(Client(server), identity, spec.columns, GROUPS + 1, compress=True)
        remote = RemotePolicy(method, spec, parameters, num_envs, GROUPS, generator, client)
        loop = GroupedLoop(grouped, remote, recorder, sink, figures)
    return stepping(loop, sink, figures), figures, computed


def environments(num_envs: int) -> Callable[[], None]:
    """The step of a central actor's environments without an actor: two groups, random actions, nothing recorded."""
    size, random = num_envs // GROUPS, np.random.default_rng(0)
    grouped = GroupedEnvironment([make_vector_environment(GAME, ENVIRONMENT, size, g * size) for g in range(GROUPS)])
    grouped.reset()
    actions = grouped.spec.num_actions

    def step() -> None:
        grouped.step(random.integers(0, actions, num_envs))

    return step


def one_actor(name: str, options: argparse.Namespace, replay: str, other: int) -> None:
    size = options.envs // GROUPS
    with Serving(name, 64, size, other) as server:
        local, _, computed = actor(name, options.envs, replay, None)
        central, figures, _ = actor(name, options.envs, replay, server.endpoint)
        contenders = {"environment": environments(options.envs), "local": local, "central": central}
        rates = rounds(contenders, options.seconds, options.envs)
        status = server.status()
    seconds = figures.clock.seconds()
    report(
        "central_against_local",
        network=name,
        local_computed_in=computed,
        envs=options.envs,
        local_steps_per_cpu_second=statistics.median(rates["local"].cpu),
        central_steps_per_cpu_second=statistics.median(rates["central"].cpu),
        **{f"{key}_of_central": value for key, value in compare(rates, "central", "local").items() if "ratio" in key},
        goal_ratio_cpu=1.6,
        ceiling_ratio_cpu=compare(rates, "environment", "local")["ratio_cpu"],
        share_of_ceiling_cpu=compare(rates, "central", "environment")["ratio_cpu"],
        rounds=len(rates["local"].wall),
        server_latency_p50_ms=1e3 * status["latency_p50_seconds"],
        server_latency_p99_ms=1e3 * status["latency_p99_seconds"],
        batch_mean=status["batch_mean"],
        central_stages={stage: float(f"{spent / sum(seconds.values()):.3g}") for stage, spent in seconds.items()},
    )


def simulated(endpoint: str, number: int, rows: int, until: float, waits: list[float]) -> None:
    """An actor's two groups in turn, without environments: takes as long as a step would, notes how long it was held up."""
    spec = describe_environment(GAME, ENVIRONMENT)
    client = InferenceClient(
        Client(endpoint), ActorIdentity(f"actor-{number}", "b", rows), spec.columns, GROUPS, compress=True
    )
    random = np.random.default_rng(number)
    background = random.integers(0, 255, spec.columns[0].shape, np.uint8) // 128 * 87
    observation = np.broadcast_to(background, (rows, *spec.observation_shape)).copy()
    memory = np.zeros((rows, 2, 0), np.float32)
    for group in range(GROUPS):
        client.submit(group, observation, memory)
    while time.monotonic() < until:
        for group in range(GROUPS):
            started = time.monotonic()
            while client.take(group) is None:
                client.poll(0.05)
            waits.append(time.monotonic() - started)
            time.sleep(rows * STEP_SECONDS)
            client.submit(group, observation, memory)
    client.close()


def many_actors(name: str, count: int, options: argparse.Namespace, other: int) -> None:
    rows = options.envs // GROUPS
    with Serving(name, 64, rows, other) as server:
        waits: list[list[float]] = [[] for _ in range(count)]
        warm = threading.Thread(target=simulated, args=(server.endpoint, 999, rows, time.monotonic() + 3.0, []))
        warm.start()
        warm.join()
        before = server.status()
        until = time.monotonic() + options.seconds / 2
        threads = [
            threading.Thread(target=simulated, args=(server.endpoint, number, rows, until, waits[number]))
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        time.sleep(options.seconds / 2 - 0.2)
        after = server.status()
        for thread in threads:
            thread.join()
    observations, batches = (after[key] - before[key] for key in ("observations_total", "batches_total"))
    held = np.sort(np.concatenate([np.array(one) for one in waits]))
    report(
        "server_under_actors",
        network=name,
        computed_in=after["compute"],
        actors=count,
        observations_per_request=rows,
        observations_per_second=observations / (options.seconds / 2 - 0.2),
        batch_mean=observations / batches,
        latency_p50_ms=1e3 * after["latency_p50_seconds"],
        latency_p99_ms=1e3 * after["latency_p99_seconds"],
        actor_wait_p50_ms=1e3 * float(np.percentile(held, 50)),
        actor_wait_p99_ms=1e3 * float(np.percentile(held, 99)),
        buckets=after["buckets"],
    )


def main() -> None:
    options = options_of(__doc__, seconds=20.0)
    with on_one_core(options.core) as (replay, other):
        report("machine", **machine(), load_average=os.getloadavg()[0])
        for name in NETWORKS:
            one_actor(name, options, replay, other)
        for count in (1, 2, 4, 8):
            many_actors("Ape-X Nature auto", count, options, other)


if __name__ == "__main__":
    main()
