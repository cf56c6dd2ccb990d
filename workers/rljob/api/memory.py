"""Whether a job's experience fits into a machine's memory: pure arithmetic, shown to the user before training starts."""

from __future__ import annotations

from dataclasses import dataclass

from rljob.api.job import RLJob
from rljob.api.problems import Problem

MIB = 1 << 20
_COLUMN_BYTES = 64
"""Per transition: action, return, discount, priority, positions, flags, policy version, and two float64 levels of the
sum-tree."""
_IMAGE_COMPRESSED_SHARE = 0.25
"""Cautious share that LZ4 leaves of game frames; Pong's is nearer to 0.05, but a noisy screen must not surprise anyone.
"""
_SMALLEST_IMAGE_BYTES = 1024
_PROCESS_BYTES = {
    "learner": 900 * MIB,
    "actor": 450 * MIB,
    "evaluator": 500 * MIB,
    "replay": 150 * MIB,
    "redis": 60 * MIB,
}
"""What a role needs besides experience: interpreter, torch, network, optimiser, buffers."""


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One term of the sum: who needs it, how many bytes, and how that was computed."""

    label: str
    size_bytes: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a run of a job needs on one machine, with the numbers that a refusal explains itself with."""

    lines: tuple[MemoryLine, ...]
    capacity: int
    min_size: int
    bytes_per_transition: float
    fixed_bytes: int

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
        fits = int((available_bytes - self.fixed_bytes) / self.bytes_per_transition)
        if fits >= self.min_size:
            advice = (
                f"allowed on this machine: about {_rounded(fits):,} transitions, or a smaller environment frameSize"
            )
        else:
            advice = (
                f"not even rateLimiter.minSize ({self.min_size:,}) would fit; use a smaller environment "
                "frameSize, fewer "
                "actors or a machine with more memory"
            )
        sums = "\n".join(f"  {_mib(line.size_bytes):>10}  {line.label}: {line.arithmetic}" for line in self.lines)
        total = f"  {_mib(self.total_bytes):>10}  needed, {_mib(available_bytes)} available"
        return str(Problem("spec.replay.capacity", self.capacity, f"{advice}\n{sums}\n{total}"))


def memory_estimate(job: RLJob, *, frame_bytes: int) -> MemoryEstimate:
    """Estimate the memory of all roles on one machine; ``frame_bytes`` is the size of one frame uncompressed.

    Frames are held uncompressed once, by the learner's mirror (sampling Index) or the replay service (Frames), and
    compressed in
    the Redis log and, for Index, in the replay service. Frames of less than 1,024 bytes are taken for vectors, which
    LZ4 does not
    shrink; the left context of a chunk is then overestimated, by a few bytes a transition.
    """
    parameters, replay = job.spec.algorithm.resolved(), job.spec.replay.resolved()
    chunk = parameters.chunk_length
    frames = chunk + job.spec.environment.resolved().frame_stack - 1 + parameters.n_step
    transition = frames * frame_bytes / chunk + _COLUMN_BYTES
    share = _IMAGE_COMPRESSED_SHARE if frame_bytes >= _SMALLEST_IMAGE_BYTES else 1.0
    packed = frames * frame_bytes * share / chunk + _COLUMN_BYTES
    stored = replay.capacity
    if replay.capacity_bytes:
        stored = min(stored, int(replay.capacity_bytes / transition))

    owner = "learner's mirror" if replay.sampling == "Index" else "replay ring"
    lines = [
        MemoryLine(
            f"{owner}, frames",
            int(stored * transition),
            f"{stored:,} transitions * ({frames} frames / {chunk} steps * {frame_bytes:,} B + {_COLUMN_BYTES} B)",
        )
    ]
    copies = 2 if replay.sampling == "Index" else 1
    holders = "replay service and Redis log" if copies == 2 else "Redis log"
    lines.append(
        MemoryLine(
            f"{holders}, compressed",
            int(stored * packed * copies),
            f"{copies} * {stored:,} transitions * ({frames} / {chunk} * {frame_bytes:,} B * {share:g} + "
            f"{_COLUMN_BYTES} B)",
        )
    )
    counts = {
        "learner": 1,
        "actor": job.spec.actors.replicas,
        "evaluator": int(job.spec.evaluator.enabled),
        "replay": replay.shards,
        "redis": replay.shards,
    }
    fixed = sum(_PROCESS_BYTES[role] * count for role, count in counts.items())
    terms = " + ".join(f"{count} {role} * {_PROCESS_BYTES[role] // MIB} MiB" for role, count in counts.items() if count)
    lines.append(MemoryLine("processes", fixed, terms))
    return MemoryEstimate(tuple(lines), replay.capacity, replay.min_size, transition + copies * packed, fixed)


def _rounded(count: int) -> int:
    """Two significant digits, downwards."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return count // unit * unit


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MiB"
