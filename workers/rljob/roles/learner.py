"""The learner role: from a job to a running loop, and out again."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.compute import denormals_as_zero
from rljob.algorithms.conformance import check_own_parts
from rljob.algorithms.registry import algorithm
from rljob.algorithms.suits import check_suits
from rljob.api import RLJob, credits_per_actor, dump_manifest
from rljob.api.learner_status import LearnerStatus
from rljob.api.lifecycle import ForkSpec
from rljob.api.live import read_at_start
from rljob.api.roles import member_of
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.location import Location, directory_of, location
from rljob.checkpoints.recording import Recording
from rljob.checkpoints.restore_from import begins_elsewhere, forked_checkpoint, named_checkpoint, started_from
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.checkpoints.store import Checkpoint, CheckpointProblem
from rljob.envs import EnvironmentSpec, describe_rewards, environment_of
from rljob.errors import UsageError
from rljob.inference.model import MAX_WAIT_SECONDS, served_model
from rljob.inference.server import InferenceServer, InferenceThread, LatestWeights
from rljob.ingest.roster import Counted
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.course import Course
from rljob.learner.device import DeviceMemory, DeviceStageClock, Gpu, devices, keep_freed_memory
from rljob.learner.device_mirror import DeviceMirror
from rljob.learner.loop import STAGES, Learner
from rljob.learner.plan import make_plan
from rljob.learner.ranks import LEAVE_SECONDS, Meeting, RankLost, Ranks
from rljob.learner.saver import Saver
from rljob.learner.sources import InStep, LoopConfig
from rljob.learner.unroll_queue import UnrollQueue, UnrollQueueConfig
from rljob.roles.options import RoleOptions, serve, write_last_words
from rljob.telemetry.recorder import Recorder
from rljob.tracking.points import forget_ending, note_ending
from rljob.tracking.tracker import FOLDER, trackers_of, untracked
from rljob.weights.flat import VersionLog
from rljob.weights.server import WeightServer
from rljob.wire import load_keys

log = logging.getLogger(__name__)

_LONGEST_TURN_SECONDS = 600.0
"""Neither an update nor the longest checkpoint takes so long."""
_LAST_UNIX_SECONDS = 1e11


def run_learner(options: RoleOptions, stop: threading.Event) -> None:
    """Train until ``stop`` is set, then write a final checkpoint and return.

    Raises SystemExit(70) where the job says that a loss that is not finite fails it, SystemExit(75) once a learner of a later
    epoch has begun, CheckpointProblem when told to resume from a checkpoint that cannot be used or where it may write none,
    StorageProblem where the place of the checkpoints cannot be asked, DeviceProblem where the device that the job asks for is
    missing or too small, DeviceMemoryProblem where its memory runs out later, UsageError where a compiler is missing that the
    job asks for, ValueError for a job that cannot work.
    """
    spec = options.job.spec
    candidates = devices(spec.learner.accelerator, on_cluster=options.on_cluster)
    memory = DeviceMemory(candidates[0], spec.algorithm.parameters)
    with memory.explained(), denormals_as_zero():
        _run(options, stop, candidates, memory)


def _run(options: RoleOptions, stop: threading.Event, candidates: Sequence[torch.device], memory: DeviceMemory) -> None:
    spec = options.job.spec
    params, env_params = spec.algorithm.parameters, spec.environment.parameters
    meeting = _meeting(options, stop)
    leads = meeting is None or meeting.rank == 0
    directory = directory_of(options.job, options.run_dir)
    found = _checkpoint_to_resume(options.resume, directory) if leads else None
    # What was trained in before may fail now and then.
    environment = environment_of(options.run_dir, spec.environment, tried=found is None)
    if found is not None and (of := found.manifest["environment"].get("encoder", "")) != environment.encoder:
        raise CheckpointProblem(
            f"{found.path} was learned behind the encoder with sha256 {of or 'none'}, but environment.encoder.file has "
            f"{environment.encoder or 'none'}; put that file back, or begin a new job"
        )
    named = None
    if leads and begins_elsewhere(options.job, found.manifest if found is not None else None):
        found, named = None, named_checkpoint(options.job, environment)
    memory.sufficed = found is not None and int(found.manifest["counters"]["updates"]) > 0
    method = algorithm(spec.algorithm.name)
    log.info("%s shows and takes: %s", environment.id, "; ".join(environment.lines))
    check_suits(options.job, environment)
    check_own_parts(options.job, environment)
    if candidates[-1].type == "cpu":
        keep_freed_memory()
    told = "" if leads or meeting is None else meeting.agree()
    updater, measured, example, mirror, mirror_place = make_plan(
        options.job,
        method,
        environment,
        candidates,
        rank=0 if meeting is None else meeting.rank,
        way=told,
        may_compile=not options.on_cluster,  # the memory of a pod is counted without a compiler
    )
    device, plan = updater.device, measured.place.compute
    ranks = None
    if meeting is not None:
        if leads:
            meeting.agree(str(plan))
        ranks = meeting.group(device)
        updater.join(ranks)
        torch.manual_seed(spec.seed + (meeting.rank << 32))
    keys = load_keys(options.keys, "learner") if options.keys is not None else None
    with ExitStack() as closing:
        # Of several processes one has clients.
        weights, notice = (options.weights, options.notice) if leads else ("inproc://weights", "inproc://notice")
        server = WeightServer(weights, notice, keys.server() if keys else None)
        closing.callback(server.close)
        recording = Recording(dump_manifest(options.job), options.uid, options.run_dir, directory)
        saver = Saver(directory, spec.checkpoint.retain, recording.restored() if leads and options.uid else None)
        closing.callback(saver.close)
        # Before any client is served: a client that holds more of the job than this learner shows it that it was superseded.
        before = max(options.epoch - 1, int(found.manifest["counters"]["epoch"]) if found is not None else 0)
        epoch = saver.claim(before) if leads else 0
        if leads:
            saver.watch()
        if ranks is not None:
            epoch = int(ranks.sum(torch.tensor(epoch)))
        versions = VersionLog(_publish_interval(method, params) or 1)
        memory.mirror_bytes = mirror.nbytes if mirror is not None else 0
        source: ReplayClient | UnrollQueue | InStep
        source = _source(options, method, environment, versions, epoch, found, device, mirror, ranks)
        if ranks is not None:
            weigh = source.weight_beside if isinstance(source, ReplayClient) else None
            closing.callback(ranks.close)
            source = InStep(ranks, source, stop, example, weigh)
        closing.callback(source.close)
        serving = None
        if leads and spec.actors.inference == "Central" and spec.inference.replicas == 0:
            compute = plan if device.type == "cuda" else None
            serving = InferenceThread(
                InferenceServer(
                    options.inference[0],
                    served_model(options.job, environment, [device], compute),
                    LatestWeights(server),
                    MAX_WAIT_SECONDS,
                    keys.server() if keys else None,
                )
            )
            closing.enter_context(serving)
        recorder = closing.enter_context(Recorder(options.run_dir)) if leads else None

        trackers, requests = trackers_of(spec.tracking), dict[str, Callable[[Mapping[str, Any]], None]]()
        if options.on_cluster and trackers and leads:
            forget_ending(options.run_dir)
            requests["/ending"] = partial(note_ending, options.run_dir)

        def document(status: LearnerStatus) -> dict[str, Any]:
            """The learner's status with that of the inference server in this process, as it is shown and recorded."""
            if serving is not None:
                part = serving.status()
                stages = {**status.stages, "inference": part["stages"]}
                status = replace(status, inference=part, stages=stages)
            if options.on_cluster and trackers:
                status = replace(
                    status, untracked=untracked(options.run_dir / FOLDER, trackers, status.started_unix or 0.0)
                )
            return status.to_document()

        def on_turn() -> None:
            telemetry.beat(_LONGEST_TURN_SECONDS)
            memory.sufficed = memory.sufficed or updater.updates > begun_at

        def record(status: LearnerStatus) -> None:
            if recorder is not None:
                recorder.record_status(document(status))

        gpu = Gpu(device)
        closing.callback(gpu.close)
        clock = DeviceStageClock(STAGES) if device.type == "cuda" else None
        surroundings = {
            "device": str(device),
            **gpu.facts,
            "batch_size": params.batch_size,
            "precision": str(plan),
            "compute_seconds": dict(measured.seconds),
            "mirror": mirror_place,
            "rewards": describe_rewards(spec.environment.id, env_params),
            "environment": "; ".join(environment.lines),
            "started_unix": time.time(),
        }
        config = LoopConfig(
            batch_size=method.steps_per_batch(params) // (1 if ranks is None else ranks.count),
            publish_interval=_publish_interval(method, params),
            checkpoint_interval_seconds=spec.checkpoint.interval_seconds,
            checkpoint_directory=directory,
            centred=env_params.centre_input,
            on_non_finite=spec.early_stopping.on_non_finite_loss,
            started_from=started_from(options.job),
        )
        identity = PolicyIdentity(spec.algorithm.name, environment, params, env_params, spec.judged_environment)
        course = Course(spec, partial(_fork, options.job, environment))
        learner = Learner(
            config, identity, course, updater, source, server, saver, record, surroundings, versions, gpu, clock, epoch
        )
        # Before anyone is told of it: a status with no updates yet would look like a run that begins again.
        if found is not None:
            learner.resume(found)
        elif named is not None:
            learner.start_from(checkpoint.read(named.path))
        begun_at = updater.updates
        telemetry = closing.enter_context(
            serve(
                options,
                "learner",
                lambda: document(learner.status()),
                lambda: learner.state in ("WarmingUp", "Training", "Evaluating"),
                requests={
                    **requests,
                    "/checkpoint": lambda note: learner.request_checkpoint(wanted_since(note)),
                    "/changes": course.ask,
                },
            )
        )
        learner.run(source.left if isinstance(source, InStep) else stop, on_turn)
        write_last_words(options, {"role": "learner", "checkpoint": saver.status.to_document()})
        if not stop.wait(LEAVE_SECONDS):
            raise RankLost("another of the learner's processes was told to leave; all of them start again together")


