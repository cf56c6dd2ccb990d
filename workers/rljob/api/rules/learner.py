"""Rules of ``spec.learner.accelerator`` and ``spec.inference.accelerator``."""

from __future__ import annotations

from rljob.api.roles import Accelerator
from rljob.api.rule import Outcome, rule


@rule(
    Accelerator,
    "count",
    cel="!has(self.count) || self.count <= 1",
    message="allowed: 0 or 1; a role computes on one device, and more would be reserved for it and stand idle",
)
def one_device(accelerator: Accelerator) -> Outcome:
    if accelerator.count is None or accelerator.count <= 1:
        return None
    return (
        "allowed: 0 or 1; a role computes on one device, and the others of "
        f"{accelerator.count} would be reserved for it and stand idle"
    )


@rule(
    Accelerator,
    "onMissing",
    reason="FieldValueForbidden",
    cel="!has(self.onMissing) || has(self.count)",
    message="allowed beside count; without it no device is asked for, and none can be missing",
)
def on_missing_needs_a_device(accelerator: Accelerator) -> Outcome:
    if accelerator.on_missing is None or accelerator.count is not None:
        return None
    return "allowed beside count; without it no device is asked for, and none can be missing"


@rule(
    Accelerator,
    "device",
    reason="FieldValueForbidden",
    cel="!has(self.count) || self.count > 0 || self.device != 'Accelerator'",
    message="Accelerator is allowed where a device may be used; with count 0 none is",
)
def device_needs_one(accelerator: Accelerator) -> Outcome:
    if accelerator.count != 0 or accelerator.device != "Accelerator":
        return None
    return "Accelerator is allowed where a device may be used; with count 0 none is"
