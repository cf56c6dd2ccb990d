"""Every rule between fields of a job, and the two questions asked of them: is this job right, and may it become that one?"""

from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from rljob.algorithms.built_in import parts
from rljob.api.algorithm import names_in
from rljob.api.job import RLJob
from rljob.api.parameters import ParameterSet
from rljob.api.problems import Problem
from rljob.api.rule import KEYED, Broken, Rule, value_at
from rljob.api.rules import actors, algorithm, replay, sections
from rljob.api.rules.transitions import TRANSITIONS

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (algorithm, replay, actors, sections, *parts("rules"))
    for item in vars(module).values()
    for rule in (item if isinstance(item, tuple) else (item,))
    if isinstance(rule, Rule)
)


def cross_field_problems(job: RLJob, *, wrong: Collection[str] = ()) -> list[Problem]:
    """Every violated rule, but none that reads or names a field of ``wrong``: in the place of such a field the job has a value
    that its author did not write."""
    problems = []
    for rule, path, problem in broken_rules(job):
        of_algorithm = (f"spec.{job.spec.algorithm.path_of(each)}" for each in rule.parameters)
        read = [problem.path, *(f"{path}.{field}" for field in rule.reads), *of_algorithm]
        if not any(_overlap(each, place) for each in read for place in wrong):
            problems.append(problem)
    for path, node in _nodes(job, ""):
        problems += [each for each in _repeated(path, node) if not any(_overlap(each.path, place) for place in wrong)]
    return problems


def own_algorithm_problems(job: RLJob) -> list[Problem]:
    """Broken rules of a job whose Custom algorithm has been loaded that read its parameters, and that no one could ask before."""
    return [problem for rule, _, problem in broken_rules(job) if rule.parameters]


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{path}.", f"{path}["))


def broken_rules(job: RLJob) -> Iterator[tuple[Rule, str, Problem]]:
    """Every broken rule of `RULES`, the place of what it is about, and what to say. Those that read parameters of a Custom
    algorithm are passed over where it was not loaded."""
    algorithm = job.spec.algorithm
    parameters: BaseModel | None = algorithm.parameters if algorithm.is_loaded else None
    known = {} if parameters is None else names_in(type(parameters))
    for path, node in (*_nodes(job, ""), *([] if parameters is None else [("", parameters)])):
        for rule in RULES:
            if rule.algorithm not in (None, algorithm.type) or (
                node is not parameters if rule.at is ParameterSet else rule.at is not type(node)
            ):
                continue
            if not all(each.partition(".")[0] in known for each in rule.parameters):
                continue
            outcome = rule.check(node)
            if outcome is None:
                continue
            place = f"{path}.{rule.field}" if rule.field else path
            if rule.at is ParameterSet:
                place = f"spec.{algorithm.path_of(rule.field)}"
            if isinstance(outcome, Broken):
                yield rule, path, Problem(place, outcome.value, outcome.message)
            else:
                yield rule, path, Problem(place, value_at(node, rule.field), outcome)


def transition_problems(old: RLJob, new: RLJob) -> list[Problem]:
    """Why ``old`` may not become ``new``; both have been checked by themselves. Each place is named once."""
    found: dict[str, Problem] = {}
    for name in ("name", "namespace"):
        given = getattr(new.metadata, name)
        if given != getattr(old.metadata, name):
            found[name] = Problem(f"metadata.{name}", given, "it cannot be changed; make a new job")
    for rule in TRANSITIONS:
        for each in rule.broken(old.spec, new.spec):
            found.setdefault(each.path, Problem(f"spec.{each.path}", each.value, rule.message))
    return list(found.values())


def _nodes(node: BaseModel, path: str) -> Iterator[tuple[str, BaseModel]]:
    """``node`` and every model below it, with their places."""
    yield path, node
    for name, field in type(node).model_fields.items():
        value, here = getattr(node, name), f"{path}.{field.alias or name}".lstrip(".")
        if isinstance(value, BaseModel):
            yield from _nodes(value, here)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _nodes(item, f"{here}[{i}]")


def _repeated(path: str, node: BaseModel) -> Iterator[Problem]:
    """Entries of a list that have the same key, or are the same where the list is a set."""
    for (owner, name), key in KEYED.items():
        if owner is not type(node):
            continue
        alias = type(node).model_fields[name].alias or name
        seen: set[Any] = set()
        for i, item in enumerate(getattr(node, name) or ()):
            identity = getattr(item, key) if key else item
            if identity in seen:
                shown = to_camel(key)
                place = f"{path}.{alias}[{i}].{shown}" if key else f"{path}.{alias}"
                yield Problem(place, identity, f"allowed: each {shown or 'entry'} once")
            seen.add(identity)