def _meeting(options: RoleOptions, stop: threading.Event) -> Meeting | None:
    """The way to the job's other learner processes, by the variables that are customary for it; None where this is the only one.
    Raises UsageError where they are not there."""
    count = options.job.spec.learner.processes
    if count == 1:
        return None
    given = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    rank, size, port = (int(text) if text.isdecimal() else -1 for text in given.values())
    if size != count or not 0 <= rank < count or port < 0:
        words = ", ".join(f"{name}={text}" for name, text in given.items())
        raise UsageError(
            f"{words}: needed are a RANK of 0 to {count - 1}, a WORLD_SIZE of {count}, as learner.processes is, and a MASTER_PORT"
        )
    about = {"job": read_at_start(options.job.spec), "rljob": version("rljob"), "torch": torch.__version__}
    return Meeting(rank, count, (os.environ.get("MASTER_ADDR", "127.0.0.1"), port), options.epoch, about, stop)


def _fork(job: RLJob, environment: EnvironmentSpec, fork: ForkSpec) -> Checkpoint:
    """The checkpoint of a fork. Raises CheckpointProblem, and StorageProblem."""
    found = checkpoint.read(forked_checkpoint(job, environment, fork).path)
    if f"sha256:{found.manifest['sha256']}" != fork.digest:
        raise CheckpointProblem(f"spec.fork.from: {found.path} was replaced by another one meanwhile")
    return found


