"""``spec.algorithm``: which algorithm, and its parameters in a block of their own."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.mutability import WHILE_SUSPENDED, never
from rljob.api.parameters import ParameterSet
from rljob.api.types import FACTORY_PATTERN, APIModel, JSONObject, Text

AlgorithmType = Literal["ApeXDQN", "IMPALA", "Custom"]
AlgorithmParameters = ApeXDQNParameters | ImpalaParameters
P = TypeVar("P", bound=ParameterSet)

BLOCKS: Mapping[str, str] = MappingProxyType({"ApeXDQN": "apeXDQN", "IMPALA": "impala", "Custom": "custom"})
"""Type of an algorithm -> the field that holds its parameters."""


class CustomAlgorithm(APIModel):
    """An algorithm from outside this package. Its place in the manifest is settled; this version does not load one yet."""

    factory: Annotated[str, Text(253, '"module:factory"', f"^{FACTORY_PATTERN}$")]
    """The function that makes it, as ``module:factory``."""
    parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Handed to the function by name."""


class AlgorithmSpec(APIModel):
    """What learns: an algorithm, and its hyper-parameters in the block of its name, of which none has to be written."""

    type: Annotated[AlgorithmType, never("checkpoints of one algorithm mean nothing to another")]
    """The algorithm, unless a preset names it. ApeXDQN learns from a store of experience, spec.replay; IMPALA from a queue of
    unrolls, algorithm.impala.unrollQueue."""
    apex_dqn: Annotated[ApeXDQNParameters | None, WHILE_SUSPENDED] = Field(default=None, alias="apeXDQN")
    """Hyper-parameters of ApeXDQN (Horgan et al., 2018, https://arxiv.org/abs/1803.00933)."""
    impala: Annotated[ImpalaParameters | None, WHILE_SUSPENDED] = None
    """Hyper-parameters of IMPALA (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561)."""
    custom: Annotated[CustomAlgorithm | None, never("checkpoints of one algorithm mean nothing to another")] = None
    """The algorithm of type Custom."""

    @property
    def parameters(self) -> AlgorithmParameters:
        """The parameters in force. Raises TypeError for a Custom algorithm, which no job that was checked has."""
        if self.type == "ApeXDQN":
            return self.apex_dqn or ApeXDQNParameters()
        if self.type == "IMPALA":
            return self.impala or ImpalaParameters()
        raise TypeError(f"algorithm {self.type} has no parameters of this package")

    def parameters_as(self, kind: builtins.type[P]) -> P:
        """`parameters`, for code that serves one algorithm only. Raises TypeError when the job names another one."""
        parameters = self.parameters
        if not isinstance(parameters, kind):
            raise TypeError(f"the algorithm is {self.type}; its parameters are no {kind.__name__}")
        return parameters
