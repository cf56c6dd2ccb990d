"""A small job to judge, and networks for it."""

from __future__ import annotations

from typing import Any

import torch
from rljob.algorithms import algorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import RLJob
from rljob.envs import describe_environment


def manifest(target: str | None = None, **evaluator: Any) -> dict[str, Any]:
    """CartPole with Ape-X, judged as ``evaluator`` says; it ends with ``target`` or after a million frames."""
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "test"},
        "spec": {
            "environment": {"id": "CartPole-v1"},
            "algorithm": {"name": "ApeXDQN", "parameters": [{"name": "network", "value": "MLP"}]},
            "replay": {},
            "evaluator": evaluator,
            "successPolicy": {"targetReturn": {"value": target}} if target else {"envFrames": 1_000_000},
        },
    }


def network(job: RLJob, seed: int = 0) -> FrameNetwork:
    """The job's network with the weights of ``seed``."""
    torch.manual_seed(seed)
    environment = job.spec.environment.resolved()
    described = describe_environment(job.spec.environment.id, environment)
    return algorithm(job.spec.algorithm.name).build(described, job.spec.algorithm.resolved(), environment)
