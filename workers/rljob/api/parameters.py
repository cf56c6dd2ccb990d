"""Named parameters: the ``[{name, value}]`` lists of a manifest, and the typed, checked values behind them.

A Kubernetes API holds no floats and cannot know every algorithm's fields, so a manifest writes parameters as named
strings.
`check` turns such a list into a frozen, typed model; the model's camelCase aliases are the only names a manifest may
use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from rljob.api.problems import ABSENT, ManifestError, Problem, unknown_name
from rljob.api.types import ALLOWED, DECIMAL_PATTERN, INTEGER_PATTERN, APIModel, Text, decimal_text, refuse

Scalar = bool | int | float | str

OF_THIS_NETWORK = "checkpoints hold the tensors of this network"
"""Why a parameter never changes (`rljob.api.mutability`)."""


def _as_text(value: Any) -> Any:
    """Accept what YAML makes of an unquoted value: 3, 0.99, true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return decimal_text(value) if math.isfinite(value) else repr(value)
    if isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return ",".join(str(item) for item in value)
    if not isinstance(value, str):
        raise refuse('allowed: a string, such as "0.99"; numbers and true/false are accepted unquoted')
    return value


class NamedParameter(APIModel):
    """One parameter of an algorithm or an environment."""

    name: Annotated[str, Text(63, "a parameter's name", r"^[a-zA-Z][a-zA-Z0-9_-]*$")]
    """What it is called, in camelCase."""
    value: Annotated[str, Text(4096, shortest=0), BeforeValidator(_as_text)]
    """Its value as a string."""


class AlgorithmParameter(NamedParameter):
    """One parameter of an algorithm. Its value is a number or a word, and short: the cluster's rules read each many times."""

    value: Annotated[str, Text(64, shortest=0), BeforeValidator(_as_text)]
    """Its value as a string."""


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """A rule between parameters, twice: for Python and for the cluster.

    ``cel`` holds where all is well; ``$nStep`` in it stands for that parameter's value, preset and default applied.
    ``broken`` answers the same question about a typed set: what is allowed instead, with numbers, or None.
    """

    field: str
    """Manifest name of the parameter to change."""
    cel: str
    message: str
    """What is allowed, without numbers, for the cluster."""
    broken: Callable[[Any], str | None]


class ParameterSet(APIModel):
    """Base of typed parameter sets. Frozen; ``updated`` gives a changed copy that has been checked again.

    Parameters may change when their list may (`rljob.api.mutability`), save those that are marked as never changing.
    """

    model_config = ConfigDict(frozen=True)

    rules: ClassVar[tuple[ParameterRule, ...]] = ()
    """Rules between parameters, tried in this order; the first that is broken is reported."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for rule in type(self).rules:
            allowed = rule.broken(self)
            if allowed is not None:
                raise refuse(f"allowed: {allowed}", rule.field)
        return self

    @classmethod
    def names(cls) -> dict[str, str]:
        """Manifest name -> Python name, for every parameter."""
        return {field.alias or to_camel(name): name for name, field in cls.model_fields.items()}

    def updated(self, **changes: Any) -> Self:
        """A copy with ``changes`` (Python names), validated. Raises pydantic's ValidationError."""
        return type(self).model_validate({**self.model_dump(), **changes})


P = TypeVar("P", bound=ParameterSet)


def scalar(text: str) -> Scalar:
    """The value that a parameter's string stands for: an integer, a float, true/false, or else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(INTEGER_PATTERN, text):
        return int(text)
    return float(text) if re.fullmatch(DECIMAL_PATTERN, text) else text


def check(
    model: type[P], given: Sequence[NamedParameter], path: str, base: Mapping[str, Any] | None = None
) -> tuple[P, list[Problem]]:
    """Check ``given`` against ``model``. Returns the typed set and all problems: unknown and repeated names, bad values.

    ``base`` holds values (Python names) that ``given`` overrides; ``path`` is the list's place. A wrong value is
    replaced by its
    default in the returned set, so that rules between fields can still be tried.
    """
    names = model.names()
    python_to_manifest = {python: manifest for manifest, python in names.items()}
    problems: list[Problem] = []
    values: dict[str, Any] = dict(base or {})
    texts: dict[str, str] = {}
    for parameter in given:
        where = f"{path}.{parameter.name}"
        if parameter.name in texts:
            problems.append(Problem(where, parameter.value, "allowed: each parameter once; remove one of the two"))
        elif parameter.name not in names:
            problems.append(Problem(where, parameter.value, unknown_name(parameter.name, list(names), "parameter")))
        else:
            values[names[parameter.name]] = scalar(parameter.value)
        texts[parameter.name] = parameter.value
    while True:
        try:
            return model.model_validate(values), problems
        except ValidationError as error:
            for item in error.errors(include_url=False):
                if item["type"] == "default_factory_not_called":  # a default that follows from another, wrong value
                    continue
                python = _field_of(item, python_to_manifest)
                name = python_to_manifest[python]
                problems.append(
                    Problem(f"{path}.{name}", texts.get(name, values.get(python, ABSENT)), parameter_message(item))
                )
                if python not in values:  # a rule broken by defaults alone would never be mended by leaving values out
                    values.clear()
                values.pop(python, None)


def required(checked: tuple[P, list[Problem]]) -> P:
    """The typed set of `check` if nothing was wrong. Raises ManifestError with every problem otherwise."""
    resolved, problems = checked
    if problems:
        raise ManifestError(problems)
    return resolved


def _field_of(item: Any, python_to_manifest: Mapping[str, str]) -> str:
    """The Python name of the field that an error is about: where it lies, or where a rule between fields says."""
    first = str(item["loc"][0]) if item["loc"] else str(item["ctx"]["at"])
    manifest_to_python = {manifest: python for python, manifest in python_to_manifest.items()}
    return manifest_to_python.get(first, first)


def parameter_message(item: Any) -> str:
    """What is allowed, from one of pydantic's errors about a parameter."""
    context = item.get("ctx", {})
    if item["type"] == ALLOWED:
        return str(context["allowed"])
    if item["type"] == "literal_error":
        return f"allowed: {context['expected'].replace(chr(39), '')}"
    if item["type"].startswith("bool"):
        return "allowed: true or false"
    return str(item["msg"])
