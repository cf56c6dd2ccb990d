"""Small real things for the learner's tests."""

from __future__ import annotations

import math

import torch
from rljob.algorithms import algorithm
from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.compute import Compute
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, PPOParameters
from rljob.checkpoints.policy import PolicyIdentity
from rljob.envs import EnvironmentSpec
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.updater import AnyUpdater, make_updater

from tests.support.specs import spec_of

SPEC = spec_of("Test/Vectors-v0", (4,), "float32", 1, 2, 1, "f")
IMAGES = spec_of("Test/Images-v0", (42, 42), "uint8", 4, 3, 4, "g")
ENV_PARAMS = EnvironmentParameters()
PLAIN = Compute()


def parameters(**changes: object) -> ApeXDQNParameters:
    values: dict[str, object] = {
        "batch_size": 16,
        "hidden_units": 16,
        "target_update_interval": 7,
        "learning_rate": 1e-3,
    }
    return ApeXDQNParameters.model_validate({**values, **changes})


def updater(
    params: ApeXDQNParameters,
    spec: EnvironmentSpec = SPEC,
    seed: int = 0,
    plan: Compute = PLAIN,
    threads: DataParallelThreads | None = None,
) -> AnyUpdater:
    torch.manual_seed(seed)
    method = algorithm("ApeXDQN")
    online = method.build(spec, params, ENV_PARAMS).compute(plan)
    return make_updater(method, params, online, torch.device("cpu"), threads)


UnrollParameters = ImpalaParameters | PPOParameters


def unroll_algorithm(params: UnrollParameters) -> str:
    """The algorithm that these are the parameters of."""
    return "PPO" if isinstance(params, PPOParameters) else "IMPALA"


def unroll_batches(params: UnrollParameters, count: int, spec: EnvironmentSpec = SPEC) -> list[UnrollBatch]:
    """Batches of the job's shape: random numbers or bytes as observations, a uniform policy that acted, no episode's end."""
    random = torch.Generator().manual_seed(1)
    steps, unrolls = params.unroll_length, params.batch_size
    shape = (unrolls, steps + 1, *spec.observation_shape)
    units = params.lstm_units if params.recurrent == "LSTM" else 0
    return [
        UnrollBatch(
            observation=torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
            if spec.observation_dtype == "uint8"
            else torch.randn(shape, generator=random),
            action=torch.randint(0, spec.num_actions, (steps, unrolls), generator=random),
            reward=torch.randn(steps, unrolls, generator=random),
            discount=torch.full((steps, unrolls), 0.9),
            log_prob=torch.full((steps, unrolls), -math.log(spec.num_actions)),
            final_value=torch.zeros(steps, unrolls),
            state=torch.zeros(unrolls, 2, units),
        )
        for _ in range(count)
    ]


def identity(params: ApeXDQNParameters, spec: EnvironmentSpec = SPEC) -> PolicyIdentity:
    return PolicyIdentity("ApeXDQN", spec, params, ENV_PARAMS)


def batches(count: int, spec: EnvironmentSpec = SPEC, size: int = 16, seed: int = 1) -> list[TransitionBatch]:
    generator = torch.Generator().manual_seed(seed)

    def observations() -> torch.Tensor:
        shape = (size, *spec.observation_shape)
        if spec.observation_dtype == "uint8":
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)

    return [
        TransitionBatch(
            observation=observations(),
            next_observation=observations(),
            action=torch.randint(0, spec.num_actions, (size,), generator=generator),
            n_step_return=torch.randn(size, generator=generator),
            discount=torch.full((size,), 0.97),
            weight=torch.rand(size, generator=generator) * 0.9 + 0.1,
        )
        for _ in range(count)
    ]
