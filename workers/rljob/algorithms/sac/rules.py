"""Rules of jobs that SAC learns."""

from __future__ import annotations

from rljob.api.job import RLJobSpec
from rljob.api.rule import Broken, Outcome, rule

_UNBOUNDED = "allowed with SAC: Squashed, or nothing; its entropy is that of actions between their bounds"


@rule(RLJobSpec, "environment.actions", message=_UNBOUNDED, algorithm="SAC")
def actions_between_their_bounds(spec: RLJobSpec) -> Outcome:
    return None if spec.environment.squashes else Broken(_UNBOUNDED, spec.environment.actions)
