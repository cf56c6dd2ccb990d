"""Rules of ``spec.learner``."""

from __future__ import annotations

from rljob.api.roles import Accelerator
from rljob.api.rule import Outcome, rule


@rule(
    Accelerator,
    "count",
    cel="self.count <= 1",
    message="allowed: 0 or 1; the learner computes on one device, and more would be reserved for it and stand idle",
)
def one_device(accelerator: Accelerator) -> Outcome:
    if accelerator.count <= 1:
        return None
    return (
        "allowed: 0 or 1; the learner computes on one device, and the others of "
        f"{accelerator.count} would be reserved for it and stand idle"
    )
