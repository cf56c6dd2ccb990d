"""What adding up gradients takes of an update, for two processes of one learner: ``python -m benchmarks.reduction``.

Ape-X's dueling network at 84x84 (13 MB of gradients), 256 transitions a rank, one thread each, over loopback. Prints, for each
rank, the median milliseconds of an update, of its sum over ranks (waiting for the other included), and their ratio.
"""

import multiprocessing
import statistics
import time
from typing import Any

import torch
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.envs import describe_environment
from rljob.learner.optim.updater import make_updater
from rljob.learner.plan import example_batch
from rljob.learner.ranks import Meeting, Ranks

UPDATES = 20


class Timed(Ranks):
    """Ranks whose sums are timed."""

    seconds = 0.0

    def sum(self, numbers: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        began = time.perf_counter()
        super().sum(numbers)
        self.seconds = time.perf_counter() - began
        return numbers


def rank(number: int, port: int, found: Any) -> None:
    """One of the two."""
    torch.set_num_threads(1)
    meeting = Meeting(number, 2, ("127.0.0.1", port), 1, {})
    meeting.agree()
    meeting.group(torch.device("cpu"))
    params, device = ApeXDQNParameters(batch_size=256), torch.device("cpu")
    method, env_params = algorithm("ApeXDQN"), EnvironmentParameters()
    environment = describe_environment("ALE/Pong-v5", env_params)
    torch.manual_seed(0)
    updater = make_updater(method, params, method.build_learner(environment, params, env_params), device)
    updater.join(timed := Timed(number, 2))
    batch = example_batch(method, params, environment, updater.online, device)
    rows = []
    for _ in range(UPDATES):
        began = time.perf_counter()
        list(updater.updates_from(batch, 0))
        rows.append((time.perf_counter() - began, timed.seconds))
    size = sum(each.numel() for each in updater.online.parameters()) * 4e-6
    found.put((number, size, *(1e3 * statistics.median(each) for each in zip(*rows[2:], strict=True))))


def main() -> None:
    """Start both, and print."""
    from tests.support.ports import free_ports

    spawn = multiprocessing.get_context("spawn")
    (port,), found = free_ports(1), spawn.Queue()
    both = [spawn.Process(target=rank, args=(number, port, found)) for number in range(2)]
    for each in both:
        each.start()
    for number, size, update, reducing in sorted(found.get() for _ in both):
        print(f"rank {number}: {size:.1f} MB, update {update:.1f} ms, sum {reducing:.1f} ms: {reducing / update:.1%}")


if __name__ == "__main__":
    main()
