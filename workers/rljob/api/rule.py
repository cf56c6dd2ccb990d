"""A rule between fields. Python checks each; the cluster's API server (CEL) those of fields that a manifest has all by hand.

The two texts of a rule stand side by side, and a property test compares their verdicts, so that they cannot drift apart.
Python's message adds the numbers to the cluster's. What is said of lists alike is in `KEYED`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel

from rljob.api.problems import ABSENT
from rljob.api.types import plain_number

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


STORED: Mapping[str, Any] = MappingProxyType(
    {"suspend": False, "actors": {}, "actors.replicas": 1, "algorithm": {}, "evaluator": {}}
)
"""What an API server fills in below ``spec`` where it is not written: the number of actors, because ``/scale``, ``kubectl scale``
and autoscalers read it from the stored job; ``suspend``, which no preset sets; and empty sections, which say nothing and make
rules about what is in them shorter. All other defaults are filled in by those who read a job: a stored one would win over a
preset."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about every place of type ``at``."""

    name: str
    at: type[BaseModel]
    """The type that it is about: ``self`` in CEL, the argument of ``holds`` and ``here``."""
    field: str
    """The field to change, below ``self``, in the manifest's words; empty for ``self`` as a whole."""
    holds: Callable[[Any], bool]
    """Given what ``self`` is in CEL, of a job in force."""
    message: str
    """What is allowed; behind a semicolon, why."""
    here: Callable[[Any], object] | None = None
    """What that comes to in a job that breaks the rule."""
    cel: str = ""
    """True where all is well with what is written; it is asked only where all fields that it reads are written, save those that
    it asks for with ``has`` itself (`rljob.api.generate.schema`). Empty where Python alone tells."""
    algorithm: str | None = None
    """The algorithm whose jobs it is about; None for all."""
    parameters: tuple[str, ...] = ()
    """The parameters of the algorithm that it reads. It is about the algorithms that have all of them."""
    reason: Reason = "FieldValueInvalid"

    def said_of(self, it: Any) -> str:
        """The message, with what it comes to in ``it``."""
        allowed, semicolon, why = self.message.partition(";")
        return self.message if self.here is None else f"{allowed} ({self.here(it)}){semicolon}{why}"


Limit = Callable[[Any], float]
"""Of what `Rule.holds` is given, a number."""


def _compared(
    words: str,
    right: Callable[[Any, Any], bool],
    name: str,
    at: type[BaseModel],
    field: str,
    other: str,
    why: str,
    limit: Limit | None = None,
    **rest: Any,
) -> Rule:
    """The rule that ``field`` is at most, or at least, ``other``: a field, both in the manifest's words below ``at``, or words
    for ``limit``. ``rest``: what else a `Rule` has."""
    bound = limit or (lambda it: value_at(it, other))

    def holds(it: Any) -> bool:
        return (mine := value_at(it, field)) is ABSENT or right(mine, bound(it))

    def here(it: Any) -> str:
        return f"{'here ' if limit else ''}{plain_number(bound(it)):,}"

    return Rule(name, at, field, holds, f"allowed: {words} {other}; {why}", here, **rest)


at_most = partial(_compared, "at most", operator.le)
at_least = partial(_compared, "at least", operator.ge)


def value_at(node: Any, field: str) -> Any:
    """What stands at ``field`` below ``node``: ABSENT for nothing, whole sections, lists and maps."""
    for part in filter(None, field.split(".")):
        name = next(n for n, f in type(node).model_fields.items() if (f.alias or n) == part)
        node = getattr(node, name)
        if node is None:
            return ABSENT
    return ABSENT if isinstance(node, BaseModel | list | dict) else plain_number(node)


KEYED: Mapping[str, str] = {
    "image_pull_secrets": "name",
    "preset_without": "",
    "include": "",
    "rules": "name",
    "roles": "",
    "conditions": "type",
    "members": "name",
    "env": "name",
}
"""Python name of a list whose order says nothing -> the entries' key; empty for a set. No other list of a type has the name."""
