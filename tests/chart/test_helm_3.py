"""The chart keeps to what Helm 3.8 has, the oldest that it promises: these tests read its templates and its schema. All other
tests of the chart run with the Helm that is first on the PATH; 3.9, 3.16, 3.17 and 4.2 were tried."""

import json
import re
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.chart.test_values_schema import BAD
from tests.support.chart import CHART

TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*") if path.is_file())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
WORDS_OF_TEMPLATES = {"define", "else", "end", "if", "range", "with", "true", "false"}
OF_GO_1_17 = {"and", "eq", "index", "ne", "not", "or", "printf"}
OF_HELM = {"fail", "fromYaml", "include", "lookup", "required", "toJson", "toYaml", "tpl"}
OF_SPRIG_3_2 = {
    "append", "base", "concat", "contains", "deepCopy", "default", "dict", "first", "get", "has", "hasKey", "int", "join",
    "kindIs", "list", "merge", "nindent", "omit", "quote", "replace", "set", "sha256sum", "sortAlpha", "ternary", "trimSuffix",
    "trunc", "uniq", "unset",
}  # fmt: skip
"""Those that the chart uses. Before another is added: Helm 3.8 is built with sprig 3.2 and Go 1.17."""


def actions(text: str) -> list[str]:
    """What stands between braces, without comments and strings."""
    text = re.sub(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", "", text, flags=re.DOTALL)
    found = re.findall(r"\{\{-?(.*?)-?\}\}", text, flags=re.DOTALL)
    return [re.sub(r'"(?:[^"\\]|\\.)*"|`[^`]*`', "TEXT", action, flags=re.DOTALL) for action in found]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_call_functions_that_helm_3_has(path: Any) -> None:
    called = {word for each in actions(path.read_text()) for word in re.findall(r"(?<![\w.$])[a-z]\w*", each)}
    assert called <= WORDS_OF_TEMPLATES | OF_GO_1_17 | OF_HELM | OF_SPRIG_3_2


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_argument_of_and_and_or_can_be_looked_at(path: Any) -> None:
    """Go before 1.18 evaluates all of them, so that `and $x (include ... $x)` fails where there is no x."""
    found = [each for each in actions(path.read_text()) if re.search(r"\b(?:and|or)\b.*\binclude\b", each, re.DOTALL)]
    assert found == []


def test_the_schema_is_one_of_draft_7() -> None:
    """As Helm 3 before 3.18 reads it, whatever `$schema` says."""
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(Draft7Validator(SCHEMA).iter_errors(values)) == []
    judged = [case for case, words in BAD if words != ("serviceAccount.name",)]  # that one is a template's refusal
    assert [case for case in judged if Draft7Validator(SCHEMA).is_valid({**values, **merged(values, case)})] == []


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes`` laid over them, as Helm does it."""
    found = dict(values)
    for name, value in changes.items():
        below = found.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        found[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found
