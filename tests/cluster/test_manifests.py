"""Every example, every bad manifest and every change of the shared tables, at the door of a real API server.

`api_server.py` of the unit tests is what we believe such a server does; here both are asked.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import api_server
import jobs
import pytest
from bad_manifests import BASE, EDGES, IMPALA, NULLS, REFUSED_BY_CLUSTER
from changed_manifests import CHANGES
from control_plane import ControlPlane
from rljob.api import load_manifest, parse_job
from rljob.api.cel import transition_validation
from rljob.api.rules.transitions import TRANSITIONS
from written import EXAMPLES, document

_BY_ALGORITHM = (("autoscaling", "signal"), ("autoscaling", "guards", "maxPolicyLagUpdates"))
"""Defaults that depend on the algorithm, which a schema cannot say; the controller fills them in."""


def python_defaults(file: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The spec with everything that `rljob.api` fills in, apart from what only the controller can."""
    job = load_manifest(file)
    spec: dict[str, Any] = json.loads(job.model_dump_json(by_alias=True, exclude_none=True))["spec"]
    for path in _BY_ALGORITHM:
        node, written = spec, given["spec"]
        for name in path[:-1]:
            node, written = node[name], written.get(name, {})
        if path[-1] not in written:
            del node[path[-1]]
    return spec


@pytest.mark.parametrize("file", [*EXAMPLES, BASE, IMPALA], ids=lambda file: file.stem)
def test_an_example_is_stored_with_the_defaults_of_rljob(cluster: ControlPlane, file: Path) -> None:
    given = document(file)
    answer = jobs.create(cluster, given)
    assert answer.accepted, answer.message
    assert answer.document["spec"] == python_defaults(file, given)
    assert answer.document["spec"] == api_server.admitted(given)["spec"]


@pytest.mark.parametrize(
    ("base", "overrides", "path", "words"),
    REFUSED_BY_CLUSTER,
    ids=[f"{case[0].stem} {' '.join(case[1])[:70]}" for case in REFUSED_BY_CLUSTER],
)
def test_a_bad_manifest_is_refused_by_name(
    cluster: ControlPlane, base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = document(base, overrides)
    answer = jobs.create(cluster, given)
    assert not answer.accepted
    field = path.split(".")[-1].split("[")[0]
    section = path.split(".")[1]
    assert field in answer.message or f"spec.{section}" in answer.message, answer.message
    for at, message in expected_of_cel(given):
        assert answer.names(at, message), answer.document


def expected_of_cel(given: dict[str, Any]) -> set[tuple[str, str]]:
    """(field, message) of the rules that the double of the unit tests finds broken, where the schema finds nothing."""
    admitted = api_server.admitted(given)
    if len(given["metadata"]) > 1 or list(api_server.unknown(admitted, api_server.ROOT, "")):
        return set()
    if list(api_server.Validator(api_server.ROOT).iter_errors(admitted)):
        return set()
    return {
        (f"{path}{validation.get('fieldPath', '')}".lstrip(".") or "<nil>", message)
        for path, validation, message in api_server.broken(admitted, None, api_server.ROOT, "")
    }


@pytest.mark.parametrize(("base", "override"), NULLS, ids=[override for _, override in NULLS])
def test_a_null_under_a_known_name_is_not_given(cluster: ControlPlane, base: Path, override: str) -> None:
    given = document(base, [override])
    answer = jobs.create(cluster, given)
    assert answer.accepted, answer.message
    assert answer.document["spec"] == api_server.admitted(given)["spec"]


@pytest.mark.parametrize(("base", "edge", "beyond"), EDGES, ids=[f"{case[0].stem} {case[2]}" for case in EDGES])
def test_the_edge_of_a_rule(cluster: ControlPlane, base: Path, edge: list[str], beyond: str) -> None:
    at_the_edge = jobs.create(cluster, document(base, edge))
    assert at_the_edge.accepted, at_the_edge.message
    bad = document(base, [*edge, beyond])
    answer = jobs.create(cluster, bad)
    assert not answer.accepted
    for at, message in expected_of_cel(bad):
        assert answer.names(at, message), answer.document


@pytest.mark.parametrize(
    ("base", "before", "after", "field"), CHANGES, ids=[f"{case[0].stem} {' '.join(case[2])[:60]}" for case in CHANGES]
)
def test_a_change(cluster: ControlPlane, base: Path, before: list[str], after: list[str], field: str | None) -> None:
    old, new = document(base, before), document(base, [*before, *after])
    stored = jobs.create(cluster, old, dry_run=False)
    assert stored.accepted, stored.message
    answer = jobs.replace(cluster, new)
    if field is None:
        assert answer.accepted, answer.message
        return
    assert not answer.accepted
    rule = next(rule for rule in TRANSITIONS if rule.field == field)
    said = transition_validation(rule)
    assert answer.names(f"spec{said['fieldPath']}", said["message"]), answer.document


@pytest.mark.parametrize("base", [BASE, IMPALA], ids=lambda file: file.stem)
def test_every_parameter_at_once(cluster: ControlPlane, base: Path) -> None:
    """The longest lists there can be: the server gives up on rules that together cost too much while a job is checked."""
    given, job = document(base), load_manifest(base)
    for section, values in (
        ("algorithm", job.spec.algorithm.resolved()),
        ("environment", job.spec.environment.resolved()),
    ):
        given["spec"][section]["parameters"] = [
            {"name": name, "value": as_text(getattr(values, python))}
            for name, python in type(values).names().items()
            if getattr(values, python) is not None
        ]
    given["spec"]["environment"]["parameters"][-1] = {"name": "kwargs", "value": json.dumps({"long": "x" * 4000})}
    answer = jobs.create(cluster, given)
    assert answer.accepted, answer.message
    assert len(answer.document["spec"]["algorithm"]["parameters"]) > 25
    stored = jobs.create(cluster, given, dry_run=False)
    assert stored.accepted, stored.message
    given["spec"]["actors"] = {"replicas": 3}
    answer = jobs.replace(cluster, given)
    assert answer.accepted, answer.message


def as_text(value: bool | float | str | tuple[int, ...]) -> str:
    """A parameter's value as the string of a manifest."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def test_the_order_of_parameters_is_no_change(cluster: ControlPlane) -> None:
    given = document(BASE)
    assert jobs.create(cluster, given, dry_run=False).accepted
    turned = copy.deepcopy(given)
    turned["spec"]["algorithm"]["parameters"].reverse()
    answer = jobs.replace(cluster, turned)
    assert answer.accepted, answer.message


def test_a_stored_job_reads_back_as_the_same_job(cluster: ControlPlane) -> None:
    """What the controller will see: the object with everything that the server wrote into it."""
    stored = jobs.create(cluster, document(BASE), dry_run=False)
    assert parse_job(stored.document).spec == load_manifest(BASE).spec
