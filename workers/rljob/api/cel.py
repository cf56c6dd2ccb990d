"""CEL for the cluster: the rules of `rljob.api.rules`, and those of the named parameters, as x-kubernetes-validations.

Parameters are name/value lists of strings, so CEL has to look a value up, fall back to the preset's and then to the default, and
read the number in it. `value_of` makes that expression; wrong values are passed over there, as each is refused by a rule of its
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rljob.api.algorithm import PARAMETERS, AlgorithmSpec
from rljob.api.environment import EnvironmentParameters, EnvironmentSource
from rljob.api.fields import literal_values, marker_of
from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterRule, ParameterSet
from rljob.api.rule import Rule, TransitionRule
from rljob.api.types import DECIMAL_PATTERN, INTEGER_PATTERN, MAX_INTEGER, Integer, Real

Presets = Mapping[str, Mapping[str, Any]]
Validation = dict[str, str]
"""One entry of x-kubernetes-validations."""

NOT_IN_CEL = {
    "environment parameter kwargs": "CEL cannot parse JSON; whether the text is an object is checked by the controller",
    "environment parameter actions": "that the numbers differ is checked by the controller (CEL splits no strings)",
    "keys of resources, labels and annotations": "their patterns are checked by the API server when pods are made; only their "
    "number and length are bounded here, as CEL cannot bound the cost of a pattern on a key",
}
"""What the cluster's door lets through, and who checks it then (condition Accepted=False)."""

_ACTIONS = "^([0-9]{1,4}(,[0-9]{1,4})*)?$"


@dataclass(frozen=True, slots=True)
class Named:
    """One kind of parameters: where its list is, seen from ``self``, and what its names and presets are."""

    model: type[ParameterSet]
    presets: Presets
    list: str

    def value_of(self, python_name: str) -> str:
        """CEL for the value in force: given, else the preset's, else the default."""
        field = self.model.model_fields[python_name]
        name, marker = manifest_name(self.model, python_name), marker_of(field)
        words = literal_values(field)
        if isinstance(marker, Integer):
            readable, read = f"p.value.matches({text(INTEGER_PATTERN)})", "int(p.value)"
        elif isinstance(marker, Real):
            readable, read = f"p.value.matches({text(DECIMAL_PATTERN)})", "double(p.value)"
        elif field.annotation is bool:
            readable, read = "p.value in ['true', 'false']", "p.value == 'true'"
        else:
            readable, read = (f"p.value in {_list(words)}" if words else "true"), "p.value"
        sources = [f"{self.list}.filter(p, p.name == '{name}' && {readable}).map(p, {read})"]
        values = {
            preset: self._written(field, given[python_name])
            for preset, given in self.presets.items()
            if python_name in given
        }
        if values:
            table = ", ".join(f"'{preset}': {value}" for preset, value in values.items())
            sources.append(
                f"{self.list}.filter(p, p.name == 'preset' && p.value in {_list(values)}).map(p, {{{table}}}[p.value])"
            )
        sources.append(f"[{self._default(python_name, field)}]")
        return f"({' + '.join(sources)})[0]"

    def number_of(self, python_name: str) -> str:
        """CEL for the value in force as a number or a truth value: of a word its place among the words that are allowed.

        A server bounds what a rule may cost by the longest texts there can be, and it does not know how long a value is.
        """
        words = literal_values(self.model.model_fields[python_name])
        value = self.value_of(python_name)
        if not words:
            return value
        return f"{{{', '.join(f'{text(word)}: {at}' for at, word in enumerate(words))}}}[{value}]"

    def expand(self, cel: str) -> str:
        """``cel`` with each ``$name`` replaced by the value in force."""
        names = self.model.names()
        return re.sub(r"\$([a-zA-Z]+)", lambda match: self.value_of(names[match[1]]), cel)

    def _default(self, python_name: str, field: FieldInfo) -> str:
        if python_name == "learning_rate_final":
            return self.value_of("learning_rate")
        if python_name == "actions":
            return "''"
        value = field.get_default(call_default_factory=False)
        assert value is not PydanticUndefined, python_name
        assert value is not None, python_name
        return self._written(field, value)

    @staticmethod
    def _written(field: FieldInfo, value: Any) -> str:
        return repr(float(value)) if isinstance(marker_of(field), Real) else literal(value)


def manifest_name(model: type[ParameterSet], python_name: str) -> str:
    """The camelCase name of a parameter."""
    return next(manifest for manifest, python in model.names().items() if python == python_name)


def literal(value: Any) -> str:
    """A Python value as CEL."""
    if isinstance(value, str):
        return text(value)
    return json.dumps(value)


