"""Acting in fp32, bf16 and int8 on one core: microseconds of a batch, equal greedy actions, and the score of a trained policy.

    python -m benchmarks.acting_precision [--avx2] [--rounds 5]
    python -m benchmarks.acting_precision --policy RUN [--observations 10000] [--games 100]

Each way is as a role computes it (``rljob.acting``). "loading int8" is what rounding its weights takes, each time that there are
newer ones. The random frames of the first kind of figures cost what others do. The second is of a trained policy: scales from its
first 256 observations, compared on those after; games are played in int8 with the scales that agree most, as an actor would take
them, and in bf16 where the processor has it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.acting.network import WITHIN, Int8Trunk, acting_copy
from rljob.algorithms.compute import Compute, denormals_as_zero, native_arithmetic
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import load_manifest
from rljob.checkpoints.location import location
from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
from rljob.evaluation.player import _copies, judged_policy
from torch import nn

from benchmarks.common import limit_to_avx2, machine, report
from tests.support.scoring import score
from tests.support.specs import spec_of


def int8_copy(network: FrameNetwork, observations: Any, within: float = WITHIN[0]) -> tuple[nn.Module, Int8Trunk]:
    """A copy of ``network`` that acts in int8, with scales from ``observations``."""
    trunk = Int8Trunk(acting_copy(network, Compute()))
    trunk.calibrate(torch.as_tensor(observations), within)
    trunk.quantize()
    return trunk.network, trunk


JOBS = ("pong-vtrace", "pong-apex", "pong-impala-nature", "pong-apex-nature", "cartpole-impala")
BATCHES = (16, 64)
_SECONDS = 0.4


def speed(rounds: int) -> None:
    """Microseconds of a core that a batch takes, in each way, and the share of it in layers that int8 covers."""
    for name in JOBS:
        for batch in BATCHES:
            ways, share = _ways(name, batch)
            best: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, run in ways.items():
                    best[way].append(_microseconds(run))
            figures = {way: statistics.median(taken) for way, taken in best.items()}
            fastest = {
                precision: min(taken for way, taken in figures.items() if way.startswith(precision))
                for precision in ("fp32", "bf16", "int8")
                if any(way.startswith(precision) for way in ways)
            }
            others = min(taken for precision, taken in fastest.items() if precision != "int8")
            ratio = others / fastest["int8"] if "int8" in fastest else 0.0
            report("acting", job=name, batch=batch, **figures, int8_gain=ratio, covered_share=share)


def _ways(name: str, batch: int) -> tuple[dict[str, Callable[[], object]], float]:
    network, method, shown, memory = _network(name, batch)
    plans = network.compute_plans("Auto", native=native_arithmetic(torch.device("cpu")))
    ways: dict[str, Callable[[], object]] = {}
    for plan in plans:
        ways[str(plan)] = partial(method.infer, acting_copy(network, plan), shown, memory)
    quantized, trunk = int8_copy(network, shown)
    ways["int8"] = partial(method.infer, quantized, shown, memory)
    ways["loading int8"] = trunk.quantize
    plain = acting_copy(network, Compute())
    spent = [0.0, 0.0]

    def began(*_: object) -> None:
        spent[1] = time.thread_time()

    def ended(*_: object) -> None:
        spent[0] += time.thread_time() - spent[1]

    for part in (plain.convolutions, plain.dense):
        if len(part):
            part.register_forward_pre_hook(began)
            part.register_forward_hook(ended)
    for _ in range(20):
        method.infer(plain, shown, memory)
    spent[0], start = 0.0, time.thread_time()
    for _ in range(100):
        method.infer(plain, shown, memory)
    return ways, spent[0] / (time.thread_time() - start)


def _network(name: str, batch: int) -> tuple[FrameNetwork, Any, np.ndarray, np.ndarray]:
    job = load_manifest(Path(f"manifests/examples/{name}.yaml"))
    parameters, env = job.spec.algorithm.parameters, job.spec.environment.parameters
    method = algorithm(job.spec.algorithm.name)
    random = np.random.default_rng(0)
    if name.startswith("cartpole"):
        spec = spec_of(name, (4,), "float32", 1, 2)
        shown = random.normal(size=(batch, *spec.observation_shape)).astype(np.float32)
    else:
        side = env.atari.frame_size
        spec = spec_of(name, (side, side), "uint8", 4, 3)
        shown = random.integers(0, 256, (batch, 4, side, side), np.uint8)
    torch.manual_seed(0)
    network = method.build(spec, parameters, env)
    return network, method, shown, np.zeros((batch, 2, method.memory_units(parameters)), np.float32)


def agreement(source: str, observations: int, games: int) -> None:
    """The share of observations of games played in fp32 for which each way has the same greedy action, and each way's score."""
    policy = load_policy(location(source))
    name = str(policy.manifest["algorithm"])
    method, identity = algorithm(name), PolicyIdentity.of(policy.manifest).judged
    seen: list[Any] = []
    plain = acting_copy(policy.module, Compute())  # type: ignore[arg-type]

    def played(network: nn.Module, keep: bool = False) -> list[float]:
        judged, envs = judged_policy(method, network, identity.params), _copies(identity, 16)

        def act(observation: Any, those: Any) -> Any:
            if keep:
                seen.append(np.array(observation))
            return judged(observation, those)

        count, epsilon = games, method.evaluation_epsilon(identity.params)
        found = score(act, envs, count, 1, epsilon, spec=identity.spec)
        for env in envs:
            env.close()
        return list(found.returns)

    ways: dict[str, nn.Module] = {"fp32": plain}
    scores = {"fp32": played(plain, keep=True)}
    shown = np.concatenate(seen)
    # Scales from the first 256 of them, and all that is compared from the games after.
    calibration, rest = shown[:256], shown[256:]
    rest = rest[np.random.default_rng(0).permutation(len(rest))[:observations]]
    if "bf16" in native_arithmetic(torch.device("cpu")):
        ways["bf16"] = acting_copy(policy.module, Compute("bf16"))  # type: ignore[arg-type]
    for within in WITHIN:
        ways[f"int8, scales for {within}"] = int8_copy(policy.module, calibration, within)[0]  # type: ignore[arg-type]
    greedy: dict[str, Any] = {}
    for way, network in ways.items():
        parts = [rest[start : start + 16] for start in range(0, len(rest) - 15, 16)]
        memory = np.zeros((16, 2, method.memory_units(identity.params)), np.float32)
        numbers = [method.preferences(method.infer(network, part, memory).outputs) for part in parts]
        greedy[way] = torch.cat(numbers).argmax(1)
    equal = {way: float((actions == greedy["fp32"]).float().mean()) for way, actions in greedy.items()}
    for way, share in equal.items():
        report("equal_greedy_actions", way=way, share=share, of=len(greedy[way]))
    taken = max((way for way in ways if way.startswith("int8")), key=equal.__getitem__)
    for way in ("fp32", "bf16", taken):
        if way not in scores and way in ways:
            scores[way] = played(ways[way])
        if returns := scores.get(way):
            error = statistics.stdev(returns) / len(returns) ** 0.5
            report("policy", way=way, mean=statistics.fmean(returns), standard_error=error, games=len(returns))


def _microseconds(run: Callable[[], object]) -> float:
    for _ in range(5):
        run()
    start, calls = time.thread_time(), 0
    while (spent := time.thread_time() - start) < _SECONDS:
        run()
        calls += 1
    return 1e6 * spent / calls


@denormals_as_zero()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", help="a run or a checkpoint: compare what it does in place of how long it takes")
    parser.add_argument("--observations", type=int, default=10_000)
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--avx2", action="store_true", help="hold torch and oneDNN to AVX2 arithmetic")
    options = parser.parse_args()
    if options.avx2 and "ATEN_CPU_CAPABILITY" not in os.environ:
        limit_to_avx2()
        sys.exit(
            subprocess.run([sys.executable, "-m", "benchmarks.acting_precision", *sys.argv[1:]], check=False).returncode
        )
    torch.set_num_threads(1)
    report("machine", **machine())
    if options.policy:
        agreement(options.policy, options.observations, options.games)
    else:
        speed(options.rounds)


if __name__ == "__main__":
    main()
