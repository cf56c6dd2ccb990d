"""Rules of jobs that SAC learns."""

from rljob.api.job import RLJobSpec
from rljob.api.rule import Rule

_BOUNDED = Rule(
    "actions_between_their_bounds",
    RLJobSpec,
    "environment.actions",
    lambda spec: spec.environment.squashes,
    algorithm="SAC",
    message="allowed: Squashed, or nothing, with SAC; its entropy is that of actions between their bounds",
)
