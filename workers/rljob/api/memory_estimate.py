"""Whether a job's experience fits into a machine's memory: pure arithmetic, shown to the user before training starts."""

import math
from dataclasses import dataclass
from typing import Any

from rljob.api.job import RLJob, RLJobSpec
from rljob.api.problems import Problem
from rljob.api.replay import ReplayParameters
from rljob.api.roles import credits_per_actor

MIB = 1 << 20
_COLUMN_BYTES = 64
"""Per transition: action, return, discount, priority, positions, flags, policy version, and two float64 levels of the
sum-tree."""
_IMAGE_COMPRESSED_SHARE = 0.25
"""Cautious share that LZ4 leaves of game frames; Pong's is nearer to 0.05, but a noisy screen must fit, too.
"""
_SMALLEST_IMAGE_BYTES = 1024
_FILES_OF_A_REWRITE = 3
_PROCESS_BYTES = {
    "learner": 900 * MIB,
    "actor": 450 * MIB,
    "evaluator": 500 * MIB,
    "inference": 600 * MIB,
    "replay": 150 * MIB,
    "redis": 60 * MIB,
}
"""What a role needs besides experience: interpreter, torch, network, optimiser, buffers."""


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One term of the sum: which process needs it, how many bytes, and how that was computed."""

    label: str
    size_bytes: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The field whose number decides about memory, and what it counts."""

    path: str
    count: int
    unit: str
    smallest: int
    """Fewer than this the job could not work with."""
    smallest_name: str
    bytes_each: float


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a run of a job needs on one machine, with the numbers that a refusal explains itself with."""

    lines: tuple[MemoryLine, ...]
    stored: Stored
    fixed_bytes: int
    """What is needed however little is stored."""

    @property
    def total_bytes(self) -> int:
        """The sum of all lines."""
        return sum(line.size_bytes for line in self.lines)

    def problem(self, available_bytes: int) -> str:
        """The refusal of a job that needs more than ``available_bytes``: the whole sum, and a capacity that would fit.

        Empty when it fits.
        """
        if self.total_bytes <= available_bytes:
            return ""
        stored = self.stored
        fits = int((available_bytes - self.fixed_bytes) / stored.bytes_each)
        if fits >= stored.smallest:
            most = f"about {two_digits(fits):,} {stored.unit}"
            advice = f"allowed on this machine: {most}, or a smaller environment.atari.frameSize"
        else:
            advice = (
                f"not even {stored.smallest_name} ({stored.smallest:,}) would fit; use a smaller environment "
                "environment.atari.frameSize, fewer actors or a machine with more memory"
            )
        sums = "\n".join(f"  {_mib(line.size_bytes):>10}  {line.label}: {line.arithmetic}" for line in self.lines)
        total = f"  {_mib(self.total_bytes):>10}  needed, {_mib(available_bytes)} available"
        return str(Problem(stored.path, stored.count, f"{advice}\n{sums}\n{total}"))


def memory_estimate(job: RLJob, *, frame_bytes: int) -> MemoryEstimate:
    """Estimate the memory of all roles on one machine; ``frame_bytes`` is the size of one frame uncompressed."""
    parameters = job.spec.algorithm.parameters
    stack = job.spec.environment.frame_stack
    processes = _processes(job)
    if job.spec.replay is None:
        return _of_a_queue(job.spec, parameters, stack, frame_bytes, processes)
    return _of_a_replay(job.spec.replay.resolved(), parameters, stack, frame_bytes, processes)


def log_gib(replay: ReplayParameters, frame_size: int) -> int:
    """Whole GiB of disk for the log of one shard: while its Redis rewrites a file there are the old one, what was appended to it,
    and the new one. Frames are taken for images of one channel; a vector of so many bytes is longer than most are."""
    stored = replay.capacity * (frame_size**2 * _IMAGE_COMPRESSED_SHARE + _COLUMN_BYTES)
    if replay.capacity_bytes:
        stored = min(stored, replay.capacity_bytes)
    return math.ceil(_FILES_OF_A_REWRITE * stored / replay.shards / (1 << 30))


def _of_a_replay(
    replay: ReplayParameters, parameters: Any, stack: int, frame_bytes: int, processes: MemoryLine
) -> MemoryEstimate:
    """Frames are held uncompressed once, by the learner's mirror, and compressed twice, by the replay service and in the Redis
    log. Frames of less than 1,024 bytes are taken for vectors, which LZ4 does not shrink; the left context of a chunk is then
    overestimated, by a few bytes a transition. Where the mirror fits into the memory of the learner's GPU it takes none here;
    only the learner can tell, so it is counted.
    """
    chunk = parameters.chunk_length
    frames = chunk + stack - 1 + parameters.n_step
    transition = frames * frame_bytes / chunk + _COLUMN_BYTES
    share = _IMAGE_COMPRESSED_SHARE if frame_bytes >= _SMALLEST_IMAGE_BYTES else 1.0
    packed = frames * frame_bytes * share / chunk + _COLUMN_BYTES
    count = replay.capacity
    if replay.capacity_bytes:
        count = min(count, int(replay.capacity_bytes / transition))
    lines = (
        MemoryLine(
            "learner's mirror, frames",
            int(count * transition),
            f"{count:,} transitions * ({frames} frames / {chunk} steps * {frame_bytes:,} B + {_COLUMN_BYTES} B)",
        ),
        MemoryLine(
            "replay service and Redis log, compressed",
            int(2 * count * packed),
            f"2 * {count:,} transitions * ({frames} / {chunk} * {frame_bytes:,} B * {share:g} + {_COLUMN_BYTES} B)",
        ),
        processes,
    )
    each = transition + 2 * packed
    stored = Stored(
        "spec.replay.capacity", replay.capacity, "transitions", replay.min_size, "rateLimiter.minSize", each
    )
    return MemoryEstimate(lines, stored, processes.size_bytes)


def _of_a_queue(
    spec: RLJobSpec, parameters: Any, stack: int, frame_bytes: int, processes: MemoryLine
) -> MemoryEstimate:
    """Each unroll holds its frames once. Unrolls wait in the queue and, sent or to be sent, at the actors; the batches that
    are prefetched or learned from have every observation stacked."""
    length, queue = parameters.unroll_length, getattr(parameters, "unroll_queue", None)
    envs, size = spec.actors.envs_per_actor, parameters.batch_size
    capacity = size if queue is None else queue.capacity  # PPO asks for no more than an iteration
    frames = length + stack
    unroll = frames * frame_bytes + length * _COLUMN_BYTES
    travelling = spec.requested_actors * (envs if queue is None else credits_per_actor(envs))
    batches = parameters.prefetch_batches + 1
    each = f"({frames} frames * {frame_bytes:,} B + {length} steps * {_COLUMN_BYTES} B)"
    waiting = MemoryLine("learner's queue", capacity * unroll, f"{capacity:,} unrolls * {each}")
    at_actors = MemoryLine("unrolls on the way", travelling * unroll, f"{travelling:,} unrolls * {each}")
    stacked = MemoryLine(
        "batches, observations stacked",
        batches * size * (length + 1) * stack * frame_bytes,
        f"{batches} batches * {size} unrolls * {length + 1} observations * {stack} frames * {frame_bytes:,} B",
    )
    fixed = at_actors.size_bytes + processes.size_bytes
    if queue is None:  # a smaller iteration needs less of both, down to an unroll of each environment
        each_unroll = unroll + stacked.size_bytes // size
        least = envs * spec.requested_actors
        stored = Stored(
            f"spec.{spec.algorithm.path_of('batchSize')}",
            size,
            "unrolls",
            least,
            "one of each environment",
            each_unroll,
        )
    else:
        path = f"spec.{spec.algorithm.path_of('unrollQueue.capacity')}"
        stored = Stored(path, capacity, "unrolls", size, "one batch", unroll)
        fixed += stacked.size_bytes
    return MemoryEstimate((waiting, at_actors, stacked, processes), stored, fixed)


def _processes(job: RLJob) -> MemoryLine:
    spec = job.spec
    shards = spec.replay.shards if spec.replay is not None else 0
    counts = {
        "learner": 1,
        "actor": spec.requested_actors,
        "evaluator": int(spec.evaluator.enabled),
        "inference": spec.inference.replicas if spec.actors.inference == "Central" else 0,
        "replay": shards,
        "redis": shards,
    }
    total = sum(_PROCESS_BYTES[role] * count for role, count in counts.items())
    terms = " + ".join(f"{count} {role} * {_PROCESS_BYTES[role] // MIB} MiB" for role, count in counts.items() if count)
    return MemoryLine("processes", total, terms)


def two_digits(count: int) -> int:
    """``count`` to two significant digits, downwards."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return count // unit * unit


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MiB"
