"""Documents as a user of kubectl would write them, from the tables and examples that tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import api_server
from rljob.api.document import parse_document
from rljob.api.overrides import apply_overrides
from rljob.api.types import decimal_text

EXAMPLES = sorted((Path(__file__).parents[3] / "manifests" / "examples").glob("*.yaml"))
CLUSTER = next(file for file in EXAMPLES if file.stem == "pong-apex-cluster")


def document(file: Path, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    return quoted(apply_overrides(parse_document(file.read_bytes(), file.name), overrides), api_server.ROOT)


def quoted(value: Any, schema: dict[str, Any]) -> Any:
    """The document with numbers and true/false in quotes where the schema wants a string: what `rljob` accepts unquoted."""
    if isinstance(value, dict):
        fields, further = schema.get("properties", {}), schema.get("additionalProperties", {})
        return {name: quoted(item, fields.get(name, further)) for name, item in value.items()}
    if isinstance(value, list):
        return [quoted(item, schema.get("items", {})) for item in value]
    if isinstance(value, bool):
        return value
    wanted = schema.get("type") == "string" and ("pattern" in schema or "enum" not in schema)
    if isinstance(value, float) and (wanted or "x-kubernetes-int-or-string" in schema):
        return decimal_text(value)
    return str(value) if isinstance(value, int) and schema.get("pattern", "").startswith("^[+-]") else value
