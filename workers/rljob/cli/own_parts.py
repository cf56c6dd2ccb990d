"""What a manifest names of its user's own, as far as it can be checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rljob.api import RLJob
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.loading import NoSuchFile, NotHere, PluginProblem

T = TypeVar("T")


def with_own_parts_checked(job: RLJob) -> tuple[RLJob, str]:
    """The job with its algorithm's own parameters checked and filled in, and its environment's factory found and its kwargs
    compared with what it takes; and a word on what could not be checked here.

    A module may be installed where the job runs, and a file be in the image that the job names; without an image it is looked
    for beside the manifest and nowhere else. Raises PluginProblem and ManifestError.
    """
    own, factory = job.spec.algorithm, job.spec.environment.id
    of_algorithm = own.type == "Custom" or ":" in str(own.parameters.network)
    of_environment = ":" in factory and factory.rpartition(":")[2].isidentifier()
    if not of_algorithm and not of_environment:
        return job, ""
    try:
        require_data_plane("checking what is of your own")
    except UsageError:
        what = "its own parameters were" if of_algorithm else "its environment was"
        return job, f"; {what} not checked: this install has no data plane"
    notes = []
    bound = job
    if of_algorithm:
        bound, note = _where_it_is(job, job, lambda: _with_parameters(job), "its own parameters were")
        notes.append(note)
    if of_environment:
        _, note = _where_it_is(job, None, lambda: _found_environment(job), "its environment was")
        notes.append(note)
    return bound, "".join(notes)


def _where_it_is(job: RLJob, otherwise: T, check: Callable[[], T], what: str) -> tuple[T, str]:
    try:
        return check(), ""
    except NotHere as problem:
        if isinstance(problem, NoSuchFile) and job.spec.image is None:
            raise
        return otherwise, f"; {what} not checked: {problem}"


def _with_parameters(job: RLJob) -> RLJob:
    from rljob.algorithms.registry import with_own_parts

    return with_own_parts(job)


def _found_environment(job: RLJob) -> None:
    from rljob.envs.errors import EnvironmentProblem
    from rljob.envs.target import resolve

    try:
        resolve(job.spec.environment.id, job.spec.environment.parameters)
    except EnvironmentProblem as problem:
        kind = type(problem.__cause__) if isinstance(problem.__cause__, PluginProblem) else PluginProblem
        raise kind(str(problem)) from problem
