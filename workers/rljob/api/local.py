"""What one machine makes of a job: which fields mean nothing there, so that a local run can name them once and not pass over them
in silence; and whether the job's experience fits into its memory, shown before training starts."""

import math
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from rljob.api.job import RLJob
from rljob.api.problems import Problem
from rljob.api.replay import ReplayParameters
from rljob.api.roles import RoleSpec, credits_per_actor

_CLUSTER_ONLY = (
    "metadata.namespace",
    "spec.managedBy",
    "spec.image",
    "spec.imagePullSecrets",
    "spec.code",
    *(
        f"spec.{role}.{field.alias or name}"
        for role in ("learner", "replay", "actors", "inference", "evaluator")
        for name, field in RoleSpec.model_fields.items()
    ),
    "spec.replay.redis.image",
    "spec.replay.redis.resources",
    "spec.replay.redis.persistence.storage",
    "spec.replay.redis.persistence.storageClassName",
    "spec.replay.redis.external.secretRef",
    "spec.actors.spot",
    "spec.actors.topologySpread",
    "spec.checkpoint.storage.persistentVolumeClaim",
    "spec.checkpoint.storage.objectStore.secretRef",
    "spec.ttlSecondsAfterFinished",
    "spec.scheduling",
    "spec.network",
    "spec.monitoring",
    "spec.tracking.secretRef",
)
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def not_applied_locally(job: RLJob) -> list[str]:
    """Paths of the fields that the user set and that a run on one machine does not apply, in the order of the list above.

    A field set to what one machine does anyway (nothing) is not named.
    """
    found = [part for path in _CLUSTER_ONLY if _is_set(job, path) for part in _parts(job, path)]
    if _QUEUE_LABEL in job.metadata.labels:
        found.insert(0, f"metadata.labels.{_QUEUE_LABEL}")
    return found


def _parts(job: RLJob, path: str) -> list[str]:
    """What of a field that is set is passed over: of a role's variables those whose value a cluster takes from elsewhere, of
    resources all but the processors, and the learner's device, that a role goes by here, too."""
    section, _, field = path.removeprefix("spec.").partition(".")
    role = getattr(job.spec, section, None)
    if field == "env" and isinstance(role, RoleSpec):
        return [f"{path}[{entry.name}]" for entry in role.env or () if "valueFrom" in entry.model_dump()]
    if field == "resources" and section in ("learner", "actors", "evaluator") and isinstance(role, RoleSpec):
        asked = {"requests": role.resources.requests, "limits": role.resources.limits}
        of_limits = job.spec.learner.accelerator.resource_name if section == "learner" else "cpu"
        own = {("requests", "cpu"), ("limits", of_limits)}
        return [f"{path}.{kind}.{name}" for kind in asked for name in asked[kind] if (kind, name) not in own]
    return [path]


def _is_set(job: RLJob, path: str) -> bool:
    """Whether the document gave ``path`` a value that asks for something."""
    node: object = job
    for part in path.split("."):
        given = {to_camel(name): name for name in node.model_fields_set} if isinstance(node, BaseModel) else {}
        if part not in given:
            return False
        node = getattr(node, given[part])
    return bool(node) and not (isinstance(node, BaseModel) and not node.model_fields_set)


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

Line = tuple[str, int, str]
"""One term of a sum: which process needs it, how many bytes, and how that was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What a run of a job needs on one machine, with the numbers that a refusal explains itself with."""

    lines: tuple[Line, ...]
    path: str
    """The field whose number decides about memory."""
    count: int
    unit: str
    """What it counts."""
    smallest: int
    """Fewer than this the job could not work with."""
    smallest_name: str
    bytes_each: float
    fixed_bytes: int
    """What is needed however little is stored."""

    @property
    def total_bytes(self) -> int:
        """The sum of all lines."""
        return sum(size_bytes for _, size_bytes, _ in self.lines)

    def problem(self, available_bytes: int) -> str:
        """The refusal of a job that needs more than ``available_bytes``: the whole sum, and a capacity that would fit.

        Empty when it fits.
        """
        if self.total_bytes <= available_bytes:
            return ""
        fits = int((available_bytes - self.fixed_bytes) / self.bytes_each)
        advice = (
            f"allowed on this machine: about {two_digits(fits):,} {self.unit}, or a smaller environment.atari.frameSize"
            if fits >= self.smallest
            else f"not even {self.smallest_name} ({self.smallest:,}) would fit; use a smaller environment.atari.frameSize, fewer "
            "actors or a machine with more memory"
        )
        sums = "\n".join(f"  {_mib(size_bytes):>10}  {label}: {how}" for label, size_bytes, how in self.lines)
        total = f"  {_mib(self.total_bytes):>10}  needed, {_mib(available_bytes)} available"
        return str(Problem(self.path, self.count, f"{advice}\n{sums}\n{total}"))


