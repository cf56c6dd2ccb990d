"""Rules of tolerations, as Kubernetes has them."""

from __future__ import annotations

from rljob.api.pods import Toleration
from rljob.api.problems import ABSENT
from rljob.api.rule import Broken, Outcome, rule


@rule(
    Toleration,
    "value",
    reason="FieldValueForbidden",
    cel="self.operator != 'Exists' || self.value == ''",
    message="allowed: no value with operator Exists",
)
def no_value_with_exists(toleration: Toleration) -> Outcome:
    return "allowed: no value with operator Exists" if toleration.operator == "Exists" and toleration.value else None


@rule(
    Toleration,
    "key",
    reason="FieldValueRequired",
    cel="self.operator != 'Equal' || self.key != ''",
    message="required with operator Equal; use Exists to tolerate every taint",
)
def key_with_equal(toleration: Toleration) -> Outcome:
    if toleration.operator != "Equal" or toleration.key:
        return None
    return Broken("required with operator Equal; use Exists to tolerate every taint", ABSENT)
