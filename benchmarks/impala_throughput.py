"""IMPALA on Pong with the Nature network: agent steps a second end to end, beside the ceiling that its parts allow.

Three things in one run, so that one machine in one hour meets them all: acting alone (environment and inference, one process on
one core), learning alone (updates on a batch that is already there, one thread on one core), and the whole job by `rljob run`.
With A and L the steps a core-second of each alone, C cores can do at most C / (1/A + 1/L) steps a second when nothing is wasted.
Rounds alternate; one JSON line a round, one with the medians.

    python -m benchmarks.impala_throughput --rounds 3 --seconds 30
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.registry import algorithm
from rljob.api import load_manifest
from rljob.envs import describe_environment, make_vector_environment
from rljob.learner.device import keep_freed_memory
from rljob.learner.optim.updater import make_updater, trial_update
from rljob.learner.plan import fastest_arithmetic
from rljob.telemetry.recorder import read_records
from rljob.weights.flat import snapshot

from benchmarks.common import limit_to_avx2, machine, report
from tests.support.paths import EXAMPLES, ROOT

NOBODY_JUDGES = [
    "spec.evaluator.enabled=false",
    "spec.evaluator.triggerReturn=",
    "spec.successPolicy.targetReturn=",
]
JOB = EXAMPLES / "pong-impala-nature.yaml"


def acting_alone(seconds: float) -> float:
    """Steps a second of one process that plays and sends nothing."""
    job = load_manifest(JOB).spec
    params, environment_params = job.algorithm.parameters, job.environment.parameters
    method, num_envs = algorithm("IMPALA"), job.actors.envs_per_actor
    spec = describe_environment(job.environment.id, environment_params)
    policy = ActingPolicy(method, spec, params, environment_params, num_envs, np.random.default_rng(0))
    policy.load(snapshot(method.build(spec, params, environment_params), 1, 1, {}))
    environment = make_vector_environment(job.environment.id, environment_params, num_envs, 0)
    observation = environment.reset()
    steps, started = 0, 0.0
    for turn in range(10**9):
        if turn == 20:
            steps, started = 0, time.perf_counter()
        result = environment.step(policy.act(observation).action)
        observation = result.observation
        steps += num_envs
        if turn > 20 and time.perf_counter() - started > seconds:
            break
    rate = steps / (time.perf_counter() - started)
    environment.close()
    return rate


def learning_alone(seconds: float) -> float:
    """Steps a second that one thread learns from, in the way the learner would choose to compute."""
    keep_freed_memory()
    job = load_manifest(JOB).spec
    params, environment_params = job.algorithm.parameters, job.environment.parameters
    method = IMPALA()
    spec = describe_environment(job.environment.id, environment_params)
    device = torch.device("cpu")
    network = method.build(spec, params, environment_params)
    batch, example = method.example_batch(spec, params, device), method.example(spec, params, network, device)
    plan = fastest_arithmetic(params.precision, network, partial(trial_update, method, params), example).place.compute
    updater = make_updater(method, params, network.compute(plan), device)
    for _ in updater.updates_from(batch, 0):
        pass
    batches, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in updater.updates_from(batch, 0):
            pass
        batches += 1
    steps = batches * batch.action.numel()
    return steps / (time.perf_counter() - started)


def alone(part: str, seconds: float) -> float:
    """One of the two in a process of its own, on one core."""
    command = [sys.executable, "-m", "benchmarks.impala_throughput", "--alone", part, "--seconds", str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return float(json.loads(answer.stdout.splitlines()[-1])["rate"])


def whole_job(seconds: float, warm_up_seconds: float, start_seconds: float, overrides: list[str]) -> dict[str, Any]:
    """The job by `rljob run`, from the end of its warm-up on, which begins at the first update within ``start_seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        sets = [word for item in [*NOBODY_JUDGES, *overrides] for word in ("--set", item)]
        command = [sys.executable, "-m", "rljob_operator", "run", str(JOB), "--run-dir", str(run_dir), *sets]
        bound = ["--max-seconds", str(start_seconds + warm_up_seconds + seconds)]
        subprocess.run([*command, *bound], check=True, stdout=subprocess.DEVNULL)
        metrics = run_dir / "metrics.jsonl"
        records = read_records(metrics) if metrics.exists() else []
    records = [r for r in records if r.get("updates", 0) > 0 and "steps_total" in r]
    first = records[0]["elapsed_seconds"] if records else 0.0
    window = [r for r in records if r["elapsed_seconds"] >= first + warm_up_seconds]
    if len(window) < 2:
        raise SystemExit(
            "the job had no time to train after its start and warm-up: raise --start-seconds, or free the machine"
        )
    start, end = window[0], window[-1]
    elapsed = end["elapsed_seconds"] - start["elapsed_seconds"]
    return {
        "steps_per_second": (end["steps_total"] - start["steps_total"]) / elapsed,
        "learned_steps_per_second": (end["samples"] - start["samples"]) / elapsed,
        "updates_per_second": (end["updates"] - start["updates"]) / elapsed,
        "learner_wait_fraction": statistics.fmean(r["learner_wait_fraction"] for r in window),
        "actors_blocked_fraction": statistics.fmean(r["actors_blocked_fraction"] for r in window),
        "policy_lag_updates_p95": end.get("policy_lag_updates_p95"),
        "window_seconds": elapsed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm-up-seconds", type=float, default=10)
    parser.add_argument("--start-seconds", type=float, default=30, help="that the roles get to start and learn once")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--alone", choices=("acting", "learning"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--avx2", action="store_true", help="hold all processes to AVX2 arithmetic (no AVX-512, no bf16)"
    )
    arguments = parser.parse_args()
    if arguments.avx2:
        limit_to_avx2()
    if arguments.alone:
        torch.set_num_threads(1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        rate = (acting_alone if arguments.alone == "acting" else learning_alone)(arguments.seconds)
        report("alone", rate=rate)
        return
    cores = len(os.sched_getaffinity(0))
    rates, shares = [], []
    for number in range(arguments.rounds):
        acting, learning = alone("acting", arguments.seconds / 3), alone("learning", arguments.seconds / 3)
        ceiling = cores / (1 / acting + 1 / learning)
        result = whole_job(arguments.seconds, arguments.warm_up_seconds, arguments.start_seconds, arguments.overrides)
        rates.append(result["steps_per_second"])
        shares.append(result["steps_per_second"] / ceiling)
        report(
            "impala_throughput",
            round=number,
            acting_alone_per_core=acting,
            learning_alone_per_core=learning,
            ceiling_steps_per_second=ceiling,
            share_of_ceiling=shares[-1],
            **result,
        )
    report(
        "impala_throughput_summary",
        steps_per_second=statistics.median(rates),
        share_of_ceiling=statistics.median(shares),
        cores=cores,
        machine=machine(),
    )


if __name__ == "__main__":
    main()
