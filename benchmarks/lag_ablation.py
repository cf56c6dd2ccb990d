"""What policy lag costs, and what V-trace gives back: CartPole with weights that are 0, 10 and 50 versions old.

One process, no sockets: the real environment, policy, unrolls and updates, with the weights that act taken from a list of those
published so many updates ago. "Uncorrected" takes every importance ratio as 1 (correctOffPolicy: false). The score of a run is
the mean return of all games that ended in its second half, beside that of its last tenth; one JSON line a run, one a cell with
what of the score without lag is left, and one with the machine. All is counted in steps, so a busy machine changes nothing.

    python -m benchmarks.lag_ablation --seeds 4 5 6
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.registry import algorithm
from rljob.api import load_manifest
from rljob.envs import describe_environment, make_vector_environment
from rljob.experience import make_builder
from rljob.learner.optim.updater import make_updater
from rljob.learner.staging import unroll_buffers
from rljob.weights.flat import snapshot

from benchmarks.common import machine, report
from tests.support.paths import EXAMPLES

CPU = torch.device("cpu")
NUM_ENVS = 16
JOB = EXAMPLES / "cartpole-impala.yaml"
SETTINGS = (
    "unrollLength=5",
    "batchSize=16",
    "gamma=0.98",
    "learningRate=0.001",
    "learningRateFinal=0",
)
"""Beside the example, the same for both arms: an update every 80 steps, so that 50 versions are 4,000 steps. The learning rate
falls to 0 over the run. Chosen on seeds 1 to 3; report others."""


def run(lag_versions: int, corrected: bool, seed: int, steps: int, overrides: list[str]) -> dict[str, Any]:
    """Train once; the mean return of the games in the second half, and of the last tenth."""
    method = algorithm("IMPALA")
    of_this_run = [
        f"learningRateDecaySteps={steps}",
        *overrides,
        f"impala.correctOffPolicy={str(corrected).lower()}",
    ]
    job = load_manifest(JOB, [f"spec.algorithm.{item}" for item in (*SETTINGS, *of_this_run)]).spec
    params, environment_params = job.algorithm.parameters, job.environment.parameters
    spec = describe_environment("CartPole-v1", environment_params)
    torch.manual_seed(seed)
    updater = make_updater(method, params, method.build(spec, params, environment_params), CPU)
    policy = ActingPolicy(method, spec, params, environment_params, NUM_ENVS, np.random.default_rng(seed))
    layout = method.layout(spec, params)
    builder = make_builder(layout, NUM_ENVS, params.gamma, False, "actor-0", "one", 1)
    buffers = unroll_buffers(layout, params.batch_size, 1, CPU)
    published = deque([snapshot(updater.online, 1, 1, {})], maxlen=lag_versions + 1)
    policy.load(published[0])
    environment = make_vector_environment("CartPole-v1", environment_params, NUM_ENVS, seed)
    observation = environment.reset()
    builder.begin(observation)
    returns: list[tuple[int, float]] = []
    waiting: deque[Any] = deque()
    started = time.monotonic()
    taken = 0
    while taken < steps:
        decision = policy.act(observation)
        result = environment.step(decision.action)
        final_values = policy.final_values(result.final_observation, result.truncated)
        waiting.extend(builder.record(decision, result, final_values))
        observation = result.observation
        taken += NUM_ENVS
        returns += [(taken, episode.game_return) for episode in result.episodes]
        while len(waiting) >= params.batch_size:
            staging = buffers.take()
            assert staging is not None
            staging.fill([waiting.popleft() for _ in range(params.batch_size)])
            batch, _ = buffers.upload(staging)
            for _ in updater.updates_from(batch, taken):
                published.append(snapshot(updater.online, updater.updates + 1, 1, {}))
            buffers.give_back(staging)
            policy.load(published[0])
    environment.close()
    late = [value for at, value in returns if at > steps // 2]
    last = [value for at, value in returns if at > steps - steps // 10]
    return {
        "lag_versions": lag_versions,
        "corrected": corrected,
        "seed": seed,
        "mean_return_second_half": statistics.fmean(late) if late else 0.0,
        "mean_return_last_tenth": statistics.fmean(last) if last else 0.0,
        "updates": updater.updates,
        "seconds": time.monotonic() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=160_000, help="agent steps a run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[4, 5, 6])
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 10, 50], help="in published versions")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="parameter=value",
        help="such as learningRate=0.001",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    without_lag: dict[bool, float] = {}
    for lag in arguments.lags:
        for corrected in (True, False):
            results = []
            for seed in arguments.seeds:
                results.append(run(lag, corrected, seed, arguments.steps, arguments.overrides))
                report("lag_ablation", **results[-1])
            scores = [result["mean_return_second_half"] for result in results]
            mean = statistics.fmean(scores)
            if lag == 0:
                without_lag[corrected] = mean
            report(
                "lag_ablation_cell",
                lag_versions=lag,
                corrected=corrected,
                seeds=len(scores),
                mean=mean,
                share_of_score_without_lag=mean / without_lag[corrected] if corrected in without_lag else None,
                mean_last_tenth=statistics.fmean(result["mean_return_last_tenth"] for result in results),
                lowest=min(scores),
                highest=max(scores),
            )
    report("lag_ablation_machine", steps=arguments.steps, machine=machine())


if __name__ == "__main__":
    main()
