"""``spec.algorithm``: which algorithm, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.mutability import WHILE_SUSPENDED, never
from rljob.api.parameters import AlgorithmParameter, ParameterSet, check, required
from rljob.api.presets import APEX_DQN_PRESETS, IMPALA_PRESETS
from rljob.api.problems import Problem
from rljob.api.types import APIModel

AlgorithmName = Literal["ApeXDQN", "IMPALA"]
AlgorithmParameters = ApeXDQNParameters | ImpalaParameters
P = TypeVar("P", bound=ParameterSet)

_PATH = "spec.algorithm.parameters"
PARAMETERS: Mapping[str, tuple[type[ApeXDQNParameters] | type[ImpalaParameters], Mapping[str, Mapping[str, Any]]]] = {
    "ApeXDQN": (ApeXDQNParameters, APEX_DQN_PRESETS),
    "IMPALA": (ImpalaParameters, IMPALA_PRESETS),
}
"""Algorithm -> the type of its parameters, and its presets."""


class AlgorithmSpec(APIModel):
    """The algorithm and its hyper-parameters."""

    name: Annotated[AlgorithmName, never("checkpoints of one algorithm mean nothing to another")]
    """The algorithm. ApeXDQN needs spec.replay, IMPALA needs spec.queue."""
    parameters: Annotated[list[AlgorithmParameter], WHILE_SUSPENDED] = Field(default_factory=list, max_length=64)
    """Hyper-parameters by name; what is left out takes the preset's value, else the default."""

    def checked(self) -> tuple[AlgorithmParameters, list[Problem]]:
        """The typed parameters, preset applied, and every problem; wrong values are replaced by defaults."""
        model, presets = PARAMETERS[self.name]
        preset = next((item.value for item in self.parameters if item.name == "preset"), "None")
        return check(model, self.parameters, _PATH, dict(presets.get(preset, {})))

    def resolved(self) -> AlgorithmParameters:
        """The typed parameters, preset applied. Raises ManifestError on unknown names and bad values."""
        return required(self.checked())

    def resolved_as(self, kind: type[P]) -> P:
        """`resolved`, for code that serves one algorithm only. Raises TypeError when the job names another one."""
        parameters = self.resolved()
        if not isinstance(parameters, kind):
            raise TypeError(f"the algorithm is {self.name}; its parameters are no {kind.__name__}")
        return parameters
