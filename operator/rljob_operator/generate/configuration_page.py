"""The operator's configuration, from its types: docs/operator-configuration.md, and the part of the chart's schema that describes
``config`` (JSON Schema, draft 7)."""

from __future__ import annotations

import json
from typing import Any

from rljob.api.generate.reference import field_table
from rljob.api.generate.schema import schema_of
from rljob.api.paths import TypedPlace

from rljob_operator.kube.process.configuration import AT_ONCE, OperatorConfiguration

_AT_ONCE = " and ".join(f"`{name}`" for name in AT_ONCE)

_INTRODUCTION = f"""\
# The operator's configuration

Made from `operator/rljob_operator/kube/process/configuration.py` by `make generate`. It is the YAML that
`rljob operator --config FILE` reads, and the value `config` of the chart: what an administrator decides for jobs that say
nothing. Every field may be left out; unknown fields and wrong values are refused, all at once and with their places. An
option on the command line wins over the file.

**No pod of a running job is started anew because of a change here.** A job keeps what it was started with, also for pods that are
replaced or added, until it comes up from nothing: when it is suspended and resumed, or its user changes what its roles start with
(`status.controller.rendering` has what it keeps). A claim that it got for its checkpoints stays its own for as long as it lives.
At once, and without touching a pod, count {_AT_ONCE}, and the namespace that the operator itself is in.

"""


def configuration_page() -> str:
    """The page as Markdown."""
    return _INTRODUCTION + field_table(TypedPlace(OperatorConfiguration))


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
