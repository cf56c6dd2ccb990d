"""The algorithms of this package, as the manifest knows them. Where their code is, is in ``rljob.algorithms.registry``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.learner_parameters import LearnerParameterSet
from rljob.api.ppo import PPOParameters
from rljob.api.sac import SACParameters


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in algorithm.

    Attributes:
        block: the field below ``spec.algorithm`` of what it alone has.
        about: what the block holds, with the publication.
        parameters: all that it is set by, shared parameters too.
        from_replay: it learns from transitions, which spec.replay holds; else from unrolls.
        elsewhere: what others call it or something like it.
    """

    block: str
    about: str
    parameters: type[LearnerParameterSet]
    from_replay: bool = False
    elsewhere: tuple[str, ...] = ()


BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "ApeXDQN": BuiltIn(
            "apeXDQN",
            "Hyper-parameters of ApeXDQN alone (Horgan et al., 2018, https://arxiv.org/abs/1803.00933).",
            ApeXDQNParameters,
            from_replay=True,
            elsewhere=("DQN",),
        ),
        "IMPALA": BuiltIn(
            "impala",
            "Hyper-parameters of IMPALA alone (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561).",
            ImpalaParameters,
            elsewhere=("A2C", "A3C", "APPO"),
        ),
        "PPO": BuiltIn(
            "ppo",
            "Hyper-parameters of PPO alone (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).",
            PPOParameters,
        ),
        "SAC": BuiltIn(
            "sac",
            "Hyper-parameters of SAC alone (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).",
            SACParameters,
            from_replay=True,
            elsewhere=("SoftActorCritic",),
        ),
    }
)
"""``spec.algorithm.type`` -> the algorithm."""
