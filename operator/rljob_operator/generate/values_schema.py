"""The part of the chart's schema that describes ``config``: the operator's configuration as JSON Schema, draft 7."""

from __future__ import annotations

import json
from typing import Any

from rljob.api.generate.schema import schema_of

from rljob_operator.kube.process.configuration import OperatorConfiguration

VALUE = "config"
_KUBERNETES = "x-kubernetes-"


def with_configuration(values_schema: str) -> str:
    """The chart's schema, written by hand, with its part about ``config`` made anew."""
    schema = json.loads(values_schema)
    schema["properties"][VALUE] = strict(schema_of(OperatorConfiguration, VALUE))
    return json.dumps(schema, indent=2) + "\n"


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema of Kubernetes as JSON Schema: what it does not name is refused, and a quantity may be a number."""
    found = {key: value for key, value in schema.items() if not key.startswith(_KUBERNETES)}
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["number", "string"]
    if "properties" in schema:
        found["properties"] = {name: strict(below) for name, below in schema["properties"].items()}
        found["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found[key] = strict(schema[key])
    return found
