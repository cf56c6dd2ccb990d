"""Rules of jobs that SAC learns."""

from rljob.api.job import RLJobSpec
from rljob.api.rule import holds

_BOUNDED = holds(
    "actions_between_their_bounds",
    RLJobSpec,
    "environment.actions",
    lambda spec: spec.environment.squashes,
    algorithm="SAC",
    message="allowed with SAC: Squashed, or nothing; its entropy is that of actions between their bounds",
)