def memory_estimate(job: RLJob, *, frame_bytes: int) -> MemoryEstimate:
    """Estimate the memory of all roles on one machine; ``frame_bytes`` is the size of one frame uncompressed."""
    return (_of_a_queue if job.spec.replay is None else _of_a_replay)(job, frame_bytes, _processes(job))


def log_gib(replay: ReplayParameters, frame_size: int) -> int:
    """Whole GiB of disk for the log of one shard: while its Redis rewrites a file there are the old one, what was appended to it,
    and the new one. Frames are taken for images of one channel; a vector of so many bytes is longer than most are."""
    stored = replay.capacity * (frame_size**2 * _IMAGE_COMPRESSED_SHARE + _COLUMN_BYTES)
    if replay.capacity_bytes:
        stored = min(stored, replay.capacity_bytes)
    return math.ceil(_FILES_OF_A_REWRITE * stored / replay.shards / (1 << 30))


def _of_a_replay(job: RLJob, frame_bytes: int, processes: Line) -> MemoryEstimate:
    """Frames are held uncompressed once, by the learner's mirror, and compressed twice, by the replay service and in the Redis
    log. Frames of less than 1,024 bytes are taken for vectors, which LZ4 does not shrink; the left context of a chunk is then
    overestimated, by a few bytes a transition. Where the mirror fits into the memory of the learner's GPU it takes none here;
    only the learner can tell, so it is counted.
    """
    replay, parameters = job.spec.required_replay.resolved(), job.spec.algorithm.parameters
    chunk = parameters.chunk_length
    frames = chunk + job.spec.environment.frame_stack - 1 + parameters.n_step
    transition = frames * frame_bytes / chunk + _COLUMN_BYTES
    share = _IMAGE_COMPRESSED_SHARE if frame_bytes >= _SMALLEST_IMAGE_BYTES else 1.0
    packed = frames * frame_bytes * share / chunk + _COLUMN_BYTES
    count = replay.capacity
    if replay.capacity_bytes:
        count = min(count, int(replay.capacity_bytes / transition))
    mirror = f"{count:,} transitions * ({frames} frames / {chunk} steps * {frame_bytes:,} B + {_COLUMN_BYTES} B)"
    log = f"2 * {count:,} transitions * ({frames} / {chunk} * {frame_bytes:,} B * {share:g} + {_COLUMN_BYTES} B)"
    return MemoryEstimate(
        lines=(
            ("learner's mirror, frames", int(count * transition), mirror),
            ("replay service and Redis log, compressed", int(2 * count * packed), log),
            processes,
        ),
        path="spec.replay.capacity",
        count=replay.capacity,
        unit="transitions",
        smallest=replay.min_size,
        smallest_name="rateLimiter.minSize",
        bytes_each=transition + 2 * packed,
        fixed_bytes=processes[1],
    )


def _of_a_queue(job: RLJob, frame_bytes: int, processes: Line) -> MemoryEstimate:
    """Each unroll holds its frames once. Unrolls wait in the queue and, sent or to be sent, at the actors; the batches that
    are prefetched or learned from have every observation stacked. Without a queue a smaller iteration needs less of both, down to
    an unroll of each environment."""
    spec, parameters, stack = job.spec, job.spec.algorithm.parameters, job.spec.environment.frame_stack
    length, size, queue = parameters.unroll_length, parameters.batch_size, getattr(parameters, "unroll_queue", None)
    envs, actors, batches = spec.actors.envs_per_actor, spec.requested_actors, parameters.prefetch_batches + 1
    capacity = size if queue is None else queue.capacity  # PPO asks for no more than an iteration
    travelling = actors * (envs if queue is None else credits_per_actor(envs))
    unroll = (length + stack) * frame_bytes + length * _COLUMN_BYTES
    stacked = batches * size * (length + 1) * stack * frame_bytes
    each = f"({length + stack} frames * {frame_bytes:,} B + {length} steps * {_COLUMN_BYTES} B)"
    stacks = f"{size} unrolls * {length + 1} observations * {stack} frames * {frame_bytes:,} B"
    return MemoryEstimate(
        lines=(
            ("learner's queue", capacity * unroll, f"{capacity:,} unrolls * {each}"),
            ("unrolls on the way", travelling * unroll, f"{travelling:,} unrolls * {each}"),
            ("batches, observations stacked", stacked, f"{batches} batches * {stacks}"),
            processes,
        ),
        path=f"spec.{spec.algorithm.path_of('batchSize' if queue is None else 'unrollQueue.capacity')}",
        count=capacity,
        unit="unrolls",
        smallest=envs * actors if queue is None else size,
        smallest_name="one of each environment" if queue is None else "one batch",
        bytes_each=unroll + (stacked // size if queue is None else 0),
        fixed_bytes=travelling * unroll + processes[1] + (0 if queue is None else stacked),
    )


def _processes(job: RLJob) -> Line:
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
    return "processes", total, terms


def two_digits(count: int) -> int:
    """``count`` to two significant digits, downwards."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return count // unit * unit


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MiB"
