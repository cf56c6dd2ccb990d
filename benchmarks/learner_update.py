"""The bare learner update: double DQN on one batch in memory, no replay, no wire. One JSON line a result, under a minute.

Each core takes a share of the batch, as in the learner. Each figure is the best of several rounds: the ceiling that an
end-to-end run on this machine is compared with. The plans of one network take turns, round by round, so that a machine that
slows down slows all of them; the processor time of an update is what other work on the machine disturbs least.
"""

from __future__ import annotations

import time

import torch
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.apex_dqn.network import QNetwork, QNetworkConfig
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Compute, native_arithmetic
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import TransitionUpdater

from benchmarks.common import machine, report
from tests.support.specs import spec_of

ROUNDS = 5
ROUND_SECONDS = 0.7


def main() -> None:
    report("machine", **machine())
    nature = QNetworkConfig("Nature", spec_of("84x84", (84, 84), "uint8", 4, 6), dueling=False)
    centred = EnvironmentParameters(input_scale=1 / 24, centre_input=True)
    compact = QNetworkConfig("Compact", spec_of("42x42", (42, 42), "uint8", 4, 3), centred, layer_norm=True)
    torch.set_num_threads(1)
    measure("compact_norm_42x42", compact, batch_size=128, cores=1)
    measure("nature_84x84", nature, batch_size=32, cores=2)


def measure(name: str, config: QNetworkConfig, *, batch_size: int, cores: int) -> None:
    """Report updates/s of every way of computing for one network and batch size."""
    plans = QNetwork(config).compute_plans("Auto", native=native_arithmetic(torch.device("cpu")))
    batch = random_batch(config, batch_size)
    threads = DataParallelThreads(cores)
    updaters = {plan: updater(config, plan, batch_size, threads) for plan in plans}
    best = dict.fromkeys(plans, float("inf"))
    best_cpu = dict.fromkeys(plans, float("inf"))
    for _ in range(ROUNDS):
        for plan, each in updaters.items():
            each.update(batch, 0)
            updates, start, cpu = 0, time.perf_counter(), time.process_time()
            while (elapsed := time.perf_counter() - start) < ROUND_SECONDS:
                each.update(batch, 0)
                updates += 1
            best[plan] = min(best[plan], elapsed / updates)
            best_cpu[plan] = min(best_cpu[plan], (time.process_time() - cpu) / updates)
    for plan, seconds in best.items():
        report(
            "learner_update",
            network=name,
            batch=batch_size,
            cores=cores,
            plan=str(plan),
            updates_per_second=1.0 / seconds,
            cpu_milliseconds_per_update=1e3 * best_cpu[plan],
            microseconds_per_sample=1e6 * seconds / batch_size,
            against_plain=best[plans[0]] / seconds,
        )


def updater(config: QNetworkConfig, plan: Compute, batch_size: int, threads: DataParallelThreads) -> TransitionUpdater:
    torch.manual_seed(0)
    params = ApeXDQNParameters.model_validate({"batch_size": batch_size})
    network = QNetwork(config).compute(plan)
    return TransitionUpdater(ApeXDQN(), params, network, torch.device("cpu"), threads)


def random_batch(config: QNetworkConfig, size: int) -> TransitionBatch:
    shape = (size, *config.spec.observation_shape)
    return TransitionBatch(
        observation=torch.randint(0, 256, shape, dtype=torch.uint8),
        next_observation=torch.randint(0, 256, shape, dtype=torch.uint8),
        action=torch.randint(0, config.spec.num_actions, (size,)),
        n_step_return=torch.randn(size),
        discount=torch.full((size,), 0.97),
        weight=torch.ones(size),
    )


if __name__ == "__main__":
    main()
