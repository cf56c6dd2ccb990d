"""How a learner computes, settled by ``make_plan`` before it trains and not changed while it does. Its choices, in their order:

| choice | from | why |
|---|---|---|
| device | the job, what is there; beside a GPU a trial on the CPU | what is shorter than any update on a GPU stays there |
| threads | the processors that the job asks for | each computes its share of an update |
| arithmetic, memory order | a trial of each that the job allows | bf16 halves an update, or makes it six times as long |
| compiled or not | the job; else its budget of updates, and a trial | a compiler takes ten seconds, and halves a short update |
| CUDA graph | the job; whether a graph learns the same | faster in every measurement (docs/performance/2026-11-27-gpu.md) |
| place of the replay's mirror | the device's free memory | a batch crosses the bus as 16 kB instead of 29 MB |

Nothing is learned by a trial. On a GPU whose kernels a CUDA graph will start, the ways are timed as graphs: started one by one,
kernels of a few microseconds take as long in any arithmetic as the host takes to start them.
"""

import copy
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.compute import (
    Compute,
    DeviceCompute,
    Measured,
    fastest,
    let_round_to_tf32,
    native_arithmetic,
    told,
)
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import RLJob, quantity
from rljob.envs import EnvironmentSpec
from rljob.errors import UsageError, first_line
from rljob.learner.client import in_flight
from rljob.learner.device_mirror import DeviceMirror, MirrorSize, mirror_for
from rljob.learner.optim.on_device import cuda_graph
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.update_trial import capture_if_it_learns_the_same, differences, first_minibatch
from rljob.learner.optim.updater import AnyUpdater, make_updater, trial_update
from rljob.replay.config import capacity_of
from rljob.threads import usable_cores

log = logging.getLogger(__name__)


class Plan(NamedTuple):
    """An updater that computes as was chosen. ``example`` makes a whole batch of the job's shape. ``mirror``: of the replay, on
    the learner's device, or None; ``mirror_place`` says where it is and why, None for a job without a replay."""

    updater: AnyUpdater
    measured: Measured
    example: Callable[[], Any]
    mirror: DeviceMirror | None = None
    mirror_place: str | None = None


