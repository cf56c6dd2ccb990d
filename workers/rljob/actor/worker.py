"""The actor role: joins the job, plays until told to stop, leaves in order."""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid

import numpy as np
import torch

from rljob.actor.figures import ActorFigures
from rljob.actor.loop import ActorLoop
from rljob.actor.policy import Policy
from rljob.actor.recorder import make_recorder
from rljob.actor.session import Identity, ReplaySession, Welcome
from rljob.actor.shards import MultiShard
from rljob.algorithms import algorithm
from rljob.cli.announce import announce, write_final
from rljob.cli.options import RoleOptions
from rljob.envs.factory import describe_environment, make_vector_environment
from rljob.experience import ChunkLayout, UnrollLayout
from rljob.learner.weights import WeightClient
from rljob.telemetry.metrics import actor_registry
from rljob.telemetry.profile import Profile
from rljob.telemetry.server import TelemetryServer
from rljob.wire import Client, load_keys

log = logging.getLogger(__name__)

# Of the five seconds that a role has to leave, what the last chunks get.
_DRAIN_SECONDS = 2.0
_LONGEST_TURN_SECONDS = 60.0


def run_actor(options: RoleOptions, stop: threading.Event) -> None:
    """Play for the job in ``options`` until ``stop`` is set, then send what is complete and return.

    May be started, killed and started again at any time: a new life has a new incarnation, new environment seeds, and
    whichever exploration slot the replay service leases to this actor's name. Raises ``EnvironmentProblem`` when the
    environment cannot be made and ``ValueError`` when the options lack an address.
    """
    if not options.replay_ingest or not options.weights or not options.notice:
        raise ValueError("an actor needs --replay-ingest, --weights and --notice")
    # One actor owns one core: several threads an actor were never faster in sum than several actors.
    torch.set_num_threads(1)
    spec_of_job = options.job.spec
    parameters = spec_of_job.algorithm.resolved()
    environment_parameters = spec_of_job.environment.resolved()
    environment_id = spec_of_job.environment.id
    num_envs = spec_of_job.actors.envs_per_actor
    spec = describe_environment(environment_id, environment_parameters)
    chosen = algorithm(spec_of_job.algorithm.name)
    layout = chosen.layout(spec, parameters)
    identity = Identity(options.name, uuid.uuid4().hex[:12], num_envs)
    figures = ActorFigures(identity)
    sink, weights = _connect(options, identity, figures, layout)
    figures.sink = sink
    telemetry = TelemetryServer(
        "actor",
        options.metrics_port,
        figures.status,
        lambda: figures.state == "Running",
        actor_registry(figures.status),
    )
    announce(options, "actor", telemetry.url, identity.incarnation)
    try:
        with telemetry:
            welcome = _join(sink, telemetry, stop)
            if welcome is None:
                return
            seed = environment_seed(parameters.seed, welcome.slot, identity.incarnation)
            generator = np.random.default_rng(seed)
            policy = Policy(chosen, spec, parameters, environment_parameters, num_envs, generator)
            recorder = make_recorder(
                layout,
                num_envs,
                parameters.gamma,
                environment_parameters.life_loss == "EndsEpisode",
                identity.actor,
                identity.incarnation,
                welcome.epoch,
            )
            environment = make_vector_environment(environment_id, environment_parameters, num_envs, seed)
            try:
                loop = ActorLoop(
                    environment, policy, recorder, sink, weights, figures, chosen.refresh_steps(parameters)
                )
                profile = Profile(options.run_dir, options.name, lambda: figures.policy_version > 0)

                def on_turn() -> None:
                    telemetry.beat(_LONGEST_TURN_SECONDS)
                    if options.profile:
                        profile()

                loop.run(stop, on_turn)
                profile.close()
                loop.leave(_DRAIN_SECONDS)
                write_final(options, figures.final())
            finally:
                environment.close()
    finally:
        weights.close()
        sink.close()


def environment_seed(seed: int, slot: int, incarnation: str) -> int:
    """A seed in [0, 2^31) that is the same for the same run, slot and incarnation, and different for all others."""
    digest = hashlib.sha256(f"{seed}:{slot}:{incarnation}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _connect(
    options: RoleOptions, identity: Identity, figures: ActorFigures, layout: ChunkLayout | UnrollLayout
) -> tuple[MultiShard, WeightClient]:
    keys = load_keys(options.keys, "actor") if options.keys else None
    taker = "learner" if isinstance(layout, UnrollLayout) else "replay"
    sessions = [
        ReplaySession(
            Client(endpoint, keys.client(taker) if keys else None),
            identity,
            figures.heartbeat,
            compress=layout.compressed_columns,
        )
        for endpoint in options.replay_ingest
    ]
    weights = WeightClient(options.weights, options.notice, keys.client("learner") if keys else None)
    return MultiShard(sessions), weights


def _join(sink: MultiShard, telemetry: TelemetryServer, stop: threading.Event) -> Welcome | None:
    """Say hello until shard 0 welcomes this actor; None when told to stop before."""
    log.info("waiting for a welcome")
    while sink.welcome is None:
        if stop.is_set():
            return None
        telemetry.beat(_LONGEST_TURN_SECONDS)
        sink.poll(0.05)
    return sink.welcome
