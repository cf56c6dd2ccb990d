"""Every rule of the manifest, broken once, names the place, shows the value and says what is allowed; so do drawn documents."""

import contextlib
import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn, settings, strategies as st
from rljob.api import ManifestError, RLJob, load_manifest, parse_job
from rljob.api.job import RLJobSpec
from rljob.api.mutability import places as places_of
from rljob.api.names_elsewhere import CALLED_HERE, MOVED

from tests.unit.api.bad_manifests import BASE, CASES, CLUSTER, IMPALA, PRESET, document, effective, in_force


@pytest.mark.parametrize(
    ("base", "overrides", "path", "words"), CASES, ids=[f"{case[0].stem} {' '.join(case[1])[:70]}" for case in CASES]
)
def test_a_broken_rule_is_named(base: Path, overrides: list[str], path: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(base, overrides)
    problems = {problem.path: str(problem) for problem in caught.value.problems}
    assert path in problems, str(caught.value)
    assert [word for word in words if word not in problems[path]] == []
    assert len(problems) == 1, "one mistake makes one problem:\n" + str(caught.value)


def test_other_names_lead_to_fields_that_there_are() -> None:
    """Those of other libraries, and those of earlier manifests."""
    fields = {each.path for each in places_of(RLJobSpec, whole_sections=False)}
    free = tuple(f"{path}." for path in fields if path.endswith("podTemplate"))
    instead = [words for words in MOVED.values() if not words.startswith(("nothing", "*"))]
    names = [*CALLED_HERE.values(), *instead]
    assert [words for words in names if words not in fields and not words.startswith(free)] == []


def test_the_base_is_right() -> None:
    assert load_manifest(BASE).spec.algorithm.parameters.batch_size == 128


def test_every_problem_at_once() -> None:
    """Structure, numbers, names, and rules between fields, in one answer."""
    overrides = [
        "spec.actors.replicas=-1",
        "spec.nonsense=1",
        "spec.algorithm.gamma=2",
        "spec.algorithm.learningRateFinal=0.5",
        "spec.replay.rateLimiter.errorBuffer=1",
        "spec.checkpoint.storage={}",
        "spec.environment.id=",
    ]
    with pytest.raises(ManifestError) as caught:
        load_manifest(BASE, overrides)
    assert {problem.path for problem in caught.value.problems} == {
        "spec.actors.replicas",
        "spec.nonsense",
        "spec.algorithm.gamma",
        "spec.algorithm.learningRateFinal",
        "spec.replay.rateLimiter.errorBuffer",
        "spec.checkpoint.storage",
        "spec",
    }
    assert str(caught.value).count("\n") == 6


# Whatever a document holds, checking it gives a job or problems with a place, never another error.

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
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for part in place[:-1]:
            node = node[part]
        node[place[-1]] = value
    return result


@settings(max_examples=300)
@drawn(st.data(), st.sampled_from(DOCUMENTS))
def test_mutated_manifests(data: st.DataObject, given: dict[str, Any]) -> None:
    for place, value in data.draw(st.lists(st.tuples(st.sampled_from(places(given)), VALUES), min_size=1, max_size=4)):
        given = replaced(given, place, value)
    try:
        job = parse_job(given)
    except ManifestError as error:
        for problem in error.problems:
            assert problem.path, str(problem)
            assert re.search("^(?!.*something else).*(allowed|unknown|required)", problem.message, re.DOTALL), str(
                problem
            )
    else:
        assert isinstance(job, RLJob)
        assert parse_job(in_force(job)).spec == job.spec