def make_plan(
    job: RLJob,
    method: AnyAlgorithm,
    environment: EnvironmentSpec,
    candidates: Sequence[torch.device],
    *,
    rank: int = 0,
    way: str = "",
    may_compile: bool = False,
) -> Plan:
    """The job's updater on one of ``candidates``, of which the first is to be preferred. Nothing is learned yet.

    Of several processes this is the one of ``rank``; it computes in the arithmetic that the first has found (``way``).
    ``may_compile``: where the job leaves it open, a compiler may be used if there is one.

    Raises UsageError where the job asks for a compiler that is missing.
    """
    params, processes = job.spec.algorithm.parameters, job.spec.learner.processes
    device, tried = _device(job, method, environment, candidates)
    threads = _threads(job, device)
    online = _network(job, method, environment).to(device)
    share = params.updated(batch_size=params.batch_size // processes) if processes > 1 else params
    example = method.example(environment, share, online, device)
    # The sum over processes lies between gradient and step, where a graph of both can't wait for it.
    graph = device.type == "cuda" and processes == 1 and params.compile is not False
    measured = fastest_arithmetic(
        params.precision, online, partial(trial_update, method, params), example, as_graphs=graph, way=way
    )
    online.compute(measured.place.compute)
    updater = make_updater(method, params, online, device, threads)
    batch = partial(example_batch, method, share, environment, online, device)
    if params.compile:
        check_compiler(device)
        updater.compile()
        updater.differentiated(first_minibatch(updater, batch()))  # while no other thread calls a network, see below
    elif params.compile is None and may_compile and device.type == "cpu" and threads.count == processes == 1:
        updater = compiled_if_it_pays(updater, batch(), _planned_updates(job, method, environment, updater, batch()))
    if graph:
        capture_if_it_learns_the_same(updater, batch())
    mirrored = (
        _mirror(job, method, environment, device, rank) if isinstance(method, TransitionAlgorithm) else (None, None)
    )
    return Plan(updater, Measured(measured.place, {**tried, **measured.seconds}), batch, *mirrored)


def _network(job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec) -> FrameNetwork:
    params = job.spec.algorithm.parameters
    torch.manual_seed(job.spec.seed)
    network: FrameNetwork = method.build_learner(environment, params, job.spec.environment.parameters)
    return network


def example_batch(
    method: AnyAlgorithm, params: Any, environment: EnvironmentSpec, online: FrameNetwork, device: torch.device
) -> Any:
    """A whole batch of the job's own shape, to try updates on."""
    if isinstance(method, UnrollAlgorithm):
        return method.example_batch(environment, params, device)
    return method.example(environment, params, online, device)


def _mirror(
    job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, device: torch.device, rank: int
) -> tuple[DeviceMirror | None, str]:
    """The mirror of this process's shards on ``device``, where it fits beside updates, of which one was tried there; and why."""
    params, replay = job.spec.algorithm.parameters, job.spec.required_replay.resolved()
    layout = method.layout(environment, params)
    own = range(replay.shards)[rank :: job.spec.learner.processes]
    size = MirrorSize(layout, capacity_of(replay).chunks(layout), len(own), replay.capacity)
    return mirror_for(size, params.batch_size, in_flight(params.prefetch_batches, len(own)), device)


# ------------------------------------------------------------------------------------------------------ device and threads

SHORTEST_ON_A_GPU: Final = 0.9e-3
"""Seconds of the shortest update that was measured on an H200, as a CUDA graph: SAC's on HalfCheetah. Ape-X with batches of 512
at 84x84 took 1.4 ms, and 1,350 on 16 cores."""
_LONG_SECONDS: Final = 0.1


def _device(
    job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, candidates: Sequence[torch.device]
) -> tuple[torch.device, Mapping[str, float]]:
    """The first of ``candidates``, but the second, a CPU, where a plain update there, without an optimiser, is shorter than any
    on a GPU; and how long that took."""
    params = job.spec.algorithm.parameters
    preferred, *others = candidates
    if not others or params.compile or job.spec.learner.processes > 1:  # compiled, it would take longer to find out
        return preferred, {}
    (cpu,) = others
    torch.set_num_threads(_processors(job))
    online = _network(job, method, environment)
    update = partial(trial_update, method, params, online, method.example(environment, params, online, cpu))
    took = _seconds(update, _clock(cpu))
    device = cpu if took < SHORTEST_ON_A_GPU else preferred
    log.info("the learner computes on %s: an update without the optimiser takes the CPU %.2f ms", device, 1e3 * took)
    return device, {f"{cpu} instead of {preferred}": took}


def _clock(device: torch.device) -> Callable[[], float]:
    """What updates on ``device`` are timed by: where this thread computes alone its CPU time, for other processes on the core
    must not decide."""
    return time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """How long it takes: where that is short the best of several, for a first run is then mostly preparation."""
    best = inf
    for _ in range(5):
        began = clock()
        run()
        best = min(best, clock() - began)
        if best > _LONG_SECONDS:
            break
    return best


def _processors(job: RLJob) -> int:
    """Those that the manifest asks for, rounded, at least one."""
    return max(1, round(quantity(job.spec.learner.resources.requests.get("cpu", "1"))))


def _threads(job: RLJob, device: torch.device) -> DataParallelThreads:
    """How the processors that the manifest asks for are used: each for a share of every update.

    A compiled update is left to torch's own threads; on a GPU there is nothing to share out.
    """
    processors = _processors(job)
    torch.set_num_threads(processors)
    return DataParallelThreads(1 if device.type != "cpu" or job.spec.algorithm.parameters.compile else processors)


# ---------------------------------------------------------------------------------------------- arithmetic and memory order


def fastest_arithmetic(
    precision: str,
    network: FrameNetwork,
    update: Callable[[FrameNetwork, Any], None],
    batch: Any,
    budget_seconds: float = 2.0,
    *,
    as_graphs: bool = False,
    way: str = "",
) -> Measured:
    """The fastest allowed way to compute ``update(network copy, batch)`` where ``network`` is; ``network`` is not changed.

    ``as_graphs``: each way is timed as a CUDA graph, of all that can be captured. ``way``: the one that another process of the
    learner has found, which is taken. bf16 is tried only where the processor multiplies it natively (AVX-512 bf16, AMX, a GPU).

    On a GPU at least one update is tried: what it took of the memory there is torch's from then on, and what is free is free.
    """
    device = next(network.parameters()).device
    plans: Sequence[Compute] = network.compute_plans(precision, native=native_arithmetic(device))
    plans = [plan for plan in plans if str(plan) == way] or plans

    def run(trial: FrameNetwork) -> None:
        if device.type == "cuda":
            let_round_to_tf32(trial.plan.arithmetic)
        update(trial, batch)

    runs: dict[Compute, Callable[[], object]] = {
        plan: partial(run, copy.deepcopy(network).compute(plan)) for plan in plans
    }
    if device.type == "cuda":
        runs = {plan: partial(_finished, _replayed(each) if as_graphs else each) for plan, each in runs.items()}
        if len(runs) == 1:
            runs[plans[0]]()
    chosen, seconds = fastest(runs, _clock(device), budget_seconds)
    log.info(
        "precision %s: computing in %s%s", precision, chosen, f"; an update took {told(seconds)}" if seconds else ""
    )
    return Measured(
        DeviceCompute(device, chosen), {str(DeviceCompute(device, plan)): taken for plan, taken in seconds.items()}
    )


def _finished(work: Callable[[], object]) -> None:
    work()
    torch.cuda.synchronize()


def _replayed(work: Callable[[], object]) -> Callable[[], object]:
    """A CUDA graph of ``work``; itself, where there can be none."""
    try:
        return cuda_graph(work)[1]
    except RuntimeError as error:
        log.info("an update is timed without a CUDA graph, for it can't be captured: %s", first_line(error))
        return work


# --------------------------------------------------------------------------------------------------------------- a compiler

# While it traces, a compiler changes for the whole process how modules are called (pytorch#112775), so that no other thread may
# call one: an update is compiled before there are others, or never.

SHORT_SECONDS: Final = 0.003
"""An update that takes longer computes for most of it. On one core one of HalfCheetah's PPO took 1.1 ms, and 0.67 compiled; one
of its SAC 10.4 ms, and 13.8 compiled."""
WORTH_SECONDS: Final = 60.0
"""A compiler takes ten seconds and more, and saves a third to a half: all updates of the job must take so long without it."""
MOST_LOAD: Final = 4.0
"""Processes to a core beyond which a compiler would take minutes: with twelve it took two and three."""
TOLERANCE: Final = 0.01
"""By so much of its length a gradient may differ: a compiler adds up in another order."""
_BUDGET_SECONDS: Final = 0.3


def _planned_updates(
    job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, updater: AnyUpdater, batch: Any
) -> float:
    """Updates until the job's budget of raw frames is used up; without a budget there is no end to them."""
    frames, params = job.spec.success_policy.raw_frames, job.spec.algorithm.parameters
    if isinstance(method, UnrollAlgorithm):
        repeats: float = method.passes(params)
    else:
        repeats = job.spec.required_replay.resolved().samples_per_insert or inf
    steps = inf if frames is None else frames / environment.raw_frames_per_step
    with torch.random.fork_rng([]):
        updates = sum(1 for _ in updater.minibatches(batch))
    return steps * repeats / method.steps_per_batch(params) * updates


def compiled_if_it_pays(updater: AnyUpdater, batch: Any, planned_updates: float) -> AnyUpdater:
    """``updater``, or one of the same networks and optimiser whose updates are compiled, where that is clearly faster for
    ``batch``, learns the same, and takes less than it saves. What speaks against it is logged."""
    if not has_compiler():
        return updater
    minibatch = first_minibatch(updater, batch)
    clock = _clock(updater.device)
    took = _seconds(partial(updater.differentiated, minibatch), clock)
    if took > SHORT_SECONDS or took * planned_updates < WORTH_SECONDS:
        return updater
    if os.getloadavg()[0] > MOST_LOAD * usable_cores():
        log.info("an update of %.2f ms is not compiled: this machine is too busy for a compiler", 1e3 * took)
        return updater
    log.info("an update takes %.2f ms and is compiled, which takes ten seconds and more", 1e3 * took)
    compiled = copy.copy(updater)
    compiled.compile()
    try:
        found = _learned(compiled, minibatch)
    except Exception:  # a compiler raises what it will, and training goes on without one
        log.warning("an update stays as it was: it can't be compiled", exc_info=True)
        return updater
    apart = differences(_learned(updater, minibatch), found)
    if not max(apart.values()) <= TOLERANCE:
        log.warning("an update stays as it was: compiled, these differ: %s", apart)
        return updater
    ways = {"as it was": updater, "compiled": compiled}
    runs = {name: partial(each.differentiated, minibatch) for name, each in ways.items()}
    chosen, seconds = fastest(runs, clock, _BUDGET_SECONDS)
    log.info("an update is computed %s; without the optimiser it took %s", chosen, told(seconds))
    return ways[chosen]


def _learned(updater: AnyUpdater, minibatch: Any) -> dict[str, Tensor]:
    result, gradient = updater.differentiated(minibatch)
    return {"loss": result.value.detach()[None], "gradient": torch.cat([each.float().flatten() for each in gradient])}


def has_compiler() -> bool:
    """Whether there is the C++ compiler that torch looks for."""
    return shutil.which(_compiler()) is not None


def check_compiler(device: torch.device) -> None:
    """Raises UsageError where an update for ``device`` cannot be compiled, as there is no compiler."""
    if device.type == "cpu" and not has_compiler():
        raise UsageError(
            f"compile: true needs the C++ compiler {_compiler()}, which is not found here; install it (the worker image has "
            "none), or take compile out of the algorithm's parameters"
        )


def _compiler() -> str:
    return os.environ.get("CXX", "g++")
