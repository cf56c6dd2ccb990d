"""What may change of a stored job: every field of the types is in exactly one list, and Python and CEL keep to it."""

import contextlib
import copy
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError
from rljob.api import RLJob, parse_job, transition_problems
from rljob.api.algorithm import SHARED
from rljob.api.fields import literal_values
from rljob.api.job import RLJobSpec
from rljob.api.live import not_live, read_at_start
from rljob.api.mutability import ANY_TIME, NEVER, WHILE_SUSPENDED, MarkedField, When, places

from tests.support import api_server
from tests.unit.api.bad_manifests import BASE, IMPALA, document, in_force

FIELDS = places(RLJobSpec, whole_sections=False)
VALUES: tuple[Any, ...] = (
    True, False, 2, 3, 7, 42, 64, 5000, 6000, 0.25, 0.5, "0.25", "other", "more", "example.com/other", "example.com/more",
    "s3://bucket/other", "s3://bucket/more", "https://s3", "https://s4", "redis://a", "redis://b", "2Gi", "1Gi",
    "CartPole-v1", "CartPole-v0", "my_pkg:make", "my_pkg:other", ["my_pkg:make"], ["my_pkg:other"],
    {"some": "thing"}, {"some": "other"}, {"cpu": "3"}, {"cpu": "4"}, [{"name": "other"}], [{"name": "more"}],
    ["Learner"], ["Replay"], ["evaluator"], ["learner"], [3], [4], [{"key": "spot"}], [{"key": "gpu"}],
    [{"name": "a", "mountPath": "/a"}], [{"name": "b", "mountPath": "/a"}],
    [{"name": "a", "action": "Ignore", "onExitCodes": {"values": [3]}}],
    [{"name": "a", "action": "Ignore", "onExitCodes": {"values": [4]}}],
    [{"type": "Pods", "value": 7, "periodSeconds": 7}], [{"type": "Pods", "value": 8, "periodSeconds": 7}], 0, 1,
    "b.safetensors", "c.safetensors", f"sha256:{'0' * 64}", f"sha256:{'1' * 64}",
    [{"afterRawFrames": 3, "set": {"a": 1}}], [{"afterRawFrames": 4, "set": {"a": 1}}], [0, 1], [0, 2],
)  # fmt: skip
"""Two of them are allowed for each field that is no choice of words."""
ABSENT: Any = object()


def as_stored(given: dict[str, Any]) -> dict[str, Any]:
    """What an API server makes of the job, its status apart."""
    return {name: part for name, part in api_server.admitted(given).items() if name != "status"}


def complete(base: dict[str, Any]) -> dict[str, Any]:
    """The job with all its optional sections, and every field written. It breaks rules between fields, which no test here
    asks about."""
    given = copy.deepcopy(base)
    given["spec"] |= {
        "checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": "a"}, "objectStore": {"url": "s3://a/b"}}},
        "successPolicy": {"targetReturn": {"value": 1}, "metric": {"name": "a", "value": 1}},
        "earlyStopping": {"plateau": {}, "trainingReturn": {}, "valueLoss": {}},
        "evaluator": {"environment": {}},
        "fork": {"id": "a", "from": "file:///a", "digest": f"sha256:{'0' * 64}"},
        "code": {"configMap": "a", "digest": f"sha256:{'0' * 64}"},
    }
    given["spec"]["environment"]["encoder"] = {"file": "a.safetensors"}
    given["spec"]["checkpoint"]["storage"]["objectStore"]["secretRef"] = {"name": "a"}
    if "replay" in given["spec"]:
        given["spec"]["replay"]["redis"] = {"external": {"url": "redis://r", "secretRef": {"name": "a"}}}
    return in_force(RLJob.model_validate(given, by_alias=True, by_name=False))


APEX = complete(document(BASE, ["spec.algorithm.apeXDQN={}"]))
UNROLLS = complete(document(IMPALA))
PPO = complete(document(IMPALA, ["spec.algorithm={type: PPO, ppo: {}}"]))
SAC = complete(document(IMPALA, ["spec.algorithm={type: SAC, sac: {}}"]))
CUSTOM = complete(document(BASE, ["spec.algorithm={type: Custom, custom: {factory: 'my_pkg:make'}}"]))


def base_of(place: MarkedField) -> dict[str, Any]:
    blocks = {"impala": UNROLLS, "ppo": PPO, "sac": SAC, "custom": CUSTOM}
    with_it = (base for name, base in blocks.items() if place.path.startswith(f"algorithm.{name}."))
    return next(with_it, UNROLLS if place.name in SHARED.values() else APEX)  # with which gamma may change


def with_value(place: MarkedField, value: Any) -> dict[str, Any] | None:
    """A job with ``value`` at ``place``, as an API server stores it; None where it is not allowed there."""
    new = node = dict(base_of(place))
    for name in ("spec", *(step.alias for step in place.steps[:-1])):
        node[name] = node = dict(node[name])  # the rest is shared: a copy of all takes half of this test's time
    node[place.steps[-1].alias] = value
    if value is ABSENT:
        del node[place.steps[-1].alias]
    elif api_server.structural(place.path, value):
        return None
    with contextlib.suppress(ValidationError):
        RLJob.model_validate(new, by_alias=True, by_name=False)
        return as_stored(new)
    return None


def in_job(given: dict[str, Any], place: MarkedField) -> Any:
    node: Any = RLJob.model_validate(given, by_alias=True, by_name=False).spec
    for step in place.steps:
        node = getattr(node, step.name)
    return node


