"""The actor role: joins the job, plays until told to stop, leaves in order."""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from rljob.acting import ActorIdentity
from rljob.actor.device import DeviceEnvironment, DevicePolicy
from rljob.actor.device_loop import DeviceLoop
from rljob.actor.figures import ActorFigures
from rljob.actor.grouped import GROUPS, GroupedLoop
from rljob.actor.loop import ActorLoop, Loop
from rljob.actor.policy import ActingPolicy
from rljob.actor.session import Compression, ReplaySession, Welcome
from rljob.actor.shards import MultiShard
from rljob.algorithms.base import UnrollAlgorithm
from rljob.algorithms.compute import denormals_as_zero
from rljob.algorithms.registry import algorithm
from rljob.api import RLJob
from rljob.api.roles import member_of
from rljob.encoders import make_encoded_vector
from rljob.envs import (
    EnvironmentSpec,
    KeepsFailing,
    RestartLimit,
    environment_of,
    make_device_vector,
)
from rljob.envs.base import GroupedEnvironment, VectorEnvironment, seed_generators, seed_of
from rljob.experience import SegmentLayout, make_builder
from rljob.inference.client import InferenceClient, InferenceLost, RemotePolicy
from rljob.roles.options import RoleOptions, serve, write_final
from rljob.telemetry.server import TelemetryServer
from rljob.weights.client import WeightClient
from rljob.weights.relay import Relay
from rljob.wire import Client, load_keys

log = logging.getLogger(__name__)

# What the last chunks get of the five seconds that a role has to leave.
_DRAIN_SECONDS = 2.0
_LONGEST_TURN_SECONDS = 60.0
# A slot of another shard is as good, but may be another actor's too; it changes once shard 0 is back.
_FIRST_SHARD_PATIENCE_SECONDS = 3.0


@denormals_as_zero()
def run_actor(options: RoleOptions, stop: threading.Event) -> None:
    """Play for the job in ``options`` until ``stop`` is set, then send what is complete and return.

    May be started, killed and started again at any time: a new life has a new incarnation, environment seeds of its own, and
    whichever exploration slot the replay service leases to this actor's name. Raises ``EnvironmentProblem`` when the
    environment cannot be made, ``ValueError`` when the options lack an address, and, having sent what was played before,
    ``InferenceLost`` when an inference server has not answered for 30 s and ``KeepsFailing``
    when environments fail more often than the job allows.
    """
    central = options.job.spec.actors.inference == "Central"
    if not options.replay_ingest or not (options.inference if central else options.weights and options.notice):
        raise ValueError(f"an actor needs --replay-ingest and {'--inference' if central else '--weights and --notice'}")
    # Several threads were never faster at a network of this size than several actors; the emulator may use more.
    torch.set_num_threads(1)
    spec_of_job = options.job.spec
    parameters = spec_of_job.algorithm.parameters
    environment_parameters = spec_of_job.environment.parameters
    num_envs = spec_of_job.actors.envs_per_actor
    spec = environment_of(options.run_dir, spec_of_job.environment)
    chosen = algorithm(spec_of_job.algorithm.name)
    layout = chosen.layout(spec, parameters)
    identity = ActorIdentity(options.name, uuid.uuid4().hex[:12], num_envs)
    figures = ActorFigures(identity, spec_of_job.success_policy.metric)
    figures.failures = failures = RestartLimit()
    sink, actions = _connect(options, identity, figures, layout, spec.policy_numbers)
    figures.sink = sink
    # One that waits for credit does its work too: the learner sets the pace, and a new actor would wait as well.
    at_work = ("Running", "Blocked")
    telemetry = serve(options, "actor", figures.status, lambda: figures.state in at_work, identity.incarnation)
    try:
        with telemetry:
            welcome = _join(sink, telemetry, stop)
            if welcome is None:
                return
            # A learner that this actor came up before is the first.
            seed = seed_of(spec_of_job.seed, "actor", welcome.slot, max(1, welcome.epoch), welcome.life)
            seed_generators(seed)
            generator = np.random.default_rng(seed)
            builder = make_builder(
                layout,
                num_envs,
                parameters.gamma,
                environment_parameters.atari.life_loss == "EndsEpisode",
                identity.actor,
                identity.incarnation,
                welcome.epoch,
            )
            # Each copy may take as long to make as a turn, and as long again to step, where they are stepped in turn.
            telemetry.beat(_LONGEST_TURN_SECONDS * (1 + num_envs))
            alive = partial(telemetry.go_on, _LONGEST_TURN_SECONDS)
            about = (chosen, spec, parameters, environment_parameters, num_envs)
            loop: Loop
            environment: VectorEnvironment | DeviceEnvironment
            if not isinstance(actions, WeightClient):
                environment = grouped = _in_groups(options.job, spec, seed, failures, alive)
                remote = RemotePolicy(chosen, spec, parameters, num_envs, len(grouped.groups), generator, actions)
                figures.inference = actions
                loop = GroupedLoop(grouped, remote, builder, sink, figures)
            elif (
                environment_parameters.encoder is None
                and (vector := make_device_vector(spec, environment_parameters, num_envs)) is not None
            ):
                environment = simulator = DeviceEnvironment(vector, seed)
                on_device = DevicePolicy(*about, simulator.device, seed, spec_of_job.actors.precision)
                actions.shapes, figures.acting = on_device.shapes, on_device.acting
                loop = DeviceLoop(simulator, on_device, builder, sink, actions, figures, layout.length)
            else:
                policy = ActingPolicy(*about, generator, spec_of_job.actors.precision)
                actions.shapes, figures.acting = policy.shapes, policy.acting
                environment = make_encoded_vector(
                    spec,
                    environment_parameters,
                    num_envs,
                    seed,
                    failures,
                    spec_of_job.actors.resources.cores(),
                    alive,
                )
                refresh_steps = chosen.refresh_steps(parameters) if isinstance(chosen, UnrollAlgorithm) else 1
                loop = ActorLoop(environment, policy, builder, sink, actions, figures, refresh_steps)
            try:
                _play(loop, stop, telemetry)
                write_final(options, figures.final())
            finally:
                environment.close()
    finally:
        actions.close()
        sink.close()


