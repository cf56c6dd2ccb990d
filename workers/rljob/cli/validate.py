"""Is a manifest right, and the code that it names; and if not, what would be?"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from rljob.api import RLJob, dump_manifest, parse_job, read_with_files
from rljob.api.effective import note_on, preset_of
from rljob.api.experiment import WHY_COMMON, is_experiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.experiment_trials import dump_experiment
from rljob.api.presets import leaves
from rljob.api.problems import value_at
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.loading import NotBesideManifest, NotHere, PluginProblem, forget_files, printing_aside, short

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
    from rljob.envs.base import EnvironmentProblem
    from rljob.envs.trial import apart

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
            from rljob.encoders import check_encoder  # it loads torch

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


SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.algorithm.gamma=0.997; repeatable."),
]


class Checked(NamedTuple):
    """A manifest that is right. ``written``: the job as written, an experiment's first; ``document``: the job in force as YAML;
    ``lines``: the verdict and what the environment shows and takes; ``notes``: what its author may not expect."""

    written: dict[str, Any]
    document: str
    lines: tuple[str, ...]
    notes: tuple[str, ...]


def checked(file: Path, overrides: Sequence[str], *, made: bool) -> Checked:
    """The manifest in ``file``, with what it names of its user's own; ``made`` as in `with_own_parts_checked`.

    Raises PluginProblem and ManifestError, with every problem.
    """
    forget_files()  # those of the manifest before it, in another folder
    written = read_with_files(file, overrides)
    experiment = parse_experiment(written) if is_experiment(written) else None
    if experiment is not None:
        written = experiment.manifest(0, 1, experiment.raw_frames)
    with printing_aside():
        job, note, shown = with_own_parts_checked(parse_job(written), made=made)
    nulls = (
        f"spec.{path}: null removes nothing; presetWithout: [{path}] does"
        for path, value in leaves(written["spec"])
        if value is None and value_at(preset_of(written), path) is not None
    )
    apart = experiment is not None and experiment.spec.population is not None and job.spec.checkpoint.storage is None
    alone = f"on a cluster it is refused: {WHY_COMMON}" if apart else ""
    verdict = f"{file}: ok, {short(job.spec.algorithm.name)} on {short(job.spec.environment.id)}{note}"
    return Checked(
        written,
        dump_manifest(job) if experiment is None else dump_experiment(experiment),
        (verdict, *([experiment.in_words] if experiment is not None else ()), *shown),
        tuple(filter(None, (note_on(job.spec), *nulls, alone))),
    )
