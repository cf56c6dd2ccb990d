"""The job in force: every default that follows from others filled in, and the memory of what its user wrote.

``model_fields_set`` of a job and of each of its sections holds the fields that the manifest has, and nothing of presets and
defaults. A mapping of the manifest's own keys that a preset also fills, such as ``resources.requests``, is merged all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.computed import computed
from rljob.api.job import RLJob, RLJobSpec
from rljob.api.replay import ReplaySpec

M = TypeVar("M", bound=BaseModel)


def effective(job: RLJob, written: Mapping[str, Any]) -> RLJob:
    """``job``, validated with its preset, as it is in force; ``written`` is its manifest."""
    spec = _with_sections(job.spec)
    for (model, name), value in computed(spec.algorithm.type):
        spec = _filled(spec, model, name, partial(value, spec))
    return as_written(job.model_copy(update={"spec": spec}), written)


def _with_sections(spec: RLJobSpec) -> RLJobSpec:
    """The sections that a job of its algorithm has, whether they were written or not."""
    algorithm = spec.algorithm.filled()
    declared = BUILT_IN.get(algorithm.type)
    replay = ReplaySpec() if declared is not None and declared.from_replay and spec.replay is None else spec.replay
    of_learner = {"accelerator": spec.learner.accelerator.as_limited(spec.learner.resources)}
    of_inference = {"accelerator": spec.inference.accelerator.as_limited(spec.inference.resources)}
    return spec.model_copy(
        update={
            "algorithm": algorithm,
            "replay": replay,
            "learner": spec.learner.model_copy(update=of_learner),
            "inference": spec.inference.model_copy(update=of_inference),
        }
    )


def _filled(node: M, model: type[BaseModel], name: str, value: Callable[[], Any]) -> M:
    """``node`` with ``name`` of every section of type ``model`` in it that does not have it from manifest or preset."""
    if type(node) is model:
        return node if name in node.model_fields_set else node.model_copy(update={name: value()})
    below = {each: child for each in type(node).model_fields if isinstance(child := getattr(node, each), BaseModel)}
    filled = {each: _filled(child, model, name, value) for each, child in below.items()}
    changed = {each: child for each, child in filled.items() if child is not below[each]}
    return node.model_copy(update=changed) if changed else node


def as_written(node: M, written: Mapping[str, Any]) -> M:
    """A copy whose ``model_fields_set``, and those of the sections below, name what ``written`` has."""
    given: set[str] = set()
    sections: dict[str, BaseModel] = {}
    for name, field in type(node).model_fields.items():
        item, child = written.get(field.alias or name), getattr(node, name)
        if item is not None:
            given.add(name)
        if isinstance(child, BaseModel):
            sections[name] = as_written(child, item if isinstance(item, Mapping) else {})
    copy = node.model_copy(update=sections)
    copy.model_fields_set.clear()
    copy.model_fields_set.update(given)
    return copy
