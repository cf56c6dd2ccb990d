"""Checks before the first process starts, so that a job that can't run here is refused at once."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import psutil
from rljob.algorithms.registry import with_own_parts
from rljob.algorithms.suits import check_suits
from rljob.api import RLJob, memory_estimate
from rljob.api.local import MemoryEstimate
from rljob.checkpoints.files import stored
from rljob.checkpoints.location import bucket_of
from rljob.checkpoints.restore_from import named_checkpoint
from rljob.encoders import check_encoder
from rljob.envs import EnvironmentSpec, apart, describe_both, try_environment
from rljob.errors import UsageError
from rljob.loading import files_loaded


class PreflightProblem(UsageError):
    """The job can't run on this machine; the message says why, with the arithmetic, and what would work."""


def check(job: RLJob, *, new: bool = False) -> tuple[EnvironmentSpec, Mapping[str, Path]]:
    """Build the environment and play a few steps of it, ask for a network that sees its frames, try what the user has written of
    the algorithm, and compare the memory that the run needs with what is free; for a ``new`` run, also look into its bucket and
    read through the one that it shall start from. What is not ours runs in a process of its own. Answers what
    the environment is, and the files of the user's own that were loaded (`rljob.loading.files_loaded`, and its encoder).

    Raises EnvironmentProblem (from the environment room), NetworkProblem, PluginProblem, ManifestError, CheckpointProblem,
    StorageProblem or PreflightProblem.
    """
    own = (
        job.spec.algorithm.has_own_code
        or job.spec.environment.runs_foreign_code
        or job.spec.evaluator.environment is not None
    )
    spec, estimate, files = apart(job.spec.environment.id, partial(_looked_at, job, new), own=own)
    available = available_memory_bytes()
    if estimate.total_bytes > available:
        raise PreflightProblem(estimate.problem(available))
    return spec, files


def _looked_at(job: RLJob, new: bool) -> tuple[EnvironmentSpec, MemoryEstimate, Mapping[str, Path]]:
    job = with_own_parts(job)
    spec = describe_both(job.spec.environment, job.spec.judged_environment)
    try_environment(job.spec.environment.id, job.spec.environment.parameters, spec)
    check_suits(job, spec)
    check_encoder(job.spec.environment.id, job.spec.environment.parameters)
    if job.spec.algorithm.has_own_code:
        from rljob.algorithms.conformance import check_own_parts

        check_own_parts(job, spec)
    if new:
        if (bucket := bucket_of(job)) is not None:
            stored(bucket)
        named_checkpoint(job, spec)
    encoders = [Path(each.file) for each in (job.spec.environment.encoder,) if each is not None]
    return (
        spec,
        memory_estimate(job, frame_bytes=spec.row_bytes),
        files_loaded() | {each.name: each for each in encoders},
    )


def available_memory_bytes() -> int:
    """Memory that new processes can take now, in bytes: the machine's, or the control group's where that is less."""
    available = psutil.virtual_memory().available
    try:
        limit, current = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        return min(available, limit - current)
    except (OSError, ValueError):
        return int(available)
