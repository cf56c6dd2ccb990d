"""The learner's step size: what the job's schedule says, and less of it while the policy moves too far in a batch."""

from __future__ import annotations

import math
from typing import Any

LARGEST_CHANGE = 1.25
"""By how much one batch may change the share of the schedule: a batch's divergence is a noisy figure."""

LEAST_SHARE = 0.05
"""The share never falls below this: a divergence that comes from old unrolls cannot be brought down by learning less."""


def scheduled(params: Any, steps: int) -> float:
    """The step size after ``steps`` agent steps of all environments: linear from the first value to the final one."""
    if params.learning_rate_decay_steps == 0:
        return float(params.learning_rate)
    done = min(1.0, steps / params.learning_rate_decay_steps)
    return float(params.learning_rate + (params.learning_rate_final - params.learning_rate) * done)


class StepSize:
    """The schedule times ``share`` (0.05..1), which follows the divergence that batches end up with.

    To second order the divergence grows with the square of the step size (as two Gaussians' does with their distance), so the
    share is multiplied by the root of what it should be over what it was. ``target`` 0 leaves the share at 1.
    """

    def __init__(self, params: Any) -> None:
        self._params = params
        self.target = float(getattr(params, "target_policy_kl", 0.0))
        self.share = 1.0

    def at(self, steps: int) -> float:
        """The step size after ``steps`` agent steps of the run."""
        return scheduled(self._params, steps) * self.share

    def note(self, policy_kl: float) -> None:
        """A batch has ended, whose updates saw this mean divergence from the policy that acted, in nats."""
        if self.target == 0.0 or math.isnan(policy_kl):
            return
        wanted = math.sqrt(self.target / policy_kl) if policy_kl > 0.0 else LARGEST_CHANGE
        change = min(max(wanted, 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        self.share = min(max(self.share * change, LEAST_SHARE), 1.0)
