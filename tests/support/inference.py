"""What tests of acting share: a served network, a loop of either kind, given weights, and a sink that keeps what it is given."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from rljob.acting import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.grouped import GROUPS, GroupedLoop
from rljob.actor.loop import ActorLoop, Loop
from rljob.actor.policy import ActingPolicy
from rljob.actor.session import Welcome
from rljob.algorithms.base import AnyAlgorithm, UnrollAlgorithm
from rljob.algorithms.compute import Compute, DeviceCompute, Measured
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, PPOParameters
from rljob.envs import EnvironmentSpec, describe_environment, make_vector_environment
from rljob.envs.base import GroupedEnvironment, VectorEnvironment
from rljob.experience import Segment, make_builder
from rljob.inference.client import Answer, InferenceClient, RemotePolicy
from rljob.inference.model import ServedModel
from rljob.inference.server import InferenceServer
from rljob.weights.flat import Weights, snapshot
from rljob.wire import Client, Message

from tests.support.waiting import eventually, running

SEED = 5
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Setup:
    """An algorithm with its parameters, on one environment."""

    method: AnyAlgorithm
    parameters: Any
    environment_id: str
    environment_parameters: EnvironmentParameters

    @cached_property
    def spec(self) -> EnvironmentSpec:
        return describe_environment(self.environment_id, self.environment_parameters)

    def network(self) -> torch.nn.Module:
        return self.method.build(self.spec, self.parameters, self.environment_parameters)

    def weights(self, version: int, epoch: int = 7) -> Weights:
        """Weights that follow from their version."""
        torch.manual_seed(version)
        return snapshot(self.network(), version, epoch, {})

    def model(self, max_batch: int = 32, device: torch.device = CPU) -> ServedModel:
        memory = self.method.memory_units(self.parameters)
        return ServedModel(
            self.network(), self.spec, self.method, memory, Measured(DeviceCompute(device, Compute()), {}), max_batch
        )


def apex(environment_id: str = "CartPole-v1", parameters: EnvironmentParameters | None = None) -> Setup:
    own = ApeXDQNParameters(precision="FP32", chunk_length=20)
    return Setup(algorithm("ApeXDQN"), own, environment_id, parameters or EnvironmentParameters())


def impala(
    environment_id: str = "CartPole-v1", parameters: EnvironmentParameters | None = None, recurrent: str = "None"
) -> Setup:
    network = "Nature" if environment_id.startswith("ALE") else "MLP"
    own = ImpalaParameters(precision="FP32", network=network, recurrent=recurrent, lstm_units=16, unroll_length=10)
    return Setup(algorithm("IMPALA"), own, environment_id, parameters or EnvironmentParameters())


def ppo() -> Setup:
    own = PPOParameters(precision="FP32", network="MLP", unroll_length=10, orthogonal_init=False)
    return Setup(algorithm("PPO"), own, "CartPole-v1", EnvironmentParameters())


class Kept:
    """A sink that takes everything at once; with a ``least_version``, unrolls are asked for as iterations ask for them."""

    waiting = 0
    credits = 1000
    least_version: int | None = None
    durable = True

    def __init__(self) -> None:
        self.welcome = Welcome(1, 3, 1, 7)
        self.chunks: list[Segment] = []
        self.reported: list[Message] = []

    def encode(self, chunk: Segment) -> None:
        self.chunks.append(chunk)

    def episodes(self, message: Message) -> None:
        self.reported.append(message)

    def poll(self, timeout_seconds: float = 0.0) -> None: ...


def assert_equal_segments(first: Kept, second: Kept, *, rounded: Callable[[str, Any], bool]) -> None:
    """The same segments, byte for byte but for columns that are ``rounded``, by their name and array."""
    assert len(first.chunks) == len(second.chunks) > 0
    for one, other in zip(first.chunks, second.chunks, strict=True):
        origins = ([getattr(each, f.name) for f in fields(each) if f.name != "columns"] for each in (one, other))
        assert next(origins) == next(origins)
        for name, mine in one.columns.items():
            theirs, what = other[name], f"{name} of segment {one.sequence}"
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            if rounded(name, mine):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=what)
            else:
                assert mine.tobytes() == theirs.tobytes(), what


@contextlib.contextmanager
def serving(server: InferenceServer) -> Iterator[InferenceServer]:
    """The server in a thread of its own; whatever it raises fails the test."""
    with running(server.run):
        yield server


def answer_of(client: InferenceClient, lane: int = 0) -> Answer:
    """The answer to what ``client`` asked in ``lane``."""
    return eventually(lambda: client.take(lane), "no answer", between=lambda: client.poll(0.05))


class Player:
    """A loop with everything around it; ``play`` steps it. ``address`` None: with a network of its own."""

    def __init__(
        self, setup: Setup, num_envs: int, address: str | None, weights: Given, least_version: int | None = None
    ) -> None:
        method, spec, parameters = setup.method, setup.spec, setup.parameters
        environment_id, environment_parameters = setup.environment_id, setup.environment_parameters
        identity = ActorIdentity("actor-0", uuid.uuid4().hex[:12], num_envs)
        self.sink, self.figures = Kept(), ActorFigures(identity)
        self.sink.least_version = least_version
        recorder = make_builder(method.layout(spec, parameters), num_envs, 0.99, False, "actor-0", "life", 0)
        generator = np.random.default_rng(SEED)
        sink: Any = self.sink
        self.client: InferenceClient | None = None
        self.loop: Loop
        self.environment: VectorEnvironment
        # Atari seeds each environment by itself, so that one vector of N plays the same; CartPole's vector class does not.
        if address is None and environment_id.startswith("ALE"):
            self.environment = make_vector_environment(environment_id, environment_parameters, num_envs, SEED)
        else:
            size = num_envs // GROUPS
            seeds = [SEED + size * group for group in range(GROUPS)]
            self.environment = grouped = GroupedEnvironment(
                [make_vector_environment(environment_id, environment_parameters, size, seed) for seed in seeds]
            )
        if address is None:
            policy = ActingPolicy(method, spec, parameters, environment_parameters, num_envs, generator)
            policy.acting.network.compute(Compute())  # type: ignore[operator]
            refresh = method.refresh_steps(parameters) if isinstance(method, UnrollAlgorithm) else 1
            self.loop = ActorLoop(self.environment, policy, recorder, sink, weights, self.figures, refresh)
        else:
            outputs = method.output_size(parameters, spec.policy_numbers)
            self.client = InferenceClient(
                Client(address), identity, spec.columns, GROUPS + 1, compress=True, outputs=outputs
            )
            remote = RemotePolicy(method, spec, parameters, num_envs, GROUPS, generator, self.client)
            self.loop = GroupedLoop(grouped, remote, recorder, sink, self.figures)

    def play(self, turns: int) -> None:
        never = threading.Event()
        self.loop.start()
        for _ in range(turns):
            self.loop.turn(never)
        self.environment.close()
        if self.client is not None:
            self.client.close()


class Given:
    """Hands over once what ``next`` is; nothing where it is None."""

    def __init__(self, weights: Weights | None = None) -> None:
        self.next = weights
        self.answered = True

    def poll(self) -> Weights | None:
        weights, self.next = self.next, None
        return weights
