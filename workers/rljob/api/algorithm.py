"""``spec.algorithm``: which algorithm, and its parameters in a block of their own."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PrivateAttr, model_validator

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.mutability import WHILE_SUSPENDED, never
from rljob.api.parameters import ParameterSet
from rljob.api.ppo import PPOParameters
from rljob.api.sac import SACParameters
from rljob.api.types import FACTORY_PATTERN, APIModel, JSONObject, Text

AlgorithmType = Literal["ApeXDQN", "IMPALA", "PPO", "SAC", "Custom"]
AlgorithmParameters = ApeXDQNParameters | ImpalaParameters | PPOParameters | SACParameters
P = TypeVar("P", bound=ParameterSet)

BLOCKS: Mapping[str, str] = MappingProxyType(
    {"ApeXDQN": "apeXDQN", "IMPALA": "impala", "PPO": "ppo", "SAC": "sac", "Custom": "custom"}
)
"""Type of an algorithm -> the field that holds its parameters."""
FROM_REPLAY = ("ApeXDQN", "SAC")
"""Those that learn from transitions, which spec.replay holds."""


class CustomAlgorithm(APIModel):
    """An algorithm from outside this package (docs/plugins.md). All that a controller has to know of it is whether there is a
    spec.replay: with one it learns from transitions, without from unrolls."""

    factory: Annotated[str, Text(253, '"module:factory" or "file.py:factory"', f"^{FACTORY_PATTERN}$")]
    """The function that makes it, as ``module:factory`` or ``file.py:factory``."""
    parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Its own; ``rljob explain FACTORY`` explains them."""


class AlgorithmSpec(APIModel):
    """What learns: an algorithm, and its hyper-parameters in the block of its name, of which none has to be written."""

    type: Annotated[AlgorithmType, never("checkpoints of one algorithm mean nothing to another")] = "PPO"
    """The algorithm; a preset says it, too, and the block of its hyper-parameters. ApeXDQN and, of continuous actions, SAC learn
    from a store of experience, spec.replay; IMPALA from a queue of unrolls, algorithm.impala.unrollQueue; PPO from unrolls that
    its actors play for each iteration."""
    apex_dqn: Annotated[ApeXDQNParameters | None, WHILE_SUSPENDED] = Field(default=None, alias="apeXDQN")
    """Hyper-parameters of ApeXDQN (Horgan et al., 2018, https://arxiv.org/abs/1803.00933)."""
    impala: Annotated[ImpalaParameters | None, WHILE_SUSPENDED] = None
    """Hyper-parameters of IMPALA (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561)."""
    ppo: Annotated[PPOParameters | None, WHILE_SUSPENDED] = None
    """Hyper-parameters of PPO (Schulman et al., 2017, https://arxiv.org/abs/1707.06347)."""
    sac: Annotated[SACParameters | None, WHILE_SUSPENDED] = None
    """Hyper-parameters of SAC (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905)."""
    custom: Annotated[CustomAlgorithm | None, never("checkpoints of one algorithm mean nothing to another")] = None
    """The algorithm of type Custom."""
    _own: Any = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _of_its_block(cls, given: Any) -> Any:
        """The type is that of the block beside it where none is written."""
        if not isinstance(given, Mapping) or "type" in given:
            return given
        of_block = (type_ for type_, block in BLOCKS.items() if given.get(block) is not None)
        found = next(of_block, None)
        return given if found is None else {**given, "type": found}

    @property
    def name(self) -> str:
        """What the data plane and checkpoints call it: its type, or the factory of a Custom one."""
        return self.custom.factory if self.type == "Custom" and self.custom is not None else self.type

    def with_own(self, parameters: ParameterSet) -> AlgorithmSpec:
        """A copy of a Custom algorithm whose ``parameters`` are these, of its own type."""
        bound = self.model_copy()
        bound._own = parameters
        return bound

    @property
    def parameters(self) -> AlgorithmParameters:
        """The parameters in force. Raises TypeError for a Custom algorithm whose own were not given (`with_own`): they are known
        where it can be loaded."""
        if self._own is not None:
            return self._own  # type: ignore[no-any-return]
        if self.type == "ApeXDQN":
            return self.apex_dqn or ApeXDQNParameters()
        if self.type == "IMPALA":
            return self.impala or ImpalaParameters()
        if self.type == "PPO":
            return self.ppo or PPOParameters()
        if self.type == "SAC":
            return self.sac or SACParameters()
        raise TypeError(f"the parameters of {self.name} are its own; they are known where it is loaded")

    def parameters_as(self, kind: builtins.type[P]) -> P:
        """`parameters`, for code that serves one algorithm only. Raises TypeError when the job names another one."""
        parameters = self.parameters
        if not isinstance(parameters, kind):
            raise TypeError(f"the algorithm is {self.type}; its parameters are no {kind.__name__}")
        return parameters
