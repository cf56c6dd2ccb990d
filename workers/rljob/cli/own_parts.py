"""What a manifest names of its user's own, as far as it can be checked before anything runs."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rljob.api import RLJob
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.loading import NotBesideManifest, NotHere, PluginProblem

T = TypeVar("T")


def with_own_parts_checked(job: RLJob, *, made: bool) -> tuple[RLJob, str, tuple[str, ...]]:
    """The job with its algorithm's own parameters checked and filled in, and its environment found and the kwargs of a factory
    compared with what it takes; a note on what could not be checked here; and what the environment shows and takes, line by line.
    ``made``: the environment is made as well and played for a few steps, in a process of its own where that is its user's code,
    and the algorithm asked whether it can be trained in it.

    A module may be installed where the job runs, and a file, or what registers an id, be in the image that the job names; without
    an image both are looked for here and nowhere else. Raises PluginProblem and ManifestError.
    """
    own = job.spec.algorithm
    of_algorithm = own.has_own_code
    try:
        require_data_plane("checking what is of your own")
    except UsageError:
        what = "its own parameters were" if of_algorithm else "its environment was"
        is_own = of_algorithm or ":" in job.spec.environment.id or job.spec.environment.runs_foreign_code
        return job, f"; {what} not checked: this install has no data plane" if is_own else "", ()
    bound, of_parameters = job, ""
    if of_algorithm:
        from rljob.algorithms.registry import with_own_parts

        bound, of_parameters = _where_it_is(job, job, lambda: with_own_parts(job), "its own parameters were")
    nothing: tuple[str, ...] = ()
    lines, of_environment = _where_it_is(job, nothing, lambda: _found_environment(bound, made), "its environment was")
    return bound, of_parameters + of_environment, lines


def _where_it_is(job: RLJob, otherwise: T, check: Callable[[], T], what: str) -> tuple[T, str]:
    try:
        return check(), ""
    except NotHere as problem:
        if isinstance(problem, NotBesideManifest) and job.spec.image is None:
            raise
        return otherwise, f"; {what} not checked: {problem}"


def _found_environment(job: RLJob, made: bool) -> tuple[str, ...]:
    from rljob.envs.apart import apart
    from rljob.envs.base import EnvironmentProblem

    training, judged = job.spec.environment, job.spec.judged_environment
    look = partial(_look, job, made)
    if not made:
        return look()
    try:
        return apart(training.id, look, own=training.runs_foreign_code or judged != training)
    except EnvironmentProblem as problem:  # of the process itself; what it has found is no longer one
        raise PluginProblem(str(problem)) from problem


def _look(job: RLJob, made: bool) -> tuple[str, ...]:
    from gymnasium.error import DependencyNotInstalled

    from rljob.api.networks import NetworkProblem
    from rljob.envs.base import EnvironmentProblem, UnknownEnvironment
    from rljob.envs.target import resolve

    training, judged = job.spec.environment, job.spec.judged_environment
    try:
        if not made:
            for source in (training, judged):
                resolve(source.id, source.parameters)
            return ()
        from rljob.algorithms.suits import check_suits
        from rljob.envs.factory import describe_both
        from rljob.envs.spaces import bounds_in_words
        from rljob.envs.trial import try_environment

        spec = describe_both(training, judged)
        try_environment(training.id, training.parameters, spec)
        check_suits(job, spec)
        if training.encoder is not None:
            from rljob.encoders.edge import check_encoder  # it loads torch

            for source in (training, judged):
                check_encoder(source.id, source.parameters)
        return (*spec.lines, *bounds_in_words(spec.action, squashed=training.squashes))
    except NetworkProblem as problem:
        raise PluginProblem(str(problem)) from problem
    except UnknownEnvironment as problem:
        raise NotBesideManifest(str(problem)) from problem
    except EnvironmentProblem as problem:
        cause = problem.__cause__
        kind = type(cause) if isinstance(cause, PluginProblem) else PluginProblem
        in_the_image = isinstance(cause, DependencyNotInstalled | ImportError)  # perhaps
        raise (NotBesideManifest if in_the_image else kind)(str(problem)) from problem