def text(value: str) -> str:
    """A string as CEL, in single quotes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _list(values: Any) -> str:
    return "[" + ", ".join(text(value) for value in values) + "]"


def rule_validations(rule: Rule) -> Validation:
    """The validation that stands at the schema of ``rule.at``."""
    cel = rule.cel
    if rule.algorithm is not None:
        model, presets = PARAMETERS[rule.algorithm]
        here = "self" if rule.at is AlgorithmSpec else "self.algorithm"
        assert rule.at in (AlgorithmSpec, RLJobSpec), rule.name
        cel = f"{here}.name != '{rule.algorithm}' || ({Named(model, presets, f'{here}.parameters').expand(cel)})"
    field = "parameters" if rule.at is AlgorithmSpec else rule.field
    named = rule.field.removeprefix("parameters.")
    return _validation(cel, f"{named}: {rule.message}" if named else rule.message, field, rule.reason)


def transition_validation(rule: TransitionRule) -> Validation:
    """The validation that compares the stored spec with the new one. A named parameter is no field: its list is."""
    field = re.sub(r"\.parameters\..*", ".parameters", rule.field)
    return _validation(rule.cel, f"{rule.field}: {rule.message}", field, "FieldValueForbidden")


def parameter_validations(owner: type[AlgorithmSpec] | type[EnvironmentSource]) -> list[Validation]:
    """Names, values and rules between the parameters of ``owner``, whose schema they stand at."""
    found: list[Validation] = []
    if owner is EnvironmentSource:
        return _of_one_kind(Named(EnvironmentParameters, {}, "self.parameters"), "")
    for name, (model, presets) in PARAMETERS.items():
        found += _of_one_kind(Named(model, presets, "self.parameters"), f"self.name != '{name}' || ")
    return found


def _of_one_kind(named: Named, guard: str) -> list[Validation]:
    names = list(named.model.names())
    found = [
        _parameters(
            f"{guard}self.parameters.all(p, p.name in {_list(names)})",
            f"unknown parameter; known here: {', '.join(sorted(names))}",
        )
    ]
    for python_name, field in named.model.model_fields.items():
        name = manifest_name(named.model, python_name)
        condition, allowed = _value_condition(python_name, field)
        if condition:
            found.append(
                _parameters(f"{guard}self.parameters.all(p, p.name != '{name}' || {condition})", f"{name}: {allowed}")
            )
    found += [_between(named, guard, rule) for rule in named.model.rules]
    return found


def _between(named: Named, guard: str, rule: ParameterRule) -> Validation:
    return _parameters(f"{guard}({named.expand(rule.cel)})", f"{rule.field}: allowed: {rule.message}")


def _value_condition(python_name: str, field: FieldInfo) -> tuple[str, str]:
    """CEL that holds for a right value ``p.value`` of this parameter, and what is allowed in words."""
    marker, words = marker_of(field), literal_values(field)
    if python_name == "actions":
        known = f"p.value.matches({text(_ACTIONS)})"
        return known, 'allowed: different action numbers from 0 to 1023 with commas, such as "0,2,3", or "" for all'
    if isinstance(marker, Integer):
        bounds = [f"int(p.value) >= {marker.low}"]
        if marker.high < MAX_INTEGER:
            bounds.append(f"int(p.value) <= {marker.high}")
        return f"p.value.matches({text(INTEGER_PATTERN)}) && {' && '.join(bounds)}", marker.allowed
    if isinstance(marker, Real):
        conditions = [f"p.value.matches({text(DECIMAL_PATTERN)})", *real_bounds(marker, "double(p.value)")]
        return " && ".join(conditions), marker.allowed
    if field.annotation is bool:
        return "p.value in ['true', 'false']", "allowed: true or false"
    if words:
        return f"p.value in {_list(words)}", f"allowed: {', '.join(words)}"
    return "", ""


def real_bounds(marker: Real, value: str) -> list[str]:
    """CEL for the bounds of a number."""
    found = []
    if marker.low > float("-inf"):
        found.append(f"{value} {'>' if marker.above else '>='} {float(marker.low)!r}")
    if marker.high < float("inf"):
        found.append(f"{value} {'<' if marker.below else '<='} {float(marker.high)!r}")
    return found


def _parameters(cel: str, message: str) -> Validation:
    return _validation(cel, message, "parameters", "FieldValueInvalid")


def _validation(cel: str, message: str, field: str, reason: str) -> Validation:
    found = {"rule": cel, "message": message, "reason": reason}
    if field:
        found["fieldPath"] = f".{field}"
    return found
