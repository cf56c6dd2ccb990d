"""What may change of a stored job: every field of the types is in exactly one list, and both doors keep to it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Annotated, Any

import api_server
import pytest
from bad_manifests import BASE, IMPALA
from pydantic import BaseModel, ValidationError
from rljob.api import RLJob, transition_problems
from rljob.api.fields import literal_values
from rljob.api.job import RLJobSpec
from rljob.api.mutability import ANY_TIME, NEVER, WHILE_SUSPENDED, Place, When, places
from written import document

FIELDS = places(RLJobSpec, whole_sections=False)
VALUES: tuple[Any, ...] = (
    True, False, 2, 3, 7, 5000, "0.25", "0.5", "other", "example.com/other", "s3://bucket/other", "https://s3", "2Gi",
    "CartPole-v1",
    {"some": "thing"}, {"cpu": "3"}, [{"name": "other"}], [{"name": "gamma", "value": "0.5"}], ["Learner"],
    [{"key": "spot"}], [{"name": "a", "action": "Ignore", "onExitCodes": {"values": [3]}}],
    [{"type": "Pods", "value": 7, "periodSeconds": 7}],
)  # fmt: skip
"""One of them is allowed for each field, and not what stands there."""


def complete(base: dict[str, Any]) -> dict[str, Any]:
    """The job with all its optional sections. It breaks rules between fields, which nobody is asked about here."""
    given = copy.deepcopy(base)
    given["spec"] |= {
        "checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": "a"}, "objectStore": {"url": "s3://a/b"}}},
        "successPolicy": {"targetReturn": {"value": "1"}},
        "earlyStopping": {"plateau": {}},
    }
    given["spec"]["checkpoint"]["storage"]["objectStore"]["secretRef"] = {"name": "a"}
    return given


APEX, UNROLLS = complete(document(BASE)), complete(document(IMPALA))


def changed(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """(a stored job, the same with another value at ``place``), both with every default, as an API server stores them."""
    stored = api_server.admitted(UNROLLS if place.steps[0].name == "queue" else APEX)
    for value in [*_words(place), *VALUES]:
        new = copy.deepcopy(stored)
        node = new["spec"]
        for step in place.steps[:-1]:
            node = node[step.alias]
        if node.get(place.steps[-1].alias) == value:
            continue
        node[place.steps[-1].alias] = value
        try:
            RLJob.model_validate(new, by_alias=True, by_name=False)
        except ValidationError:
            continue
        if not api_server.structural(place.path, value):
            return stored, api_server.admitted(new)
    raise AssertionError(f"VALUES has nothing that {place.path} allows")


def _words(place: Place) -> list[str]:
    model: Any = RLJobSpec
    for step in place.steps[:-1]:
        annotation = model.model_fields[step.name].annotation
        model = next(a for a in (annotation, *getattr(annotation, "__args__", ())) if _is_model(a))
    return literal_values(model.model_fields[place.steps[-1].name])


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def refused(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(paths and messages of Python, messages of CEL): only what rules of a change say."""
    jobs = (RLJob.model_validate(each, by_alias=True, by_name=False) for each in (old, new))
    python = [f"{problem.path}: {problem.message}" for problem in transition_problems(*jobs)]
    broken = api_server.broken(new, old, api_server.ROOT, "")
    return python, [message for _, rule, message in broken if "oldSelf" in rule["rule"]]


def suspended(given: dict[str, Any], value: bool = True) -> dict[str, Any]:
    return {**given, "spec": {**given["spec"], "suspend": value}}


CHANGEABLE = [place for place in FIELDS if place.path != "suspend" and len(_words(place)) != 1]


@pytest.mark.parametrize("place", CHANGEABLE, ids=lambda place: place.path)
def test_both_doors_keep_to_the_list_that_a_field_is_in(place: Place) -> None:
    old, new = changed(place)
    when = place.mutability.when
    running = refused(old, new)
    assert [bool(door) for door in running] == [when is not When.ANY_TIME] * 2, running
    for before, after in ((True, True), (True, False), (False, True)):  # while suspended, and with either edge of it
        stopped = refused(suspended(old, before), suspended(new, after))
        assert [bool(door) for door in stopped] == [when is When.NEVER] * 2, stopped
    if when is not When.ANY_TIME:
        assert running[0][0].startswith(f"spec.{place.path}"), "it names the field itself"
        assert running[0][0].endswith(running[1][0].split(": ", 1)[1]), "both say the same"
    back = refused(new, old)
    assert [bool(door) for door in back] == [bool(door) for door in running], "to unset is a change like any other"


def test_every_field_is_in_exactly_one_list() -> None:
    paths = [place.path for place in FIELDS]
    assert len(paths) == len(set(paths))
    assert set(paths) == set(leaves(api_server.ROOT["properties"]["spec"], ""))
    whole = places(RLJobSpec)
    for place in FIELDS:
        (above,) = [each for each in whole if place.path == each.path or place.path.startswith(f"{each.path}.")]
        assert above.mutability == place.mutability


def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Every field of the CRD; lists and maps are fields."""
    for name, field in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        if "properties" in field:
            yield from leaves(field, here)
        else:
            yield here


def test_what_nobody_has_marked_never_changes_and_a_mark_counts_once() -> None:
    class Inner(BaseModel):
        a: int = 0
        b: Annotated[int, ANY_TIME] = 0

    class Outer(BaseModel):
        inner: Inner = Inner()
        marked: Annotated[Inner, WHILE_SUSPENDED] = Inner()

    class Plain(BaseModel):
        c: int = 0
        d: list[int] = []

    class Section(BaseModel):
        plain: Annotated[Plain, WHILE_SUSPENDED] = Plain()
        other: Plain = Plain()

    assert {place.path: place.mutability for place in places(Section)} == {"plain": WHILE_SUSPENDED, "other": NEVER}
    assert {place.path: place.mutability for place in places(Inner)} == {"a": NEVER, "b": ANY_TIME}
    with pytest.raises(TypeError, match=re.escape("marked.b has a mark of mutability below another one")):
        places(Outer)


def test_the_order_of_a_list_with_keys_is_no_change_and_its_entries_are_named() -> None:
    old = suspended(api_server.admitted(APEX), False)
    new = copy.deepcopy(old)
    new["spec"]["algorithm"]["parameters"].reverse()
    new["spec"]["checkpoint"]["include"].reverse()
    assert refused(old, new)[0] == []
    new["spec"]["algorithm"]["parameters"][0]["value"] = "64"
    (problem,) = refused(old, new)[0]
    assert problem.startswith("spec.algorithm.parameters.batchSize: ")


def test_a_name_never_changes() -> None:
    """The API server sees to it on a cluster; in a run folder the replay's log lies under it."""
    old = api_server.admitted(APEX)
    new = {**old, "metadata": {"name": "other"}}
    assert refused(old, new)[0] == ["metadata.name: it cannot be changed; make a new job"]
