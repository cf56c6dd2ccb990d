"""``spec.algorithm``: which algorithm, and its parameters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.parameters import NamedParameter, check, required
from rljob.api.presets import PRESETS
from rljob.api.problems import Problem
from rljob.api.types import APIModel


class AlgorithmSpec(APIModel):
    """The algorithm and its hyper-parameters."""

    name: Literal["ApeXDQN"]
    """The algorithm; it cannot be changed later."""
    parameters: list[NamedParameter] = Field(default_factory=list, max_length=128)
    """Hyper-parameters by name; what is left out takes the preset's value, else the default."""

    def checked(self) -> tuple[ApeXDQNParameters, list[Problem]]:
        """The typed parameters, preset applied, and every problem; wrong values are replaced by defaults."""
        preset = next((item.value for item in self.parameters if item.name == "preset"), "None")
        base: dict[str, Any] = dict(PRESETS.get(preset, {}))
        return check(ApeXDQNParameters, self.parameters, "spec.algorithm.parameters", base)

    def resolved(self) -> ApeXDQNParameters:
        """The typed parameters, preset applied. Raises ManifestError on unknown names and bad values."""
        return required(self.checked())
