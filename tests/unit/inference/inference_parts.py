"""What the tests of this room share: a served network, a loop of either kind, and a sink that keeps what it is given."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from rljob.actor.compute import Compute
from rljob.actor.figures import ActorFigures
from rljob.actor.grouped import GROUPS, GroupedLoop
from rljob.actor.loop import ActorLoop, Loop
from rljob.actor.policy import Policy
from rljob.actor.session import Identity, Welcome
from rljob.algorithms import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.envs import EnvironmentSpec, describe_environment, make_vector_environment
from rljob.envs.grouped import GroupedEnvironment
from rljob.experience import Chunk, ChunkBuilder, ChunkLayout
from rljob.inference.client import InferenceClient
from rljob.inference.model import ServedModel
from rljob.inference.policy import RemotePolicy
from rljob.inference.server import InferenceServer
from rljob.learner.flat import Weights, snapshot
from rljob.wire import Client, Message

PARAMETERS = ApeXDQNParameters(precision="FP32")
METHOD = algorithm("ApeXDQN")
SEED = 5


class Given:
    """A weight source that hands over what it was told to."""

    def __init__(self, weights: Weights | None = None) -> None:
        self.next = weights

    def poll(self) -> Weights | None:
        weights, self.next = self.next, None
        return weights


class Kept:
    """A sink that takes everything at once."""

    waiting = 0
    durable = True

    def __init__(self) -> None:
        self.welcome = Welcome(1, 3, 7)
        self.chunks: list[Chunk] = []
        self.reported: list[Message] = []

    def encode(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def episodes(self, message: Message) -> None:
        self.reported.append(message)

    def poll(self, timeout_seconds: float = 0.0) -> None: ...


def weights_of(spec: EnvironmentSpec, parameters: EnvironmentParameters, version: int, epoch: int = 7) -> Weights:
    """Weights that follow from their version."""
    torch.manual_seed(version)
    return snapshot(METHOD.build(spec, PARAMETERS, parameters), version, epoch, {})


def a_model(spec: EnvironmentSpec, parameters: EnvironmentParameters, max_batch: int = 32) -> ServedModel:
    network = METHOD.build(spec, PARAMETERS, parameters)
    return ServedModel(network, spec, METHOD.q_values, Compute(), max_batch, torch.device("cpu"))


@contextlib.contextmanager
def serving(server: InferenceServer) -> Iterator[InferenceServer]:
    """The server in a thread of its own; whatever it raises fails the test."""
    stop, failures = threading.Event(), []

    def body() -> None:
        try:
            server.run(stop)
        except BaseException as error:  # noqa: BLE001 (told to the test's own thread)
            failures.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        assert not failures, failures


class Player:
    """A loop with everything around it; ``play`` steps it. ``address`` None: with a network of its own."""

    def __init__(
        self, environment_id: str, parameters: EnvironmentParameters, num_envs: int, address: str | None, weights: Given
    ) -> None:
        spec = describe_environment(environment_id, parameters)
        layout = ChunkLayout(20, spec.frame_shape, np.dtype(spec.frame_dtype), spec.stack, 3)
        identity = Identity("actor-0", uuid.uuid4().hex[:12], num_envs)
        self.sink, self.figures = Kept(), ActorFigures(identity)
        builder = ChunkBuilder(layout, num_envs, 0.99, False, "actor-0", "life", 0)
        generator = np.random.default_rng(SEED)
        sink: Any = self.sink
        self.client: InferenceClient | None = None
        self.loop: Loop
        size = num_envs // GROUPS
        groups = [make_vector_environment(environment_id, parameters, size, SEED + size * g) for g in range(GROUPS)]
        if address is None:
            # Atari seeds each environment by itself, so one vector of N plays the same; CartPole's vector class does not.
            for group in groups if environment_id.startswith("ALE") else ():
                group.close()
            environment = (
                make_vector_environment(environment_id, parameters, num_envs, SEED)
                if environment_id.startswith("ALE")
                else GroupedEnvironment(groups)
            )
            policy = Policy(METHOD, spec, PARAMETERS, parameters, num_envs, generator)
            policy._acting.compute(bf16=False, channels_last=False)  # type: ignore[operator]
            self.loop = ActorLoop(environment, policy, builder, sink, weights, self.figures)
        else:
            self.client = InferenceClient(Client(address), identity, GROUPS + 1, compress=True)
            remote = RemotePolicy(METHOD, spec, PARAMETERS, num_envs, GROUPS, generator, self.client)
            self.loop = GroupedLoop(GroupedEnvironment(groups), remote, builder, sink, self.figures, 20.0)
            environment = GroupedEnvironment(groups)
        self.environment = environment

    def play(self, turns: int) -> None:
        never = threading.Event()
        self.loop.start()
        for _ in range(turns):
            self.loop.turn(never)
        self.environment.close()
        if self.client is not None:
            self.client.close()
