"""A small job to judge, and networks for it."""

from typing import Any

import torch
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import RLJob
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs import describe_environment

from tests.support.jobs import manifest_of


def manifest(target: float | None = None, algorithm: dict[str, Any] | None = None, **evaluator: Any) -> dict[str, Any]:
    """CartPole with ``algorithm`` (Ape-X), judged as ``evaluator`` says; it ends with ``target`` or after a million frames."""
    spec = {
        "environment": {"id": "CartPole-v1"},
        "algorithm": algorithm or {"type": "ApeXDQN", "network": "MLP"},
        "evaluator": evaluator,
        "successPolicy": {"targetReturn": {"value": target}} if target else {"rawFrames": 1_000_000},
    }
    return manifest_of(spec)


def identity_of(job: RLJob) -> PolicyIdentity:
    """What the job's policies are policies of."""
    environment = job.spec.environment.parameters
    described = describe_environment(job.spec.environment.id, environment)
    return PolicyIdentity(job.spec.algorithm.type, described, job.spec.algorithm.parameters, environment)


def network(job: RLJob, seed: int = 0) -> FrameNetwork:
    """The job's network with the weights of ``seed``."""
    torch.manual_seed(seed)
    policy = identity_of(job)
    return algorithm(policy.algorithm).build(policy.spec, policy.params, policy.env_params)
