"""How much of the environment's speed an actor keeps, on one core.

1. environment + n-step + LZ4 + send, against ``AtariVectorEnv`` alone;
2. the whole actor with the Nature network, against the best bare loop of environment + inference (fp32 and bf16).

All contenders take turns in short rounds on the same core of the same run; medians over the rounds are reported, and the
ratios are medians of the ratios within a round. The receiving side runs in another process on another core.
Usage: ``python -m benchmarks.actor_throughput [--seconds 30] [--envs 16] [--core 0]``.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import numpy as np
import torch
from ale_py import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from rljob.acting import ActorIdentity
from rljob.acting.network import acting_copy
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import ActorLoop
from rljob.actor.policy import ActingPolicy, Decision
from rljob.actor.session import Compression, ReplaySession
from rljob.actor.shards import MultiShard
from rljob.algorithms.compute import native_arithmetic
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.experience import make_builder, transition_layout
from rljob.telemetry.flat_figures import stage_fractions
from rljob.weights.flat import snapshot
from rljob.wire import Client

from benchmarks.common import machine, report
from benchmarks.one_core import compare, on_one_core, options_of, rounds, stepping

GAME = "ALE/Pong-v5"


class RandomPolicy:
    """Acts for nothing, so that what is left is everything but the policy."""

    version = 0

    def __init__(self, num_envs: int, num_actions: int) -> None:
        self.epsilon = np.ones(num_envs, np.float32)
        self._unknown = np.full(num_envs, np.nan, np.float32)
        self._random = np.random.default_rng(0)
        self._num_actions = num_actions

    def take_slot(self, slot: int, slots: int) -> None:
        pass

    def load(self, weights: object) -> None:
        pass

    def act(self, observation: np.ndarray) -> Decision:
        return Decision(self._random.integers(0, self._num_actions, len(observation)), self._unknown, self._unknown)

    def final_values(self, observation: np.ndarray | None, truncated: np.ndarray) -> None:
        return None

    def ended(self, rows: np.ndarray) -> None:
        pass


class NoWeights:
    """A learner that never publishes; the benchmark loads its own weights once."""

    def poll(self) -> None:
        return None


def bare_environment(num_envs: int) -> AtariVectorEnv:
    return AtariVectorEnv("pong", num_envs=num_envs, num_threads=1, autoreset_mode=AutoresetMode.SAME_STEP)


def environment_alone(num_envs: int) -> Callable[[], None]:
    env, random = bare_environment(num_envs), np.random.default_rng(0)
    env.reset(seed=0)
    actions = env.single_action_space.n

    def step() -> None:
        env.step(random.integers(0, actions, num_envs))

    return step


def environment_and_inference(num_envs: int, network: torch.nn.Module) -> Callable[[], None]:
    env = bare_environment(num_envs)
    observation = env.reset(seed=0)[0]

    def step() -> None:
        nonlocal observation
        with torch.inference_mode():
            action = network(torch.from_numpy(observation)).argmax(dim=1).numpy()
        observation = env.step(action)[0]

    return step


def actor(
    endpoint: str, name: str, num_envs: int, precision: str | None
) -> tuple[Callable[[], None], ActorFigures, str]:
    """A whole actor; ``precision`` None plays at random. Returns its step, its figures and how it computes."""
    environment_parameters, parameters = EnvironmentParameters(), ApeXDQNParameters(precision=precision or "FP32")
    environment = make_vector_environment(GAME, environment_parameters, num_envs, seed=0)
    spec = environment.spec
    layout = transition_layout(50, spec.columns, 3)
    identity = ActorIdentity(name, "benchmark", num_envs)
    figures = ActorFigures(identity)
    session = ReplaySession(
        Client(endpoint), identity, figures.heartbeat, compression=Compression(layout.compressed_columns)
    )
    figures.sink = sink = MultiShard([session])
    recorder = make_builder(layout, num_envs, 0.99, False, name, "benchmark", 0)
    computed = "none"
    if precision is None:
        policy: ActingPolicy | RandomPolicy = RandomPolicy(num_envs, spec.num_actions)
    else:
        chosen = algorithm("ApeXDQN")
        policy = ActingPolicy(chosen, spec, parameters, environment_parameters, num_envs, np.random.default_rng(0))
        policy.load(snapshot(chosen.build(spec, parameters, environment_parameters), 1, 0, {}))
        policy.epsilon[:] = 0.01
        computed = str(policy.measured.place)
    loop = ActorLoop(environment, policy, recorder, sink, NoWeights(), figures)
    return stepping(loop, sink, figures), figures, computed


def stage_shares(figures: ActorFigures) -> dict[str, float]:
    shares = stage_fractions({"actor": figures.clock.seconds()})["actor"]
    return {stage: float(f"{share:.3g}") for stage, share in shares.items()}


def without_policy(endpoint: str, options: argparse.Namespace) -> None:
    step, figures, _ = actor(endpoint, "actor-random", options.envs, None)
    alone, whole = "AtariVectorEnv", "env+nstep+lz4+send"
    rates = rounds({alone: environment_alone(options.envs), whole: step}, options.seconds, options.envs)
    report(
        "actor_without_policy",
        envs=options.envs,
        env_steps_per_second=statistics.median(rates[alone].wall),
        **compare(rates, whole, alone),
        goal_ratio=0.85,
        stages=stage_shares(figures),
        bytes_per_transition=figures.status()["bytes_encoded"] / figures.produced,
    )


def with_nature_network(endpoint: str, options: argparse.Namespace) -> None:
    spec = make_vector_environment(GAME, EnvironmentParameters(), 1, 0).spec
    network = algorithm("ApeXDQN").build(spec, ApeXDQNParameters(), EnvironmentParameters())
    contenders = {}
    for compute in network.compute_plans("Auto", native=native_arithmetic(torch.device("cpu"))):
        contenders[f"bare {compute}"] = environment_and_inference(options.envs, acting_copy(network, compute))
    bare = list(contenders)
    ways = {}
    for precision in ("FP32", "Auto"):
        name = f"actor {precision}"
        contenders[name], figures, ways[name] = actor(endpoint, f"actor-{precision}", options.envs, precision)
    rates = rounds(contenders, options.seconds, options.envs)
    best = max(bare, key=lambda name: statistics.median(rates[name].cpu))
    for name in contenders:
        report(
            "actor_with_nature_network",
            contender=name,
            computed_in=ways.get(name, name.removeprefix("bare ")),
            envs=options.envs,
            best_bare=best,
            **compare(rates, name, best),
            **({"goal": "1900 steps/s or 0.9 of the best bare loop"} if name == "actor Auto" else {}),
        )
    report("actor_stages", contender="actor Auto", stages=stage_shares(figures))


def main() -> None:
    options = options_of(__doc__, seconds=30.0)
    with on_one_core(options.core) as (endpoint, _):
        report("machine", **machine())
        without_policy(endpoint, options)
        with_nature_network(endpoint, options)


if __name__ == "__main__":
    main()
