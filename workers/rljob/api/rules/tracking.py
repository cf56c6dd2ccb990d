"""Rules of ``spec.tracking``."""

from __future__ import annotations

from rljob.api.rule import Broken, Outcome, rule
from rljob.api.tracking import TrackingSpec

_SOMEWHERE = "required: wandb, such as wandb: {}, or mlflow; figures have to be sent somewhere"


@rule(
    TrackingSpec,
    "",
    reason="FieldValueRequired",
    cel="has(self.wandb) || has(self.mlflow)",
    message=_SOMEWHERE,
)
def somewhere(tracking: TrackingSpec) -> Outcome:
    return None if tracking.wandb or tracking.mlflow else Broken(_SOMEWHERE, {})
