"""Whether the parameters that stand in ``spec.algorithm`` are those of its algorithm: each takes less than all together do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import CUSTOM, SHARED, AlgorithmSpec
from rljob.api.fields import OfParameters, in_words, mark_in
from rljob.api.names_elsewhere import MOVED
from rljob.api.problems import Location, Problem, path_of
from rljob.api.structure import structural_problems

_HERE: Location = ("spec", "algorithm")


def misfits(algorithm: AlgorithmSpec) -> list[tuple[Problem, Location]]:
    """What is wrong with the parameters, each with its place in the document. Of a Custom algorithm only where it is loaded can
    more be told than that what it shares with others does not stand with its own."""
    return list(_of_custom(algorithm) if algorithm.type == CUSTOM else _of_built_in(algorithm))


def _of_built_in(algorithm: AlgorithmSpec) -> Iterator[tuple[Problem, Location]]:
    kind = BUILT_IN[algorithm.type].parameters
    for alias, value in algorithm.shared.items():
        if SHARED[alias] not in kind.model_fields:
            yield problem_at(alias, value, without(algorithm.type, alias))
    try:
        _ = algorithm.parameters
    except ValidationError as error:
        for problem, place in zip(*structural_problems(error, kind), strict=True):
            yield problem_at(str(place[0]), problem.value, f"{problem.message}, with algorithm {algorithm.type}")


def _of_custom(algorithm: AlgorithmSpec) -> Iterator[tuple[Problem, Location]]:
    own = algorithm.custom.parameters if algorithm.custom is not None else {}
    for name, value in own.items():
        if instead := MOVED.get(f"algorithm.*.{name}"):
            place = (*_HERE, "custom", "parameters", name)
            yield Problem(path_of(place), value, f"not allowed here; write spec.{instead} instead"), place


def problem_at(alias: str, value: Any, message: str) -> tuple[Problem, Location]:
    """A problem with a parameter that stands in ``spec.algorithm`` itself."""
    return Problem(f"spec.algorithm.{alias}", value, message), (*_HERE, alias)


def without(algorithm: str, alias: str) -> str:
    """That an algorithm has no such parameter, and which built-in ones do."""
    mark = mark_in(AlgorithmSpec.model_fields[SHARED[alias]], OfParameters)
    assert mark is not None, "what is shared is made of parameter sets"
    having = [*mark.sets]
    return f"not allowed: {algorithm} has no such parameter; {in_words(having)} {'has' if len(having) == 1 else 'have'}"
