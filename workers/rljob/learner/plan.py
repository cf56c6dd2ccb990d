"""How a learner makes its updates, planned before it trains: the device, the arithmetic and its order in memory, the threads,
and on a GPU a graph. One short trial a choice, of updates of the job's own; measured, not guessed.

A network's arithmetic alone would tell too little. On a GPU a small update is mostly the starting of its kernels, which a
graph takes away, and on a CPU the optimiser and the job's cores count. bf16 halves an update where the processor multiplies
it natively (AVX-512 bf16, AMX, a GPU); where it is emulated an update takes six times as long, so that trying it alone
would hold up the start by half a minute. Channels-last helps some convolutions and hurts others; blocks of pixels as
channels halve the time of a first convolution on some processors. On a GPU whose kernels a CUDA graph will start, the
updates are timed as graphs: started one by one, kernels of a few microseconds take as long in any arithmetic as the host
takes to start them.

Whether a compiler helps is found later, while it trains (`optim.compiled_later`): to compile takes most of a minute.
"""

import copy
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from rljob.algorithms.base import AnyAlgorithm, UnrollAlgorithm
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
from rljob.errors import first_line
from rljob.learner.optim.captured_update import cuda_graph
from rljob.learner.optim.compiled_later import check_compiler
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.update_trial import KeptState, choose_graph, first_minibatch, graph_wanted
from rljob.learner.optim.updater import AnyUpdater, make_updater, trial_update

log = logging.getLogger(__name__)


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
    learner has found, which is taken.

    On a GPU at least one update is tried: what it took of the memory there is torch's from then on, and what is free is free.
    """
    device = next(network.parameters()).device
    plans: Sequence[Compute] = network.compute_plans(precision, native=native_arithmetic(device))
    plans = [plan for plan in plans if str(plan) == way] or plans

    def run(trial: FrameNetwork) -> None:
        if device.type == "cuda":
            let_round_to_tf32(trial.plan.arithmetic)
        update(trial, batch)

    runs: dict[Compute, Callable[[], object]]
    runs = {plan: partial(run, copy.deepcopy(network).compute(plan)) for plan in plans}
    if device.type == "cuda":
        runs = {plan: partial(_finished, _replayed(each) if as_graphs else each) for plan, each in runs.items()}
        if len(runs) == 1:
            runs[plans[0]]()
    chosen, seconds = fastest(runs, time.perf_counter, budget_seconds)
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


HOPELESS: Final = 4.0
"""So many times as long as a whole update on the first device a plain one may take on the second, for its other ways to be tried:
no order in memory and no arithmetic of 16 bits makes up for more."""
_LONG_SECONDS: Final = 0.5
_BUDGET_SECONDS: Final = 1.0


class Plan(NamedTuple):
    """An updater on one device, in the way that is fastest there. ``example`` makes a whole batch of the job's shape."""

    updater: AnyUpdater
    measured: Measured
    threads: DataParallelThreads
    example: Callable[[], Any]


def fastest_device(
    devices: Sequence[torch.device],
    ready: Callable[[torch.device], Plan],
    trial: Callable[[torch.device], object],
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """``ready`` of the device where updates are faster, with the seconds of one on each; of an only one without that.

    ``devices``: one, or two, the one to be preferred first. ``trial`` makes a plain update, without an optimiser. No updater has
    learned anything afterwards.
    """
    first = ready(devices[0])
    if len(devices) == 1:
        return first
    with ExitStack() as trials:
        place = DeviceCompute(devices[0], first.measured.place.compute)
        ways, runs = {place: first}, {place: _updates(first, trials)}
        took = min(_timed(runs[place], clock) for _ in range(3))
        plain = _timed(partial(trial, devices[1]), clock)
        if plain > max(_LONG_SECONDS, HOPELESS * took):
            seconds = {str(place): took, f"{devices[1]}, tried once": plain}
        else:
            other = ready(devices[1])
            place = DeviceCompute(devices[1], other.measured.place.compute)
            ways[place], runs[place] = other, _updates(other, trials)
            place, measured = fastest(runs, clock, _BUDGET_SECONDS)
            seconds = {str(each): taken for each, taken in measured.items()}
    log.info("the learner computes on %s: an update took %s", place, told(seconds))
    if place.device.type == "cpu" and devices[0].type == "cuda":
        torch.cuda.empty_cache()
    return ways[place]._replace(measured=Measured(place, seconds))


def _updates(ready: Plan, trials: ExitStack) -> Callable[[], None]:
    """One whole update, whose traces go when ``trials`` end."""
    trials.callback(KeptState(ready.updater).put_back)
    minibatch = first_minibatch(ready.updater, ready.example())

    def update() -> None:
        ready.updater.learn(minibatch, 0)
        if ready.updater.device.type == "cuda":
            torch.cuda.synchronize()

    return update


def _timed(run: Callable[[], object], clock: Callable[[], float]) -> float:
    begun = clock()
    run()
    return clock() - begun


def make_plan(
    job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, candidates: Sequence[torch.device], way: str = ""
) -> Plan:
    """The job's updater on one of ``candidates``, of which the first is to be preferred. Nothing is learned yet. One process of
    several computes on that one, in the arithmetic that the first has found (``way``).

    Raises UsageError where the job asks for a compiler that is missing.
    """
    compiled = job.spec.algorithm.parameters.compile  # which takes longer than its measurement would tell
    found = fastest_device(
        candidates[:1] if compiled or job.spec.learner.processes > 1 else candidates,
        partial(_plan_on, job, method, environment, way),
        partial(_plain_update, job, method, environment),
    )
    if found.updater.device.type != "cpu":
        torch.set_num_threads(_processors(job))  # updates on trial on the CPU had threads of their own
    return found


def _processors(job: RLJob) -> int:
    """Those that the manifest asks for, rounded, at least one."""
    return max(1, round(quantity(job.spec.learner.resources.requests.get("cpu", "1"))))


def _threads(job: RLJob, params: Any, device: torch.device) -> DataParallelThreads:
    """How the processors that the manifest asks for are used: each for a share of every update.

    A compiled update is left to torch's own threads; on a GPU there is nothing to share out.
    """
    processors = _processors(job)
    torch.set_num_threads(processors)
    return DataParallelThreads(1 if device.type != "cpu" or params.compile else processors)


def _plan_on(job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, way: str, device: torch.device) -> Plan:
    """The job's updater on ``device``, as it is fastest there."""
    params, processes = job.spec.algorithm.parameters, job.spec.learner.processes
    threads = _threads(job, params, device)
    online = _network(job, method, environment).to(device)
    share = params.updated(batch_size=params.batch_size // processes) if processes > 1 else params
    example = method.example(environment, share, online, device)
    # The sum over processes lies between gradient and step, where a graph of both can't wait for it.
    graphs = processes == 1 and graph_wanted(device, params.compile)
    measured = fastest_arithmetic(
        params.precision, online, partial(trial_update, method, params), example, as_graphs=graphs, way=way
    )
    online.compute(measured.place.compute)
    updater = make_updater(method, params, online, device, threads)
    if params.compile:
        check_compiler(device)
        updater.compile()
    batch = partial(example_batch, method, share, environment, online, device)
    if params.compile:
        updater.differentiated(first_minibatch(updater, batch()))  # before a thread serves: see CompiledLater
    if graphs:
        choose_graph(updater, batch())
    return Plan(updater, measured, threads, batch)


def _plain_update(job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, device: torch.device) -> None:
    params, online = job.spec.algorithm.parameters, _network(job, method, environment).to(device)
    trial_update(method, params, online, method.example(environment, params, online, device))


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
