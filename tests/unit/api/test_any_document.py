"""Whatever a document holds, checking it gives a job or problems with a place, never another error."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from rljob.api import ManifestError, RLJob, parse_job

from tests.unit.api.bad_manifests import IMPALA, PRESET
from tests.unit.api.written import CLUSTER, document, effective, in_force

DOCUMENTS = [document(CLUSTER), effective(CLUSTER), effective(IMPALA), document(PRESET)]

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


def replaced(start: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with ``value`` at ``place``, if the place is still there."""
    result = copy.deepcopy(start)
    node: Any = result
    for part in place[:-1]:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return result
    if isinstance(node, dict) or (isinstance(node, list) and isinstance(place[-1], int) and place[-1] < len(node)):
        node[place[-1]] = value
    return result


@settings(max_examples=300)
@drawn(st.data(), st.sampled_from(DOCUMENTS))
def test_mutated_manifests(data: st.DataObject, given: dict[str, Any]) -> None:
    known = places(given)
    for place, value in data.draw(st.lists(st.tuples(st.sampled_from(known), VALUES), min_size=1, max_size=4)):
        given = replaced(given, place, value)
    try:
        job = parse_job(given)
    except ManifestError as error:
        for problem in error.problems:
            assert problem.path, str(problem)
            assert any(word in problem.message for word in ("allowed", "unknown", "required")), str(problem)
            assert "something else" not in problem.message, str(problem)
    else:
        assert isinstance(job, RLJob)
        assert parse_job(in_force(job)).spec == job.spec
