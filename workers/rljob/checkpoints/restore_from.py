"""Another run's checkpoint: ``spec.checkpoint.restoreFrom``, which a new run starts from, and ``spec.fork``, whose weights a
running one takes. Needs no torch, so a controller can check, too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rljob.api import RLJob
from rljob.api.lifecycle import ForkSpec
from rljob.checkpoints.files import VerifiedFiles, directory_in, is_checkpoint, read_manifest, stored, verify
from rljob.checkpoints.location import Location, bucket_of, location
from rljob.checkpoints.names import CheckpointProblem
from rljob.envs.spec import EnvironmentSpec
from rljob.loading import short

STARTED_FROM = "started_from"
"""In the manifest of a checkpoint: what the ``restoreFrom`` of its job named, empty for nothing."""
FORK = "fork"
"""The same of the fork that was done last: its id."""

_NOTHING = ("Latest", "None")


def started_from(job: RLJob) -> str:
    """What the manifests of a job's checkpoints say under `STARTED_FROM`."""
    uri = job.spec.checkpoint.restore_from
    return "" if uri in _NOTHING else uri


def begins_elsewhere(job: RLJob, newest: Mapping[str, Any] | None) -> bool:
    """Whether the job has yet to begin from what its ``restoreFrom`` names. ``newest``: the manifest of the newest checkpoint at
    the place where it keeps its own, None where there is none.

    That one may be another job's, which had the place before: a job's own say what it began from.
    """
    uri = job.spec.checkpoint.restore_from
    return uri not in _NOTHING and (newest is None or newest.get(STARTED_FROM, uri) != uri)


def named_checkpoint(job: RLJob, environment: EnvironmentSpec) -> VerifiedFiles | None:
    """The checkpoint that ``restoreFrom`` names, read through once; None for Latest and None, which name no other run's.

    ``file:///path`` and ``s3://bucket/prefix`` are a checkpoint, or a run, of which the newest that verifies is meant. Raises
    CheckpointProblem where there is none, it is damaged, or it is of another algorithm, other frames or another number of
    actions, and StorageProblem where its place cannot be asked.
    """
    uri = job.spec.checkpoint.restore_from
    if uri in _NOTHING:
        return None
    try:
        return _at(job, environment, uri)
    except CheckpointProblem as problem:
        raise CheckpointProblem(f"spec.checkpoint.restoreFrom: {problem}") from None


def forked_checkpoint(job: RLJob, environment: EnvironmentSpec, fork: ForkSpec) -> VerifiedFiles:
    """The checkpoint that ``spec.fork`` asks for, by its digest. Raises as `named_checkpoint`."""
    try:
        return _at(job, environment, fork.source, fork.digest.removeprefix("sha256:"))
    except CheckpointProblem as problem:
        raise CheckpointProblem(f"spec.fork.from: {problem}") from None


def _at(job: RLJob, environment: EnvironmentSpec, uri: str, digest: str = "") -> VerifiedFiles:
    own = bucket_of(job)
    found = _found(location(uri, own.bucket.endpoint if own is not None else ""), digest)
    _check_fits(found, job.spec.algorithm.name, environment)
    return found


def _found(source: Location, digest: str) -> VerifiedFiles:
    if isinstance(source, Path) and not source.is_dir():
        raise CheckpointProblem(
            f"{source} is no folder here; the folder of a run or of one of its checkpoints is expected, on a cluster in a volume "
            "that this learner mounts"
        )
    problems = []
    for path in [source] if is_checkpoint(source) else stored(directory_in(source)):
        try:
            if digest and (has := read_manifest(path).get("sha256")) != digest:
                raise CheckpointProblem(f"{path} has sha256:{has}")
            return verify(path)
        except CheckpointProblem as problem:
            problems.append(str(problem))
    wanted, reason = f" with sha256:{digest}" if digest else "", f"; {problems[0]}" if problems else ""
    raise CheckpointProblem(
        f"{source} holds no checkpoint that verifies{wanted}{reason}; a run or one of its checkpoints is expected"
    )


def _check_fits(found: VerifiedFiles, algorithm: str, environment: EnvironmentSpec) -> None:
    try:
        came, trained_in = short(str(found.manifest["algorithm"])), EnvironmentSpec.of(found.manifest["environment"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointProblem(f"{found.path} does not say what it was trained in: {error}") from None
    expected = short(algorithm)
    problem = None if came == expected else f"expected is a policy of {expected}, what came is one of {came}"
    if problem is None and (differs := environment.difference(trained_in)) is not None:
        problem = f"what it was trained in has other leaves: {differs}"
    if problem is not None:
        raise CheckpointProblem(f"{found.path} does not fit this job: {problem}")