def changes(place: MarkedField) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What can happen to a field -> (a stored job, the new one), in each of which another value is in force."""
    allowed = (given for value in (*_words(place), *VALUES) if (given := with_value(place, value)) is not None)
    first = next(allowed)
    second = next(given for given in allowed if in_job(given, place) != in_job(first, place))
    found = {"replaced": (first, second)}
    absent = with_value(place, ABSENT)
    if absent is not None and "default" not in schema_at(place):
        other = first if in_job(first, place) != in_job(absent, place) else second
        found |= {"added": (absent, other), "removed": (other, absent)}
    return found


def schema_at(place: MarkedField) -> dict[str, Any]:
    schema = api_server.ROOT["properties"]["spec"]
    for step in place.steps:
        schema = schema["properties"][step.alias]
    return schema


def _words(place: MarkedField) -> list[str]:
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
    return python, [message for *_, message in api_server.broken(new, old, api_server.ROOT, "", changes=True)]


def suspended(given: dict[str, Any], value: bool = True) -> dict[str, Any]:
    return {**given, "spec": {**given["spec"], "suspend": value}}


CHANGEABLE = [place for place in FIELDS if place.path != "suspend" and len(_words(place)) != 1]


@pytest.mark.parametrize("place", CHANGEABLE, ids=lambda place: place.path)
def test_python_and_cel_keep_to_the_list_that_a_field_is_in(place: MarkedField) -> None:
    when = place.mutability.when
    for kind, (old, new) in changes(place).items():
        python, cel = running = refused(old, new)
        assert [bool(verdict) for verdict in running] == [not when.at_any_time] * 2, (kind, running)
        for before, after in ((True, True), (True, False), (False, True)):  # suspended, and with either edge of it
            stopped = refused(suspended(old, before), suspended(new, after))
            assert [bool(verdict) for verdict in stopped] == [when is When.NEVER] * 2, (kind, stopped)
        if not when.at_any_time:  # it names the field itself, and both say the same
            says = python[0].startswith(f"spec.{place.path}"), python[0].endswith(cel[0].split(": ", 1)[1])
            assert says == (True, True), kind


def test_every_field_is_in_exactly_one_list() -> None:
    paths = [place.path for place in FIELDS]
    assert (len(paths), set(paths)) == (len(set(paths)), set(leaves(api_server.ROOT["properties"]["spec"], "")))
    whole = places(RLJobSpec)
    for place in FIELDS:
        above = [each for each in whole if place.path == each.path or place.path.startswith(f"{each.path}.")]
        assert max(above, key=lambda each: len(each.path)).mutability.when == place.mutability.when


def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Every field of the CRD; lists and maps are fields."""
    for name, field in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        if "properties" in field:
            yield from leaves(field, here)
        else:
            yield here


class Inner(BaseModel):
    a: int = 0
    b: Annotated[int, ANY_TIME] = 0


class Outer(BaseModel):
    plain: Annotated[list[int], WHILE_SUSPENDED] = []
    inner: Inner = Inner()


class Twice(BaseModel):
    marked: Annotated[Inner, WHILE_SUSPENDED] = Inner()


def test_what_nobody_has_marked_never_changes_and_a_mark_counts_once() -> None:
    found = {place.path: place.mutability for place in places(Outer)}
    assert found == {"plain": WHILE_SUSPENDED, "inner.a": NEVER, "inner.b": ANY_TIME}
    with pytest.raises(TypeError, match=re.escape("marked.b has a mark of mutability below another one")):
        places(Twice)


def test_the_order_of_a_list_with_keys_is_no_change_and_its_entries_are_named() -> None:
    old = suspended(as_stored(APEX), False)
    old["spec"]["imagePullSecrets"] = [{"name": "a"}, {"name": "b"}]
    old["spec"]["learner"]["env"] = [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}]
    new = copy.deepcopy(old)
    secrets, env = new["spec"]["imagePullSecrets"], new["spec"]["learner"]["env"]
    for each in (secrets, env, new["spec"]["checkpoint"]["include"]):
        each.reverse()
    assert (refused(old, new)[0], read_at_start(spec_of(old))) == ([], read_at_start(spec_of(new)))
    env[0] = {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert read_at_start(spec_of(old)) != read_at_start(spec_of(new)), "roles that run have not read it"
    secrets[0]["name"] = "c"
    changed = {problem.split(": ")[0] for problem in refused(old, new)[0]}
    assert changed == {"spec.imagePullSecrets.b", "spec.imagePullSecrets.c", "spec.learner.env.B"}


def spec_of(given: dict[str, Any]) -> RLJobSpec:
    return RLJob.model_validate(given, by_alias=True, by_name=False).spec


def test_a_name_never_changes() -> None:
    """The API server sees to it on a cluster; in a run folder the replay's log lies under it."""
    old = as_stored(APEX)
    new = {**old, "metadata": {"name": "other"}}
    assert refused(old, new)[0] == ["metadata.name: it cannot be changed; make a new job"]


@pytest.mark.parametrize("inference", ["Local", "Central"])
def test_how_actors_explore_is_live_where_weights_tell_them(inference: str) -> None:
    path = "algorithm.apeXDQN.epsilonBase"
    words = (f"spec.actors.inference={inference}", f"spec.{path}=0.3")
    before, after = (parse_job(document(BASE, words[:count])) for count in (1, 2))
    said = [problem.message for problem in transition_problems(before, after)]
    assert said == ([] if inference == "Local" else [not_live(before.spec, path)])
