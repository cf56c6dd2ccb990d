"""From a manifest file to a checked `RLJob`, or to every problem at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rljob.api.defaults import with_algorithm_defaults
from rljob.api.document import parse_document
from rljob.api.explain import Location, structural_problems
from rljob.api.job import API_VERSION, KIND, RLJob
from rljob.api.nulls import without_nulls
from rljob.api.overrides import apply_overrides
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.rules import cross_field_problems

_SKELETON: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "unnamed"},
    "spec": {"algorithm": {"name": "ApeXDQN"}, "environment": {"id": "unnamed"}},
}
_STORES = {"ApeXDQN": "replay", "IMPALA": "queue"}


_WRITTEN_BY_SERVERS = frozenset(
    (
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
"""Fields of metadata that a stored object has beside those of a manifest."""


def load_manifest(path: Path, overrides: Sequence[str] = (), *, on_cluster: bool = True) -> RLJob:
    """Read, override and check a manifest. Raises ManifestError with every problem that was found.

    ``on_cluster``: also by the rules about what a run on one machine does in its own way."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ManifestError(
            [Problem(str(path), ABSENT, f"cannot be read: {reason}; give the path of a manifest")]
        ) from None
    return parse_job(apply_overrides(parse_document(text, str(path)), overrides), on_cluster=on_cluster)


def parse_job(document: Mapping[str, Any], *, on_cluster: bool = True) -> RLJob:
    """Check a document that has been parsed already (one from an API server, for instance). Raises ManifestError.

    Known fields that are null count as not given (`rljob.api.nulls`); the status and the metadata that a stored object has
    are passed over. Rules between fields are tried even when single fields are wrong: a wrong field is replaced by its
    default for that purpose, and what a rule then says about it is dropped. ``on_cluster``: as `load_manifest`.
    """
    given = with_algorithm_defaults(without_nulls(_as_written(document), RLJob))
    try:
        job = RLJob.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as error:
        problems, wrong = structural_problems(error, given)
        repaired = _repaired(given, wrong)
        if repaired is not None:
            known = {problem.path for problem in problems}
            problems += [
                problem
                for problem in (*_parameter_problems(repaired), *cross_field_problems(repaired, on_cluster=on_cluster))
                if not any(_overlap(problem.path, path) for path in known)
            ]
        raise ManifestError(problems) from None
    problems = [*_parameter_problems(job), *cross_field_problems(job, on_cluster=on_cluster)]
    if problems:
        raise ManifestError(problems)
    return job


def _as_written(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a stored object that its user wrote."""
    given = {key: value for key, value in document.items() if key != "status"}
    metadata = given.get("metadata")
    if isinstance(metadata, Mapping):
        given["metadata"] = {key: value for key, value in metadata.items() if key not in _WRITTEN_BY_SERVERS}
    return given


def dump_manifest(job: RLJob) -> str:
    """The job as YAML, with every field, default or not: what a role is started from."""
    return yaml.safe_dump(json.loads(job.model_dump_json(by_alias=True, exclude_none=True)), sort_keys=False)


def _parameter_problems(job: RLJob) -> list[Problem]:
    return [*job.spec.algorithm.checked()[1], *job.spec.environment.checked()[1]]


def _repaired(document: dict[str, Any], wrong: Sequence[Location]) -> RLJob | None:
    """The job without its wrong values, and with something in the place of what is required; None if that does not
    help."""
    repaired = _without(document, set(wrong), ())
    _fill(repaired, _SKELETON)
    spec = repaired["spec"]
    if ("spec", "algorithm", "name") in wrong:  # which one was meant is seen from the store beside it
        name = "IMPALA" if "queue" in spec and "replay" not in spec else "ApeXDQN"
        spec["algorithm"]["name"] = name
        spec.setdefault(_STORES[name], {})
    try:
        return RLJob.model_validate(with_algorithm_defaults(repaired), by_alias=True, by_name=False)
    except ValidationError:
        return None


def _without(node: Any, wrong: set[Location], here: Location) -> Any:
    """A copy without what lies at ``wrong``; an entry of a list goes as a whole when anything in it is wrong."""
    if isinstance(node, dict):
        kept = {key: item for key, item in node.items() if (*here, key) not in wrong}
        return {key: _without(item, wrong, (*here, key)) for key, item in kept.items()}
    if isinstance(node, list):
        size = len(here) + 1
        touched = {place[:size] for place in wrong if len(place) >= size}
        return [_without(item, wrong, (*here, i)) for i, item in enumerate(node) if (*here, i) not in touched]
    return node


def _fill(node: dict[str, Any], skeleton: Mapping[str, Any]) -> None:
    for key, value in skeleton.items():
        if isinstance(value, dict):
            if not isinstance(node.get(key), dict):
                node[key] = {}
            _fill(node[key], value)
        else:
            node.setdefault(key, value)


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{path}.", f"{path}["))