def wanted_since(note: Mapping[str, Any]) -> float:
    """The time of a request for a checkpoint, ``{"sinceUnix": 1790000000.5}``. Raises ValueError."""
    seconds = note.get("sinceUnix")
    # An integer of any length is JSON, but not every one is a time.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _LAST_UNIX_SECONDS:
        raise ValueError('"sinceUnix" is needed: seconds since 1970, which name the request')
    return float(seconds)


def _source(
    options: RoleOptions,
    method: AnyAlgorithm,
    environment: EnvironmentSpec,
    versions: VersionLog,
    epoch: int,
    found: Checkpoint | None,
    device: torch.device,
    mirror: DeviceMirror | None,
    ranks: Ranks | None,
) -> ReplayClient | UnrollQueue:
    """Where this process's batches come from: its share of the replay shards, or a queue of unrolls in it."""
    spec = options.job.spec
    params: Any = spec.algorithm.parameters
    rank, count = (0, 1) if ranks is None else (ranks.rank, ranks.count)
    size = params.batch_size // count
    keys = load_keys(options.keys, "learner") if options.keys is not None else None
    if isinstance(method, UnrollAlgorithm):
        lag, bounds = method.iteration_lag(params), {}
        if lag is None:
            queue = params.unroll_queue
            bounds = {
                "capacity": queue.capacity // count,
                "drops_oldest": queue.overflow == "DropOldest",
                "max_lag_updates": queue.max_policy_lag_updates,
                "lag_limit_adapts": "max_policy_lag_updates" not in queue.model_fields_set,
            }
        envs = spec.actors.envs_per_actor
        config = UnrollQueueConfig(
            endpoint=options.replay_ingest[rank],
            layout=method.layout(environment, params),
            batch_size=size,
            iteration_lag=lag,
            prefetch=params.prefetch_batches if lag is None else 1,
            slots=max(1, spec.requested_actors),
            credits=credits_per_actor(envs) if lag is None else envs,
            epoch=epoch,
            resumed_from=Counted.read(found.manifest["counted"]) if found is not None else None,
            # An iteration asks an actor for a whole round of its environments: all of them for one process.
            serves=(lambda actor: member_of(actor, count) == rank) if lag is not None else (lambda actor: True),
            **bounds,
        )
        return UnrollQueue(
            config,
            versions,
            device,
            keys.server() if keys else None,
        )
    replay = spec.required_replay.resolved()
    assert isinstance(method, TransitionAlgorithm), f"{method.name} learns from neither unrolls nor transitions"
    return ReplayClient(
        ReplayClientConfig(
            endpoints=options.replay_sample[rank::count],
            layout=method.layout(environment, params),
            batch_size=size,
            prefetch=params.prefetch_batches,
            exponent=replay.exponent,
            importance=replay.importance,
            seed=spec.seed + rank,
            epoch=epoch,
            version=lambda: versions.version,
        ),
        method.importance_weights,
        device,
        keys.client("replay") if keys else None,
        mirror,
    )


def _publish_interval(method: AnyAlgorithm, params: Any) -> int:
    """Updates between two versions of the weights; 0 where one follows each batch."""
    in_iterations = isinstance(method, UnrollAlgorithm) and method.iteration_lag(params) is not None
    return 0 if in_iterations else int(params.publish_interval)


def _checkpoint_to_resume(resume: str | None, directory: Location) -> Checkpoint | None:
    """``latest``: the newest valid checkpoint of this run, if there is one. Anything else: that checkpoint, or an error."""
    if not resume or resume.lower() == "none":
        return None
    if resume.lower() == "latest":
        return checkpoint.latest_valid(directory)
    return checkpoint.read(location(resume))
