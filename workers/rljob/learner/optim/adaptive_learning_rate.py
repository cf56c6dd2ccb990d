"""The learning rate: that of the job's schedule, and a share of it while the policy moves too far in a batch."""

import math

from rljob.algorithms.parameters import LearnerParameters

LARGEST_CHANGE = 1.25
"""By how much one batch may change the scale of the schedule: a batch's divergence is a noisy figure."""

LEAST_SCALE = 0.05
"""The scale never falls below this: a divergence that comes from old unrolls cannot be brought down by learning less."""


def scheduled_learning_rate(params: LearnerParameters, steps: int) -> float:
    """The learning rate after ``steps`` agent steps of all environments: linear from the first value to the final one."""
    if params.learning_rate_decay_steps == 0:
        return float(params.learning_rate)
    done = min(1.0, steps / params.learning_rate_decay_steps)
    return float(params.learning_rate + (params.learning_rate_final - params.learning_rate) * done)


class AdaptiveLearningRate:
    """The schedule times ``scale`` (0.05..1), which follows the divergence that batches end up with.

    To second order the divergence grows with the square of the learning rate (as two Gaussians' does with their distance), so
    the scale is multiplied by the root of what it should be over what it was. ``target`` (in nats) 0 leaves the scale at 1.
    """

    def __init__(self, params: LearnerParameters, target: float = 0.0) -> None:
        self.params = params
        self.target = target
        self.scale = 1.0

    def at(self, steps: int) -> float:
        """The learning rate after ``steps`` agent steps of the run."""
        return scheduled_learning_rate(self.params, steps) * self.scale

    def observe(self, divergence: float) -> None:
        """A batch has ended, whose updates saw this mean divergence from the policy that acted, in nats."""
        if self.target == 0.0 or math.isnan(divergence):
            return
        wanted = math.sqrt(self.target / divergence) if divergence > 0.0 else LARGEST_CHANGE
        change = min(max(wanted, 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        self.scale = min(max(self.scale * change, LEAST_SCALE), 1.0)
