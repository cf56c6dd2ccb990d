"""What is said about a field: that every field has it, and that it is true of the CRD and of a job of defaults."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from rljob.api import PRESETS, RLJob
from rljob.api.catalogue import Explanation, UnknownField, all_paths, explained
from rljob.api.document import parse_document, parse_value
from rljob.api.effective import computed_words
from rljob.api.fields import description_of, typed_place
from rljob.api.generate.crd import definition
from rljob.api.load import dump_manifest

from tests.support.jobs import job_of
from tests.support.paths import ROOT

PATHS = list(all_paths())


def in_force(kind: str) -> dict[str, Any]:
    """A job of defaults, written out."""
    spec = {"algorithm": {"type": kind}, "environment": {"id": "CartPole-v1"}}
    return parse_document(dump_manifest(job_of(spec)).encode(), kind)


def at(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document.get(step) if isinstance(document, dict) else None
    return document


def test_every_field_is_explained() -> None:
    assert len(PATHS) > 350
    for path in PATHS:
        found = explained(path)
        words = " ".join(found.description)
        assert (found.path, "``" in words) == (path, False)
        said = [words, *found.description, found.type, found.changes if path.startswith("spec.") else "never"]
        assert all(said), path
        assert path.startswith("status") or "`rljob." not in words, "no words for developers"
        assert bool(found.fields) == (found.type.startswith(("section", "list of sections"))), path


def in_the_crd(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Every path, and whether the CRD says nothing about what lies below."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, "x-kubernetes-preserve-unknown-fields" in field
        yield from in_the_crd(field, here)
        yield from in_the_crd(field.get("items", {}), f"{here}[]")


def test_there_are_the_fields_of_the_crd() -> None:
    """Those of metadata are core's own there."""
    theirs = dict(in_the_crd(definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    open_below = tuple(f"{path}{after}" for path, is_open in theirs.items() if is_open for after in (".", "[]"))
    ours = {path for path in PATHS if not path.startswith(("metadata.", *open_below))}
    assert ours == {path for path in theirs if not path.startswith(open_below)}


@pytest.mark.parametrize("kind", ["ApeXDQN", "IMPALA"])
def test_the_default_is_what_a_job_without_the_field_has(kind: str) -> None:
    job = in_force(kind)
    compared = 0
    for path in PATHS:
        said, value = explained(path).default, at(job, path)
        if "[]" in path or said.startswith("none") or not said or not path.startswith("spec"):
            continue
        place = typed_place(RLJob, tuple(path.split(".")))
        if place is None or place.owner is None or computed_words(place.owner, place.name):
            continue
        if said == "unset":
            assert value is None, path
        elif path == "spec.algorithm.type":
            assert said == "PPO"
        elif value is not None:  # the section of another algorithm is not there
            assert parse_value(said) == value, path
            compared += 1
    assert compared > 60


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        (
            "algorithm.nStep",
            Explanation(
                "spec.algorithm.nStep",
                "integer from 1 to 100",
                "3 for ApeXDQN; 1 for SAC",
                "never: stored experience was made with it",
                (
                    "Steps of reward before the bootstrap value; SAC leaves out the entropies between. For ApeXDQN and "
                    "SAC.",
                ),
                {"PongApeX": 10, "CartPoleApeX": 3, "ApeXAtari": 3},
                {},
            ),
        ),
        (
            "algorithm.impala.unrollQueue.capacity",
            Explanation(
                "spec.algorithm.impala.unrollQueue.capacity",
                "integer from 1 to 1,000,000",
                "2 * batchSize",
                "while the job is suspended",
                ("Unrolls that may wait.",),
                {"PongVTrace": 16},
                {},
            ),
        ),
    ],
)
def test_two_in_full(path: str, facts: Explanation) -> None:
    found = explained(path)
    assert {name: getattr(found, name) for name in found.__slots__} | {"presets": dict(found.presets)} == {
        name: getattr(facts, name) for name in facts.__slots__
    }


