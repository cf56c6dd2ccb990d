"""An algorithm of a user's own, in a file that a test changes, and a job of it."""

import itertools
from pathlib import Path
from typing import Any

from rljob.algorithms.conformance import check_own_parts
from rljob.algorithms.registry import with_own_parts
from rljob.api import RLJob, parse_job
from rljob.api.algorithm import SHARED
from rljob.envs import describe_environment

PLUGIN = """\
from __future__ import annotations

import torch
from torch import nn
from typing import Annotated

from rljob.plugins import (
    ActionValueAlgorithm, ActionValueParameterSet, FrameNetwork, Integer, LossResult, dense_layers,
)


class Parameters(ActionValueParameterSet):
    units: Annotated[int, Integer(1, 100)] = 16


class Network(FrameNetwork):
    def __init__(self, spec, units, env_params):
        super().__init__(spec, env_params)
        self.dense = dense_layers(4, units, 1, layer_norm=False)
        self.head = nn.Linear(units, spec.num_actions)

    def forward(self, observation):
        return self.head(self.features(observation))


class Own(ActionValueAlgorithm):
    parameters = Parameters
    metrics = ("q",)

    def build(self, spec, params, env_params):
        return Network(spec, params.units, env_params)

    def action_values(self, net, observation):
        return net(observation)

    def loss(self, params, online, target, batch):
        taken = online(batch.observation).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            wanted = batch.n_step_return + batch.discount * target(batch.next_observation).max(1).values
        error = wanted - taken
        return LossResult((batch.weight * error.square()).mean(), {"q": taken.detach().mean()}, td_abs=error.detach().abs())


def make():
    return Own()
"""
_numbers = itertools.count()


def job(folder: Path, *changes: tuple[str, str], factory: str = "make", **spec: Any) -> RLJob:
    """A job of the plug-in above with some of its text replaced."""
    text = PLUGIN
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / f"plugin_{next(_numbers)}.py"
    file.write_text(text)
    given = spec.pop("parameters", {})
    shared = {name: given[name] for name in given if name in SHARED}
    custom = {"factory": f"{file}:{factory}", "parameters": {name: given[name] for name in given if name not in SHARED}}
    document = {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "own"},
        "spec": {
            "algorithm": {"type": "Custom", "custom": custom, **shared},
            "environment": {"id": "CartPole-v1"},
            "replay": {"capacity": 50_000},
            **spec,
        },
    }
    return parse_job(document)


def tried(given: RLJob) -> RLJob:
    """The job with its plug-in loaded and tried, as ``rljob run`` and the learner do before anything else."""
    bound = with_own_parts(given)
    check_own_parts(bound, describe_environment(bound.spec.environment.id, bound.spec.environment.parameters))
    return bound


def unrolls(folder: Path, methods: str) -> RLJob:
    """A job of IMPALA with other methods."""
    change = (
        "def make():\n    return Own()",
        "from rljob.plugins import IMPALA, minibatches_of_steps, minibatches_of_unrolls\n\n"
        f"class Mine(IMPALA):\n{methods}\n\ndef make():\n    return Mine()",
    )
    parameters = {"network": "MLP", "hiddenUnits": 16, "batchSize": 4, "unrollLength": 8}
    return job(folder, change, replay=None, parameters=parameters)