def _play(loop: Loop, stop: threading.Event, telemetry: TelemetryServer) -> None:
    """Play until ``stop`` is set, then leave in order; in order too where the inference server is lost."""
    try:
        loop.run(stop, partial(telemetry.beat, _LONGEST_TURN_SECONDS))
    except (InferenceLost, KeepsFailing):
        loop.leave(_DRAIN_SECONDS)
        raise
    loop.leave(_DRAIN_SECONDS)


def _connect(
    options: RoleOptions,
    identity: ActorIdentity,
    figures: ActorFigures,
    layout: SegmentLayout,
    policy_numbers: int,
) -> tuple[MultiShard, WeightClient | InferenceClient]:
    """The sink for chunks, and where actions come from: weights for a network of its own, or an inference server."""
    keys = load_keys(options.keys, "actor") if options.keys else None
    spec = options.job.spec
    taker = "learner" if layout.exact else "replay"
    compression = figures.compression = Compression(layout.compressed_columns, spec.actors.compression)
    sessions = [
        ReplaySession(
            Client(endpoint, keys.client(taker) if keys else None),
            identity,
            figures.heartbeat,
            compression=compression,
            about=layout.leaves_column,
            receiver="learner" if taker == "learner" else "replay shard",
        )
        for endpoint in options.replay_ingest
    ]
    sink = MultiShard(sessions)
    if spec.actors.inference == "Local":
        relay = None
        if options.node and options.address:
            host = f"[{options.address}]" if ":" in options.address else options.address
            relay = Relay(f"tcp://{host}:*", keys.server() if keys else None)
        return sink, WeightClient(
            options.weights,
            options.notice,
            keys.client("learner") if keys else None,
            relay=relay,
            node=options.node,
            of_relays=keys.client("actor") if keys else None,
        )
    server = "inference" if spec.inference.replicas > 0 else "learner"
    endpoint = options.inference[member_of(options.name, len(options.inference))]
    client = Client(endpoint, keys.client(server) if keys else None)
    # One lane a group, and one for the values of final observations.
    outputs = algorithm(spec.algorithm.name).output_size(spec.algorithm.parameters, policy_numbers)
    return sink, InferenceClient(
        client,
        identity,
        layout.observation,
        GROUPS + 1,
        compress=bool(layout.compressed_columns),
        outputs=outputs,
    )


def _in_groups(
    job: RLJob, spec: EnvironmentSpec, seed: int, failures: RestartLimit, alive: Callable[[], None]
) -> GroupedEnvironment:
    """The actor's environments in two groups, or in one where their number is odd; seeded as if they were one vector."""
    count = job.spec.actors.envs_per_actor
    groups = GROUPS if count % GROUPS == 0 else 1
    size = count // groups
    parameters, threads = job.spec.environment.parameters, job.spec.actors.resources.cores()
    return GroupedEnvironment(
        [
            make_encoded_vector(spec, parameters, size, seed + size * group, failures, threads, alive)
            for group in range(groups)
        ]
    )


def _join(sink: MultiShard, telemetry: TelemetryServer, stop: threading.Event) -> Welcome | None:
    """Say hello until shard 0, whose slots are the job's, welcomes this actor; or another, where shard 0 stays away.

    None when told to stop before.
    """
    log.info("waiting for a welcome")
    unwelcome = time.monotonic()
    while sink.sessions[0].welcome is None:
        if stop.is_set():
            return None
        telemetry.beat(_LONGEST_TURN_SECONDS)
        sink.poll(0.05)
        if sink.welcome is None:
            unwelcome = time.monotonic()
        elif time.monotonic() - unwelcome > _FIRST_SHARD_PATIENCE_SECONDS:
            log.warning("replay shard 0 does not answer; beginning with the others")
            break
    return sink.welcome
