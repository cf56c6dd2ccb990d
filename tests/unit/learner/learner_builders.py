"""Small real things for the learner's tests."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.compute import Compute
from rljob.algorithms.optimizer import RMSProp
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, PPOParameters
from rljob.api.algorithm import AlgorithmSpec
from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import ForkSpec
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.checkpoints.store import CheckpointProblem
from rljob.envs import EnvironmentSpec
from rljob.learner.course import Course
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import make_updater

from tests.support.specs import spec_of

SPEC = spec_of("Test/Vectors-v0", (4,), "float32", 1, 2, 1, "f")
IMAGES = spec_of("Test/Images-v0", (42, 42), "uint8", 4, 3, 4, "g")
ENV_PARAMS = EnvironmentParameters()
CPU = torch.device("cpu")
PLAIN, ORDERED = Compute(), Compute(channels_last=True)
OPTIMIZERS = ("Adam", "RMSProp", "CentredRMSProp")


def parameters(**changes: object) -> ApeXDQNParameters:
    values: dict[str, object] = {
        "batch_size": 16,
        "hidden_units": 16,
        "target_update_interval": 7,
        "learning_rate": 1e-3,
    }
    return ApeXDQNParameters.model_validate({**values, **changes})


def algorithm_of(params: Any) -> Any:
    """The algorithm that these are the parameters of."""
    return next(
        method
        for method in map(algorithm, ("ApeXDQN", "IMPALA", "PPO", "SAC"))
        if isinstance(params, method.parameters)
    )


def updater(
    params: Any,
    spec: EnvironmentSpec = SPEC,
    seed: int = 0,
    plan: Compute = PLAIN,
    threads: DataParallelThreads | None = None,
    device: torch.device = CPU,
    env_params: EnvironmentParameters = ENV_PARAMS,
) -> Any:
    torch.manual_seed(seed)
    method = algorithm_of(params)
    return make_updater(method, params, method.build_learner(spec, params, env_params).compute(plan), device, threads)


UnrollParameters = ImpalaParameters | PPOParameters


def unroll_parameters(kind: str = "IMPALA", **changes: Any) -> Any:
    """Small ones of an algorithm that learns from unrolls."""
    values = {"network": "MLP", "hidden_units": 8, "unroll_length": 5, "batch_size": 4, "learning_rate": 1e-3}
    return algorithm(kind).parameters.model_validate({"precision": "FP32", **values, **changes})


def image_parameters(kind: str = "IMPALA", **changes: Any) -> Any:
    """Small ones for unrolls of ``IMAGES``."""
    return unroll_parameters(kind, **{"network": "Compact", "unroll_length": 4, **changes})


def unrolls_with_ends(params: UnrollParameters, spec: EnvironmentSpec = SPEC, seed: int = 1) -> UnrollBatch:
    """Random numbers, of another policy, with episodes that end both ways."""
    random = torch.Generator().manual_seed(seed)
    steps, unrolls = params.unroll_length, params.batch_size

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    ended = torch.rand(steps, unrolls, generator=random) < 0.2
    return UnrollBatch(
        observation=normal(unrolls, steps + 1, *spec.observation_shape),
        action=torch.randint(0, spec.num_actions, (steps, unrolls), generator=random),
        reward=normal(steps, unrolls),
        discount=params.gamma * ~ended,
        log_prob=-normal(steps, unrolls).abs() - 0.1,
        final_value=normal(steps, unrolls) * ended,
        ended=ended.to(torch.uint8) * 2,
        state=normal(unrolls, 2, params.lstm_units if params.recurrent == "LSTM" else 0),
    )


def batches_of(params: Any, count: int, spec: EnvironmentSpec = SPEC) -> list[Any]:
    """Batches that an algorithm with ``params`` learns from."""
    if isinstance(params, ApeXDQNParameters):
        return batches(count, spec, params.batch_size)
    return unroll_batches(params, count, spec)


def unroll_batches(params: UnrollParameters, count: int, spec: EnvironmentSpec = SPEC) -> list[UnrollBatch]:
    """Batches of the job's shape: random numbers or bytes as observations, a uniform policy that acted, no episode's end."""
    random = torch.Generator().manual_seed(1)
    steps, unrolls = params.unroll_length, params.batch_size
    units = params.lstm_units if params.recurrent == "LSTM" else 0
    return [
        UnrollBatch(
            observation=observations(spec, (unrolls, steps + 1), random),
            action=torch.randint(0, spec.num_actions, (steps, unrolls), generator=random),
            reward=torch.randn(steps, unrolls, generator=random),
            discount=torch.full((steps, unrolls), 0.9),
            log_prob=torch.full((steps, unrolls), -math.log(spec.num_actions)),
            final_value=torch.zeros(steps, unrolls),
            ended=torch.zeros(steps, unrolls, dtype=torch.uint8),
            state=torch.zeros(unrolls, 2, units),
        )
        for _ in range(count)
    ]


def observations(spec: EnvironmentSpec, extents: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    shape = (*extents, *spec.observation_shape)
    if spec.observation_dtype == "uint8":
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator)


def on(device: torch.device, batch: Any) -> Any:
    return type(batch)(*(None if tensor is None else tensor.to(device) for tensor in batch))


def identity(params: ApeXDQNParameters, spec: EnvironmentSpec = SPEC) -> PolicyIdentity:
    return PolicyIdentity("ApeXDQN", spec, params, ENV_PARAMS)


def course(params: Any, directory: Path | None = None) -> Course:
    """Of a job with these parameters, which forks from the newest checkpoint in ``directory``."""
    algorithm = AlgorithmSpec.model_validate({"custom": {"factory": "own:algorithm"}}).with_own(params)
    spec = RLJobSpec.model_validate({"environment": {"id": "Test/Vectors-v0"}, "replay": {}})

    def read(fork: ForkSpec) -> checkpoint.Checkpoint:
        found = checkpoint.latest_valid(directory) if directory is not None else None
        if found is None:
            raise CheckpointProblem(f"{fork.source} holds none")
        return found

    return Course(spec.model_copy(update={"algorithm": algorithm}), read)


def batches(count: int, spec: EnvironmentSpec = SPEC, size: int = 16, seed: int = 1) -> list[TransitionBatch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        TransitionBatch(
            observation=observations(spec, (size,), generator),
            next_observation=observations(spec, (size,), generator),
            action=torch.randint(0, spec.num_actions, (size,), generator=generator),
            n_step_return=torch.randn(size, generator=generator),
            discount=torch.full((size,), 0.97),
            weight=torch.rand(size, generator=generator) * 0.9 + 0.1,
        )
        for _ in range(count)
    ]


def assert_equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> None:
    """The same tensors by the same names, bit for bit."""
    torch.testing.assert_close(dict(one), dict(other), rtol=0.0, atol=0.0)


def plain_optimizer(
    optimizer: str, weights: Iterable[torch.nn.Parameter], epsilon: float, decay: float, momentum: float = 0.0
) -> Any:
    """Torch's own Adam, or RMSProp on whole weights, whose own tests compare it with torch's."""
    if optimizer == "Adam":
        return torch.optim.Adam(weights, lr=1e-3, eps=epsilon, foreach=False)
    centred = optimizer == "CentredRMSProp"
    return RMSProp(list(weights), learning_rate=1e-3, decay=decay, epsilon=epsilon, momentum=momentum, centred=centred)


def stepped(network: torch.nn.Module, average: torch.nn.Module, optimizer: Any, loss: torch.Tensor) -> float:
    """A step by a loss whose gradient is clipped to a norm of 0.5, and the average of decay 0.9 after it; the gradient's norm."""
    network.zero_grad()
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5))
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(average.parameters(), network.parameters(), strict=True):
            mine.lerp_(its, 0.1)
    return norm
