"""Algorithms by the name that a manifest gives them: a built-in one's (``spec.algorithm.type``), or the user's own factory.

A factory, ``module:factory`` or ``file.py:factory``, is called without arguments and gives a ``TransitionAlgorithm`` or an
``UnrollAlgorithm``, or the class of one; the class may be the factory itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rljob.algorithms.built_in import BUILT_IN, parts
from rljob.api import ManifestError, Problem, RLJob
from rljob.api.algorithm import names_in
from rljob.api.episode_metrics import NAME_PATTERN
from rljob.api.learner_status import RECORDED_NAMES
from rljob.api.parameters import ActorCriticParameterSet, ParameterSet, TransitionParameterSet, UnrollParameterSet
from rljob.api.problems import ABSENT
from rljob.api.rules import broken_rules
from rljob.api.structure import not_with, structural_problems
from rljob.loading import PLUGIN_FAILURES, PluginProblem, loaded, short, shown, told

if TYPE_CHECKING:
    from rljob.algorithms.base import AnyAlgorithm

_OWN = "spec.algorithm.custom.parameters"


def algorithm(name: str) -> AnyAlgorithm:
    """The algorithm called ``name``. Raises ValueError naming those that exist, and PluginProblem where the user's own can't be
    loaded or is none."""
    if ":" in name:
        return _own(name)
    if name not in BUILT_IN:
        raise ValueError(f"there is no algorithm {name!r}; there is {', '.join(sorted(BUILT_IN))}")
    (module,) = parts("loss", name)
    made: AnyAlgorithm = getattr(module, name)()
    return made


def declared_parameters(factory: str) -> type[ParameterSet]:
    """The type of the parameters that ``factory`` declares: that of an algorithm takes no arguments, that of a network does.

    Raises PluginProblem.
    """
    try:
        takes = inspect.signature(loaded(factory)).parameters
    except (TypeError, ValueError):  # a callable of C has no signature
        takes = MappingProxyType({})
    if takes:
        from rljob.algorithms.own_network import parameters_type

        return parameters_type(factory)
    return _own(factory).parameters


def with_own_parts(job: RLJob) -> RLJob:
    """``job`` with what its user has written loaded and checked: the parameters of a Custom algorithm are known from here on
    (``spec.algorithm.parameters``), all defaults filled in. A job without such parts comes back as it is, nothing is imported.

    Raises ManifestError for parameters that are not those declared, and PluginProblem.
    """
    spec = job.spec.algorithm
    if spec.type != "Custom" or spec.custom is None:
        _refuse(_network_problems(spec.parameters))
        return job
    made = algorithm(spec.name)
    kind: type[ParameterSet] = made.parameters
    _refuse(
        not_with(short(spec.name), name, value) for name, value in spec.shared.items() if name not in names_in(kind)
    )
    try:
        own = made.parameters.model_validate(spec.shared | spec.custom.parameters, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = structural_problems(error, made.parameters)
        _refuse(
            Problem(f"spec.{spec.path_of(each.path)}" if each.path else _OWN, each.value, each.message)
            for each in problems
        )
        raise
    except PLUGIN_FAILURES as error:
        words = f"algorithm {short(spec.name)}: its parameters can't be checked: {told(error)}"
        raise PluginProblem(words) from error
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"algorithm": spec.with_own(own)})})
    _refuse([*_place_problems(job, made), *_network_problems(own)])
    _refuse(problem for rule, _, problem in broken_rules(job) if rule.parameters)  # which no one could ask before
    return job


def _refuse(found: Any) -> None:
    if problems := list(found):
        raise ManifestError(problems)


def _network_problems(parameters: Any) -> list[Problem]:
    if ":" not in str(getattr(parameters, "network", "")) and not getattr(parameters, "network_parameters", None):
        return []
    from rljob.algorithms.own_network import own_network_problems

    return own_network_problems(parameters, "spec.algorithm")


def _place_problems(job: RLJob, made: AnyAlgorithm) -> Iterator[Problem]:
    """Whether the job has a place where what the algorithm learns from waits."""
    from rljob.algorithms.base import TransitionAlgorithm

    transitions, name = isinstance(made, TransitionAlgorithm), short(job.spec.algorithm.name)
    words = f"not allowed: {name} learns from unrolls and stores none"
    if transitions:
        words = f"required: {name} learns from transitions, which wait in the replay service; replay: {{}} takes its defaults"
    if transitions == (job.spec.replay is None):
        yield Problem("spec.replay", ABSENT, words)


def _own(name: str) -> AnyAlgorithm:
    from rljob.algorithms.base import TransitionAlgorithm, UnrollAlgorithm

    made: Any = loaded(name)
    try:
        while callable(made):  # a class, or a function that gives an object or a class
            made = made()
            if not inspect.isclass(made):
                break
    except PLUGIN_FAILURES as error:
        raise PluginProblem(f"algorithm {short(name)}: it can't be made: {told(error)}") from error
    if not isinstance(made, TransitionAlgorithm | UnrollAlgorithm):
        raise PluginProblem(
            f"algorithm {short(name)}: a TransitionAlgorithm or an UnrollAlgorithm (rljob.plugins) was expected of it, what came "
            f"is {type(made).__name__}"
        )
    _check_declarations(name, made)
    return made


def _check_declarations(name: str, made: AnyAlgorithm) -> None:
    """``parameters`` and ``metrics``, which every algorithm declares."""
    from rljob.algorithms.base import TransitionAlgorithm, UnrollAlgorithm

    kind: Any = getattr(made, "parameters", None)
    transitions = isinstance(made, TransitionAlgorithm)
    base = TransitionParameterSet if transitions else UnrollParameterSet
    fits = isinstance(kind, type) and issubclass(kind, base if transitions else (base, ActorCriticParameterSet))
    queued = isinstance(made, UnrollAlgorithm) and type(made).iteration_lag is UnrollAlgorithm.iteration_lag
    if not fits or (queued and "unroll_queue" not in kind.model_fields):  # iterations need no queue
        raise PluginProblem(
            f"algorithm {short(name)}: its attribute parameters has to be a class that is a rljob.plugins.{base.__name__}, but "
            f"is {kind!r}"
        )
    metrics: Any = getattr(made, "metrics", None)
    if not isinstance(metrics, tuple) or not all(isinstance(each, str) for each in metrics):
        raise PluginProblem(
            f"algorithm {short(name)}: its attribute metrics has to be a tuple of names, such as ('q_taken',), but is {metrics!r}"
        )
    for metric in metrics:
        if (
            metrics.count(metric) > 1
            or metric.partition("/")[0] in RECORDED_NAMES
            or not re.fullmatch(NAME_PATTERN, metric)
        ):
            raise PluginProblem(
                f"algorithm {short(name)}: its attribute metrics names {shown(metric)}, which would not be told apart in the "
                "record of a run; a metric is named once, by 1 to 64 printable ASCII characters, and not as a figure that "
                "every learner reports (loss, updates, replay/...)"
            )
