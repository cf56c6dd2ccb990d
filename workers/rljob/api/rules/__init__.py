"""Every rule between fields of a job, and the question whether a job keeps to them."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from rljob.algorithms.built_in import parts
from rljob.api.algorithm import names_in
from rljob.api.job import RLJob
from rljob.api.parameters import ParameterSet
from rljob.api.problems import Problem
from rljob.api.rule import KEYED, Rule, value_at
from rljob.api.rules import algorithm, sections

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (algorithm, sections, *parts("rules"))
    for item in vars(module).values()
    for rule in (item if isinstance(item, tuple) else (item,))
    if isinstance(rule, Rule)
)


def cross_field_problems(job: RLJob) -> list[Problem]:
    """Every violated rule."""
    repeated = (problem for path, node in _nodes(job, "") for problem in _repeated(path, node))
    return [*(problem for *_, problem in broken_rules(job)), *repeated]


def broken_rules(job: RLJob) -> Iterator[tuple[Rule, str, Problem]]:
    """Every broken rule of `RULES`, the place of what it is about, and what to say. Those that read parameters of a Custom
    algorithm are passed over where it was not loaded."""
    algorithm = job.spec.algorithm
    parameters: BaseModel | None = algorithm.parameters if algorithm.is_loaded else None
    known = {*names_in(type(parameters))} if parameters is not None else set()
    asked = [
        rule
        for rule in RULES
        if rule.algorithm in (None, algorithm.type) and {each.partition(".")[0] for each in rule.parameters} <= known
    ]
    yield from broken(asked, job, "")
    for rule in asked:
        if rule.at is ParameterSet and not rule.holds(parameters):
            place = f"spec.{algorithm.path_of(rule.field)}"
            yield rule, "", Problem(place, value_at(parameters, rule.field), rule.said_of(parameters))


def broken(rules: Sequence[Rule], node: BaseModel, path: str) -> Iterator[tuple[Rule, str, Problem]]:
    """Which of ``rules`` are broken by ``node``, which lies at ``path``, or by what is in it."""
    for at, each in _nodes(node, path):
        for rule in rules:
            if rule.at is type(each) and not rule.holds(each):
                place = f"{at}.{rule.field}".strip(".")
                yield rule, at, Problem(place, value_at(each, rule.field), rule.said_of(each))


def _nodes(node: BaseModel, path: str) -> Iterator[tuple[str, BaseModel]]:
    """``node`` and every model below it, with their places."""
    yield path, node
    for name, field in type(node).model_fields.items():
        value, here = getattr(node, name), f"{path}.{field.alias or name}".lstrip(".")
        if isinstance(value, BaseModel):
            yield from _nodes(value, here)
            continue
        for key, item in (
            value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
        ):
            if isinstance(item, BaseModel):
                yield from _nodes(item, f"{here}[{key}]")


def _repeated(path: str, node: BaseModel) -> Iterator[Problem]:
    """Entries of a list that have the same key, or are the same where the list is a set."""
    for name in KEYED.keys() & type(node).model_fields.keys():
        key, seen = KEYED[name], set[Any]()
        for i, item in enumerate(getattr(node, name) or ()):
            identity = getattr(item, key) if key else item
            if identity in seen:
                place = f"{path}.{to_camel(name)}"
                yield Problem(f"{place}[{i}].{key}" if key else place, identity, f"allowed: each {key or 'entry'} once")
            seen.add(identity)
