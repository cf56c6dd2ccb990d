"""All that an algorithm, a network or an environment of one's own is written with (docs/plugins.md).

What is named here stays as it is documented; everything else in ``rljob`` may change with any release. An environment of one's
own is a plain ``gymnasium.Env`` and needs nothing of this.
"""

from rljob.algorithms.acting_rules import ActionValueAlgorithm, GaussianAlgorithm, epsilon_ladder
from rljob.algorithms.base import Game, Inference, ParameterGroup, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import (
    LossResult,
    Observation,
    TransitionBatch,
    UnrollBatch,
    minibatches_of_steps,
    minibatches_of_unrolls,
)
from rljob.algorithms.conformance import check
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.layers import DenseEnsemble
from rljob.algorithms.optimizer import Optimizer
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.ppo.loss import PPO
from rljob.algorithms.trunk import FrameNetwork, convolution_layers, dense_layers, seen_by_convolutions
from rljob.algorithms.vtrace import gae, vtrace
from rljob.api import EnvironmentParameters, ImpalaParameters, PPOParameters, UnrollQueue
from rljob.api.parameters import ActionValueParameterSet, ParameterSet, TransitionParameterSet, UnrollParameterSet
from rljob.api.types import Flag, Integer, Real, Text
from rljob.choices import FORBIDDEN, Choices, RandomNumbers
from rljob.envs import EnvironmentProblem, EnvironmentSpec, describe_environment, try_environment
from rljob.experience import Decision
from rljob.loading import PluginProblem

__all__ = [
    "FORBIDDEN",
    "IMPALA",
    "PPO",
    "ActionValueAlgorithm",
    "ActionValueParameterSet",
    "Choices",
    "Decision",
    "DenseEnsemble",
    "EnvironmentParameters",
    "EnvironmentProblem",
    "EnvironmentSpec",
    "Flag",
    "FrameNetwork",
    "Game",
    "GaussianAlgorithm",
    "ImpalaParameters",
    "Inference",
    "Integer",
    "LossResult",
    "Observation",
    "Optimizer",
    "PPOParameters",
    "ParameterGroup",
    "ParameterSet",
    "PluginProblem",
    "PolicyConfig",
    "PolicyNetwork",
    "RandomNumbers",
    "Real",
    "Text",
    "TransitionAlgorithm",
    "TransitionBatch",
    "TransitionParameterSet",
    "UnrollAlgorithm",
    "UnrollBatch",
    "UnrollParameterSet",
    "UnrollQueue",
    "check",
    "convolution_layers",
    "dense_layers",
    "describe_environment",
    "epsilon_ladder",
    "gae",
    "minibatches_of_steps",
    "minibatches_of_unrolls",
    "seen_by_convolutions",
    "try_environment",
    "vtrace",
]
