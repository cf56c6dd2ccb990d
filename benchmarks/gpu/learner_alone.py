"""Step 3, five minutes: the learner alone, on batches that lie on the GPU, in every arithmetic, by every way to start kernels.

Ape-X with 512 transitions and IMPALA with 32 unrolls of 20 steps, 84x84, Nature network: updates a second in fp32, tf32, bf16
and fp16, by eager kernels, by a CUDA graph of them, and by ``torch.compile`` (and a graph of that, with ``--ways``). Beside each
the most that its floating-point operations would allow at the rate at which this GPU multiplies large matrices, measured in the
same process. The graph is the learner's own, with its own check against the eager update, and counts only where it passes; its
largest difference is a figure.

Cheap things first, so that an end in the middle costs the dearest: eager, then graphs, then compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from rljob.algorithms.compute import Arithmetic, Compute, let_round_to_tf32, native_arithmetic
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.envs import EnvironmentSpec
from rljob.learner.optim.on_device import cuda_graph
from rljob.learner.optim.update_trial import captured_and_checked
from rljob.learner.optim.updater import AnyUpdater, make_updater
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.bench import Figures, begin, options, rate
from tests.support.specs import spec_of

WAYS = ("eager", "graph", "compiled", "compiled graph")


def spec(side: int) -> EnvironmentSpec:
    """An Atari game's frames, without the game."""
    return spec_of("Benchmark/Frames-v0", (side, side), "uint8", 4, 6, 4, "benchmark")


def learners(*, tiny: bool) -> dict[str, tuple[EnvironmentSpec, Any]]:
    """Frames and parameters of each algorithm; ``tiny``: small enough for a test on a CPU."""
    small = {"network": "Compact", "hidden_units": 16}
    if tiny:
        return {
            "ApeXDQN": (spec(42), ApeXDQNParameters.model_validate({"batch_size": 8, **small})),
            "IMPALA": (spec(42), ImpalaParameters.model_validate({"batch_size": 2, "unroll_length": 4, **small})),
        }
    published = {"network": "Nature", "optimizer": "CentredRMSProp", "gradient_clip_norm": 40.0}
    return {
        "ApeXDQN": (spec(84), ApeXDQNParameters.model_validate({"batch_size": 512, **published})),
        "IMPALA": (
            spec(84),
            ImpalaParameters.model_validate(
                {"batch_size": 32, "unroll_length": 20, "network": "Nature", "hidden_units": 512}
            ),
        ),
    }


def learner(name: str, frames: EnvironmentSpec, params: Any, plan: Compute, device: torch.device) -> AnyUpdater:
    """One that has made no update; all of a name begin with the same weights."""
    torch.manual_seed(0)
    method = algorithm(name)
    network = method.build(frames, params, EnvironmentParameters()).to(device).compute(plan)
    return make_updater(method, params, network, device)


def batch_of(name: str, frames: EnvironmentSpec, params: Any, device: torch.device) -> Any:
    """A batch of the job's shape, on the device, with rewards that teach something."""
    online = learner(name, frames, params, Compute(), device).online
    batch = algorithm(name).example(frames, params, online, device)
    generator = torch.Generator().manual_seed(1)
    field = "n_step_return" if hasattr(batch, "n_step_return") else "reward"
    old = getattr(batch, field)
    return batch._replace(**{field: torch.randn(old.shape, generator=generator).to(device)})


def plans(arithmetic: Arithmetic, device: torch.device) -> Iterator[Compute]:
    """The orders in memory that are tried: on a GPU tensor cores like channels last."""
    yield Compute(arithmetic)
    if device.type == "cuda":
        yield Compute(arithmetic, channels_last=True)


def main() -> None:
    parser = options(__doc__, 270.0)
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=None, help="default: the first three; on a CPU eager alone"
    )
    parser.add_argument("--plans", nargs="+", help='of the arithmetic, as "bf16 channels-last"; default: all')
    arguments = parser.parse_args()
    figures = begin("learner alone", arguments, packages=["pydantic"])
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    ways = arguments.ways or (WAYS[:3] if cuda else WAYS[:1])
    jobs = learners(tiny=not cuda)
    native = native_arithmetic(device)
    tried = [
        (arithmetic, plan)
        for arithmetic in native
        for plan in plans(arithmetic, device)
        if arguments.plans is None or str(plan) in arguments.plans
    ]
    each_seconds = arguments.seconds / (len(jobs) * max(1, len(tried)) * len(ways) * 1.6)
    peaks = {arithmetic: peak(figures, arithmetic, device) for arithmetic, _ in tried}
    for way in ways:
        for name, (frames, params) in jobs.items():
            batch = batch_of(name, frames, params, device)
            for arithmetic, plan in tried:
                about = {"learner": name, "plan": str(plan), "way": way, "batch": params.batch_size}
                with figures.trying("updates", **about):
                    measure(figures, about, name, frames, params, plan, device, batch, peaks[arithmetic], each_seconds)


def measure(figures: Figures, about: dict[str, Any], name: str, frames: EnvironmentSpec, params: Any, plan: Compute,
            device: torch.device, batch: Any, peak_flops: float, seconds: float) -> None:  # fmt: skip
    """One line: updates a second of one learner, one plan, one way."""
    each = learner(name, frames, params, plan, device)
    way = about["way"]

    def update() -> None:
        list(each.updates_from(batch, 0))

    with FlopCounterMode(display=False) as counted:
        update()
    flops = float(counted.get_total_flops())
    if way.startswith("compiled"):
        each.compile()
    if way.endswith("graph"):
        each.captured, difference = captured_and_checked(each, batch, cuda_graph)  # type: ignore[assignment]
        figures.write("graph against eager", **about, difference=difference)
    found = rate(update, seconds, device, warm_up=10 if device.type == "cuda" else 1)
    limit = peak_flops / flops if flops else None
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    figures.write(
        "updates",
        **about,
        updates_per_second=found,
        gigaflops_per_update=flops / 1e9,
        limit_updates_per_second=limit,
        of_limit=found / limit if limit else None,
        most_memory_bytes=memory,
        recompiles=each.recompiles,
    )


def peak(figures: Figures, arithmetic: Arithmetic, device: torch.device) -> float:
    """Floating-point operations a second of a product of large matrices."""
    if device.type == "cuda":
        let_round_to_tf32(arithmetic)
    half = Compute(arithmetic).half or torch.float32
    side = 8192 if device.type == "cuda" else 128
    left, right = (torch.randn(side, side, device=device).to(half) for _ in range(2))
    found = 2.0 * side**3 * rate(lambda: left @ right, 0.5 if device.type == "cuda" else 0.05, device)
    figures.write("peak", arithmetic=arithmetic, teraflops=found / 1e12)
    return found


if __name__ == "__main__":
    main()
