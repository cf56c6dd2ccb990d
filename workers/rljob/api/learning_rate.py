"""Rules of the linear decay of the learning rate, which every algorithm has."""

from __future__ import annotations

from typing import Any

from rljob.api.parameters import ParameterRule


def _grows(it: Any) -> str | None:
    if it.learning_rate_final <= it.learning_rate:
        return None
    return f"at most learningRate ({it.learning_rate:g}); it decays, it does not grow"


def _never_decays(it: Any) -> str | None:
    if it.learning_rate_final >= it.learning_rate or it.learning_rate_decay_steps > 0:
        return None
    return "below learningRate only with learningRateDecaySteps above 0; without it nothing would decay"


LEARNING_RATE_RULES = (
    ParameterRule(
        "learningRateFinal",
        "$learningRateFinal <= $learningRate",
        "at most learningRate; it decays, it does not grow",
        _grows,
    ),
    ParameterRule(
        "learningRateFinal",
        "$learningRateFinal >= $learningRate || $learningRateDecaySteps > 0",
        "below learningRate only with learningRateDecaySteps above 0; without it nothing would decay",
        _never_decays,
    ),
)
