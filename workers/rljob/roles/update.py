"""The update that a learner makes, where and as it is fastest: the device, the arithmetic, the threads, a graph or a compiler."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from rljob.algorithms.base import AnyAlgorithm, UnrollAlgorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import RLJob, quantity
from rljob.envs import EnvironmentSpec
from rljob.learner import places
from rljob.learner.optim import cuda_graphs, precision
from rljob.learner.optim.compiled_later import check_compiler
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.update_trial import first_minibatch
from rljob.learner.optim.updater import make_updater, trial_update


def fastest_update(
    job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, candidates: Sequence[torch.device]
) -> places.Ready:
    """The job's updater on one of ``candidates``, of which the first is to be preferred. Nothing is learned yet.

    Raises UsageError where the job asks for a compiler that is missing.
    """
    compiled = job.spec.algorithm.parameters.compile  # which takes longer than its measurement would tell
    found = places.choose(
        candidates[:1] if compiled else candidates,
        partial(_ready, job, method, environment),
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


def _ready(job: RLJob, method: AnyAlgorithm, environment: EnvironmentSpec, device: torch.device) -> places.Ready:
    """The job's updater on ``device``, as it is fastest there."""
    params = job.spec.algorithm.parameters
    threads = _threads(job, params, device)
    online = _network(job, method, environment).to(device)
    example = method.example(environment, params, online, device)
    graphs = cuda_graphs.wanted(device, params.compile)
    measured = precision.choose(
        params.precision, online, partial(trial_update, method, params), example, as_graphs=graphs
    )
    online.compute(measured.place.compute)
    updater = make_updater(method, params, online, device, threads)
    if params.compile:
        check_compiler(device)
        updater.compile()
    batch = partial(example_batch, method, params, environment, online, device)
    if params.compile:
        updater.differentiated(first_minibatch(updater, batch()))  # before a thread serves: see CompiledLater
    if graphs:
        cuda_graphs.choose(updater, batch())
    return places.Ready(updater, measured, threads, batch)


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