def test_what_presets_set_is_shown_with_every_value() -> None:
    fields = {path: found for path in PATHS if not (found := explained(path)).fields}
    for name, preset in PRESETS.items():
        values = {path: value for path in fields if (value := at({"spec": preset.spec}, path)) is not None}
        assert values
        for path, value in values.items():
            assert isinstance(value, dict) or fields[path].presets[name] == value, path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("actors.replicas", "spec.actors.replicas"),
        ("spec.actors.replicas", "spec.actors.replicas"),
        ("rljob.spec.actors.replicas", "spec.actors.replicas"),
        ("RLJob.Spec.actors.replicas", "spec.actors.replicas"),
        ("status.progress", "status.progress"),
        ("metadata.name", "metadata.name"),
        ("failurePolicy.rules.action", "spec.failurePolicy.rules[].action"),
        ("spec.failurePolicy.rules[0].action", "spec.failurePolicy.rules[].action"),
        ("failurePolicy.rules.0.action", "spec.failurePolicy.rules[].action"),
        ("", "spec"),
        ("rljob", "spec"),
        ("learner.resources.requests.cpu", "spec.learner.resources.requests.cpu"),
    ],
)
def test_ways_to_name_a_field(given: str, path: str) -> None:
    assert explained(given).path == path


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("actors.replica", "spec.actors has no field 'replica'; did you mean spec.actors.replicas?"),
        (
            "learningRate",
            "did you mean spec.algorithm.learningRate, spec.algorithm.sac.criticLearningRate or",
        ),
        ("learning_rate", "did you mean spec.algorithm.learningRate,"),
        ("queue.capacity", "spec has no field 'queue'; did you mean spec.algorithm.impala.unrollQueue?"),
        ("imapla", "spec has no field 'imapla'; did you mean spec.algorithm.impala?"),
        ("learnigRate", "did you mean spec.algorithm.learningRate?"),
        ("PongVTrace", "it is a preset, which rljob render PongVTrace shows"),
        ("nothing", "known here: activeDeadlineSeconds, actors"),
        ("environment.id.x", "spec.environment.id (text: a Gymnasium id"),
        ("environment.kwargs.difficulty", "has no fields that are described here"),
        (
            "learner.podTemplate.spec",
            "Kubernetes' own form; what may stand below it is described in https://kubernetes.io/docs/",
        ),
        ("actors.tolerations[0].key", "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"),
        ("actors.env.value", "spec.actors.env has Kubernetes' own form"),
        (
            "metadata.generateName",
            "metadata has Kubernetes' own form; what may stand below it is described in https://",
        ),
        ("actors.env.nam", "did you mean spec.actors.env[].name?"),
    ],
)
def test_an_unknown_field_names_the_nearest(given: str, words: str) -> None:
    with pytest.raises(UnknownField, match=re.escape(words)):
        explained(given)


# The words of a field, which are found where they are written: below it, in the class that has it.


class Below(BaseModel):
    first: int = 1
    """In one line."""
    second: int = 2

    _not_a_field: str = "This is a value."
    third: int = 3
    """In a paragraph

    and one more,
        which is indented.
    """
    fourth: int = Field(4, description="In the field itself.")


class Heir(Below):
    second: int = 20
    """Only the heir has words for it."""
    third: int = 30


def test_each_field_has_the_docstring_below_it_or_below_the_one_that_it_overrides() -> None:
    found = {model: [description_of(model, name) for name in Below.model_fields] for model in (Below, Heir)}
    paragraph = "In a paragraph\n\nand one more,\n    which is indented."
    assert found == {
        Below: ["In one line.", "", paragraph, "In the field itself."],
        Heir: ["In one line.", "Only the heir has words for it.", paragraph, "In the field itself."],
    }


def test_a_class_without_a_source_has_no_words() -> None:
    typed: dict[str, Any] = {"BaseModel": BaseModel, "__name__": "typed at a prompt"}
    exec('class Typed(BaseModel):\n    first: int = 1\n    """In one line."""\n', typed)
    assert description_of(typed["Typed"], "first") == ""


# The fields that the documentation names. (Its manifests: ``tests/unit/test_documented_commands.py``.)

ELSEWHERE = ("pong-presets.md", "api-reference.md")
"""A log, in the words of its time; what is generated from the types."""
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "algorithms").glob("*.md")),
]
SECTIONS = (
    "algorithm|environment|learner|replay|actors|inference|autoscaling|evaluator|checkpoint|successPolicy|failurePolicy"
)
FIELD = re.compile(rf"(?:`|--set )((?:spec\.|(?:{SECTIONS})\.)[a-zA-Z0-9.\[\]]*[a-zA-Z0-9])(?=[`=: ])")
NAMED = {page: set(FIELD.findall(page.read_text())) for page in PAGES if page.name not in ELSEWHERE}


@pytest.mark.parametrize("page", NAMED, ids=lambda page: page.name)
def test_a_field_that_a_page_names_exists(page: Path) -> None:
    for path in NAMED[page]:
        if not path.endswith((".md", ".py", ".yaml", ".json")):
            explained(path)


def test_pages_name_fields() -> None:
    assert sum(map(len, NAMED.values())) > 40


def test_sections_list_their_fields_and_first_those_that_only_they_have() -> None:
    names = {section: list(explained(section).fields) for section in ("", "evaluator", "environment")}
    assert (names["evaluator"][:2], names["environment"][0]) == (["enabled", "episodes"], "id")
    assert {"preset", "algorithm", "actors"} < set(names[""])
