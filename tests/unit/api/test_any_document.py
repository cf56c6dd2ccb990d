"""Whatever a document holds, checking it gives a job or problems with a place, never another error."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.api import ManifestError, RLJob, parse_job
from rljob.api.document import parse_document

CLUSTER = Path(__file__).parents[3] / "manifests" / "examples" / "pong-apex-cluster.yaml"
DOCUMENT = parse_document(CLUSTER.read_bytes(), CLUSTER.name)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(10**20, 10**30) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["", "nan", "-1", "0", "1e999", "{}", "{allowed}", "None", "\ud800", "x" * 5000])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


def places(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document, the root left out."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, child in items for place in [(*here, key), *places(child, (*here, key))]]


def replaced(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with ``value`` at ``place``, if the place is still there."""
    result = copy.deepcopy(document)
    node: Any = result
    for part in place[:-1]:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return result
    if isinstance(node, dict) or (isinstance(node, list) and isinstance(place[-1], int) and place[-1] < len(node)):
        node[place[-1]] = value
    return result


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(places(DOCUMENT)), VALUES), min_size=1, max_size=4))
def test_mutated_manifests(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = DOCUMENT
    for place, value in changes:
        document = replaced(document, place, value)
    try:
        job = parse_job(document)
    except ManifestError as error:
        for problem in error.problems:
            assert problem.path, str(problem)
            assert any(word in problem.message for word in ("allowed", "unknown", "required")), str(problem)
            assert "something else" not in problem.message, str(problem)
    else:
        assert isinstance(job, RLJob)
        job.spec.algorithm.resolved()
        job.spec.environment.resolved()
        job.spec.required_replay.resolved()
