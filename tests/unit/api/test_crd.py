"""The generated CRD: current, small, of the shape that an API server demands, and with nothing that points nowhere."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import cel
import pytest
import yaml
from pydantic import BaseModel, PlainSerializer
from rljob.api.experiment import RLExperimentStatus
from rljob.api.fields import unwrapped
from rljob.api.generate.__main__ import CRD_FILE, EXPERIMENT_CRD_FILE, generated
from rljob.api.generate.crd import definition, experiment_definition
from rljob.api.status import RLJobStatus
from rljob.api.status_model import StatusModel
from rljob.api.types import DecimalText

from tests.support import api_server
from tests.support.paths import ROOT

SPEC = api_server.ROOT["properties"]["spec"]
STATUS = api_server.ROOT["properties"]["status"]


def schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below ``schema``, itself included."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from schemas(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key], f"{path}[]")


EVERYWHERE = [*schemas(SPEC, "spec"), *schemas(STATUS, "status")]
EXPERIMENT = experiment_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
OF_EXPERIMENTS = [each for part in ("spec", "status") for each in schemas(EXPERIMENT[part], part)]
RULES = [
    (path, rule) for path, schema in schemas(api_server.ROOT, "") for rule in schema.get("x-kubernetes-validations", [])
]


@pytest.mark.parametrize("path", generated(), ids=str)
def test_generated_files_are_current(path: Path) -> None:
    assert (ROOT / path).read_text() == generated()[path], "run: make generate"


def test_they_are_small_and_read_back_as_they_are() -> None:
    """kubectl apply keeps a copy, as JSON without spaces, in an annotation of at most 256 KiB."""
    files = {CRD_FILE: definition(), EXPERIMENT_CRD_FILE: experiment_definition()}
    sizes = [(ROOT / file).stat().st_size for file in files]
    assert (sizes[0] <= 130_000, sum(sizes) <= 190_000) == (True, True), sizes
    for file, made in files.items():
        assert yaml.safe_load((ROOT / file).read_text()) == made


def test_every_definition_is_its_own() -> None:
    """What a caller writes into one is not in the next."""
    (version,) = definition()["spec"]["versions"]
    for schema in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].values():
        if schema.get("default") == {}:
            schema["default"]["added"] = 1
    assert '"added"' in json.dumps(version)
    assert '"added"' not in json.dumps(definition())


def test_every_schema_is_structural_described_and_bounded() -> None:
    for path, schema in [*EVERYWHERE, *OF_EXPERIMENTS]:
        if re.fullmatch(
            r"spec\.(.*\.)?resources\.(requests|limits)\[\]|spec\.(.*\.)?environment\.actions|spec.*\.values\[\]", path
        ):
            continue  # a number, with a fraction or without, or a text, or a list or a word: no type says that
        assert not {"$ref", "anyOf", "oneOf", "allOf", "not", "nullable", "title"} & set(schema), path
        assert schema.get("type") in ("object", "array", "string", "integer", "number", "boolean") or schema.get(
            "x-kubernetes-int-or-string"
        ), path
        elsewhere = path.endswith("[]") or path.startswith("spec.template.spec.")
        described = elsewhere or len(schema["description"].split()) > 3
        assert described, f"{path}: kubectl explain shows no more than this"
        match schema.get("type"):
            case "number":
                bounded = path.startswith("spec.")  # a status holds numbers as strings
            case "array":
                bounded = 1 <= schema["maxItems"] <= 2000
            case "string":
                bounded = "enum" in schema or schema["maxLength"] <= 4096
            case "integer":
                bounded = {"minimum", "maximum"} <= set(schema) or path.startswith("status.")
            case "object" if "properties" not in schema and path != "status.controller":  # which no rule looks at
                bounded = schema["maxProperties"] <= 64
            case _:
                bounded = True
        assert bounded, path


def test_every_default_obeys_its_own_schema() -> None:
    """An API server refuses a CRD with a default that the schema below it refuses, or that breaks one of its rules before the
    defaults further below are filled in."""
    for path, schema in EVERYWHERE:
        if "default" in schema:
            assert list(api_server.broken(schema["default"], None, schema, path)) == []
            value = copy.deepcopy(schema["default"])
            api_server.fill(value, schema)
            assert [error.message for error in api_server.Validator(schema).iter_errors(value)] == [], path
    # No operator has looked at it; nothing else is filled in.
    found = {path: schema["default"] for path, schema in schemas(STATUS, "status") if "default" in schema}
    assert found == {"status": {"observedGeneration": 0}}


def test_lists_with_keys() -> None:
    keyed = {
        path: schema.get("x-kubernetes-list-map-keys") for path, schema in EVERYWHERE if schema.get("type") == "array"
    }
    assert keyed["spec.failurePolicy.rules"] == keyed["spec.actors.env"] == ["name"]
    assert keyed["status.conditions"] == ["type"]
    for path, schema in EVERYWHERE:
        for key in schema.get("x-kubernetes-list-map-keys", []):
            assert key in schema["items"]["required"], f"{path}: a key has to be there"


def field_at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.strip(".").split("."):
        schema = schema["properties"][name]
    return schema


def test_the_large_parts_of_a_status_have_one_owner_each() -> None:
    """An owner of each of their hundreds of fields would be most of a stored job, and of the time that a write of it takes."""
    (version,) = definition()["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    atomic = {name for name, each in root["status"]["properties"].items() if "x-kubernetes-map-type" in each}
    assert atomic == {"controller", "autoscaling", "progress"}
    assert "x-kubernetes-map-type" not in json.dumps(root["spec"]), (
        "users share a spec with autoscalers, field by field"
    )


def test_every_rule_compiles_and_names_a_field_that_exists() -> None:
    nodes = dict(schemas(api_server.ROOT, ""))
    for path, rule in RULES:
        cel.compile(rule["rule"])
        assert re.fullmatch(".{1,2048}", rule["message"])
        assert len(rule["rule"]) <= 10_000
        if "fieldPath" in rule:
            assert field_at(nodes[path], rule["fieldPath"])
    assert RULES


def test_rules_about_a_change_stand_where_old_and_new_can_be_matched() -> None:
    """Not below the entries of a list, where an API server has nothing to compare with."""
    assert {path for path, rule in RULES if "oldSelf" in rule["rule"]} == {".spec"}


def test_columns_and_subresources_point_at_fields() -> None:
    version = api_server.VERSION
    columns = version["additionalPrinterColumns"]
    assert version["subresources"]["status"] == {}
    for path in (*version["subresources"]["scale"].values(), *(column["jsonPath"] for column in columns)):
        assert points_at_a_field(path, api_server.ROOT), path
    of_experiments = experiment_definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    for path in (column["jsonPath"] for column in of_experiments):
        assert points_at_a_field(path, {"properties": EXPERIMENT}), path
    assert [column["name"] for column in columns if not column.get("priority")][:4] == [
        "State",
        "Actors",
        "Wanted",
        "Learner",
    ]


def test_names() -> None:
    document = definition()
    assert (document["metadata"]["name"], document["spec"]["names"]["shortNames"]) == ("rljobs.rljob.dev", ["rlj"])
    (version,) = document["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)


def filled(model: type[BaseModel]) -> dict[str, Any]:
    """A document of ``model`` with something in every field, from the types alone."""
    document: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        annotation, metadata = unwrapped(field.annotation, list(field.metadata))
        document[field.alias or name] = some(annotation, metadata)
    return document


def some(annotation: Any, metadata: list[Any]) -> Any:
    if any(isinstance(item, PlainSerializer) for item in metadata):
        return "2026-11-21T16:05:00.250Z"
    if any(isinstance(item, DecimalText) for item in metadata):
        return "18.4"
    if get_origin(annotation) is list:
        return [some(*unwrapped(get_args(annotation)[0], []))]
    if get_origin(annotation) is dict:
        return {"integral": 1.5, "window": [1, 2.5]}
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return filled(annotation)
    return {bool: True, int: 7, str: "word"}[annotation]


@pytest.mark.parametrize(("model", "schema"), [(RLJobStatus, STATUS), (RLExperimentStatus, EXPERIMENT["status"])])
def test_a_status_with_every_field_passes_its_schema(model: type[StatusModel], schema: dict[str, Any]) -> None:
    status = model.model_validate(filled(model)).document()
    assert [error.message for error in api_server.Validator(schema).iter_errors(status)] == []
    assert list(api_server.unknown(status, schema, "status")) == []
    assert list(api_server.unknown(status | {"later": 1}, schema, "status")) == ["status.later: unknown field"]


def test_a_template_is_typed_as_a_job_and_says_where_its_fields_are_told() -> None:
    template = EXPERIMENT["spec"]["properties"]["template"]["properties"]["spec"]
    assert "kubectl explain rljob.spec" in template["description"]
    types = dict(schemas(SPEC, "spec"))
    for path, schema in schemas(template, "spec"):
        same = {
            key: value
            for key, value in types[path].items()
            if key in ("type", "enum", "maximum", "maxLength", "pattern")
        }
        assert same.items() <= schema.items(), path
        assert "x-kubernetes-validations" not in schema, path


def points_at_a_field(path: str, root: dict[str, Any]) -> bool:
    """Conditions are named by type, never by index."""
    plain = re.sub(r'\[\?\(@\.type=="[A-Za-z]+"\)\]', "", path)
    of_conditions = plain in (".status.conditions.reason", ".status.conditions.status") and plain != path
    return of_conditions or path == ".metadata.creationTimestamp" or bool(field_at(root, path))
