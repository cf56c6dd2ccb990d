"""How fast the games of an evaluation come, beside actors on the same cores.

A whole evaluation of a job (every start, and the end, when few games are left) by one process a core, against actor loops
alone, one a core: the job's own actor with its network and recorder, whose unrolls are encoded and then dropped. Rounds
alternate; the ratio is one of raw frames a second within a round. Wall-clock time is what the ratio is about; the one of
processor time is what other work on the machine disturbs least.

    python -m benchmarks.evaluation_throughput --rounds 3 [--checkpoint RUN_OR_CHECKPOINT]

Without a checkpoint a new network plays, which loses its games in half of the steps of a trained one: more starts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.acting import ActorIdentity as Sender
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import ActorLoop
from rljob.actor.policy import ActingPolicy
from rljob.actor.session import Welcome
from rljob.algorithms.registry import algorithm
from rljob.api import load_manifest
from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
from rljob.envs import describe_environment, make_vector_environment
from rljob.evaluation.players import Players
from rljob.evaluation.score import tally
from rljob.experience import Segment, make_builder
from rljob.weights.flat import Weights, snapshot
from rljob.wire import Message, encode

from benchmarks.common import machine, report
from tests.support.inference import Given
from tests.support.paths import EXAMPLES

JOB = EXAMPLES / "pong-vtrace.yaml"
GOAL = 0.8
_WARM_UP_TURNS = 20


class Dropped:
    """A sink that encodes what it is given as it would be sent, and forgets it."""

    waiting = 0
    least_version = None
    durable = True
    welcome = Welcome(0, 1, 1, 1)

    def __init__(self, compress: tuple[str, ...]) -> None:
        self._compress = compress
        self.bytes = 0

    def encode(self, chunk: Segment) -> None:
        self.bytes += sum(map(len, encode(chunk.to_message(), compress=self._compress)))

    def episodes(self, message: Message) -> None: ...

    def poll(self, timeout_seconds: float = 0.0) -> None: ...


def policy_of(checkpoint: Path | None) -> tuple[PolicyIdentity, Weights]:
    """What plays on both sides: the policy of a checkpoint, or the job's with a new network."""
    torch.manual_seed(0)
    if checkpoint is not None:
        found = load_policy(checkpoint)
        judged = PolicyIdentity(str(found.manifest["algorithm"]), found.spec, found.params, found.env_params)
        return judged, snapshot(found.module, 1, 1, {})
    job = load_manifest(JOB).spec
    parameters, environment = job.algorithm.parameters, job.environment.parameters
    described = describe_environment(job.environment.id, environment)
    judged = PolicyIdentity(job.algorithm.type, described, parameters, environment)
    return judged, snapshot(algorithm(judged.algorithm).build(described, parameters, environment), 1, 1, {})


def evaluation(judged: PolicyIdentity, weights: Weights, cores: int, games: int, seed: int) -> dict[str, Any]:
    """All games of one evaluation; raw frames a second and a processor second, from the first start to the last end."""
    with closing(Players(judged, cores, games)) as players:
        began, used = time.perf_counter(), _processor_seconds()
        result = tally(players.play(weights, range(games), seed, lambda: None))
        seconds, own = time.perf_counter() - began, _processor_seconds() - used
        before = _children_seconds()
    frames = sum(result.lengths) * judged.spec.raw_frames_per_step
    # A helper has used next to nothing before its first game, and is counted once it has ended.
    return {
        "evaluation_raw_frames_per_second": frames / seconds,
        "evaluation_raw_frames_per_cpu_second": frames / (own + _children_seconds() - before),
        "evaluation_seconds": seconds,
        "games": len(result.returns),
        "mean": result.mean,
        "mean_length_steps": frames / judged.spec.raw_frames_per_step / len(result.returns),
    }


def actors(judged: PolicyIdentity, weights: Weights, cores: int, num_envs: int, seconds: float) -> dict[str, float]:
    """``cores`` actor loops at once, each in a process of its own; what they reach together."""
    context = multiprocessing.get_context("fork")
    ready, found = context.Barrier(cores), context.Queue()
    processes = [
        context.Process(target=_act, args=(judged, weights, num_envs, seconds, number, ready, found))
        for number in range(cores)
    ]
    for process in processes:
        process.start()
    rates = [found.get() for _ in processes]
    for process in processes:
        process.join()
    wall, cpu = zip(*rates, strict=True)
    return {
        "actors_raw_frames_per_second": sum(wall),
        "actors_raw_frames_per_cpu_second": statistics.fmean(cpu),
    }


def _act(
    judged: PolicyIdentity, weights: Weights, num_envs: int, seconds: float, number: int, ready: Any, found: Any
) -> None:
    torch.set_num_threads(1)
    method, spec, params = algorithm(judged.algorithm), judged.spec, judged.params
    environment = make_vector_environment(spec.id, judged.env_params, num_envs, number)
    policy = ActingPolicy(method, spec, params, judged.env_params, num_envs, np.random.default_rng(number))
    sender = Sender(f"actor-{number}", uuid.uuid4().hex[:12], num_envs)
    layout, figures = method.layout(spec, params), ActorFigures(sender)
    sink = Dropped(layout.compressed_columns)
    figures.sink = sink  # type: ignore[assignment]
    ends = judged.env_params.atari.life_loss == "EndsEpisode"
    recorder = make_builder(layout, num_envs, params.gamma, ends, sender.actor, sender.incarnation, 1)
    loop = ActorLoop(environment, policy, recorder, sink, Given(weights), figures)  # type: ignore[arg-type]
    never = threading.Event()
    loop.start()
    for _ in range(_WARM_UP_TURNS):
        loop.turn(never)
    ready.wait()
    before, used, began = figures.raw_frames, time.process_time(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop.turn(never)
    frames = figures.raw_frames - before
    found.put((frames / (time.perf_counter() - began), frames / (time.process_time() - used)))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=15, help="that the actors play in a round")
    parser.add_argument("--envs", type=int, default=16, help="of an actor")
    parser.add_argument("--checkpoint", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    judged, weights = policy_of(options.checkpoint)
    report("machine", **machine())
    ratios: list[tuple[float, float]] = []
    for number in range(options.rounds):
        acting = actors(judged, weights, cores, options.envs, options.seconds)
        judging = evaluation(judged, weights, cores, options.games, 1000 * number)
        wall, cpu = (
            judging[f"evaluation_raw_frames_per_{unit}"] / acting[f"actors_raw_frames_per_{unit}"]
            for unit in ("second", "cpu_second")
        )
        ratios.append((wall, cpu))
        report("evaluation_throughput", round=number, cores=cores, **acting, **judging, ratio=wall, ratio_cpu=cpu)
    report(
        "evaluation_throughput_summary",
        ratio=statistics.median(wall for wall, _ in ratios),
        ratio_cpu=statistics.median(cpu for _, cpu in ratios),
        goal=GOAL,
    )


if __name__ == "__main__":
    main()
