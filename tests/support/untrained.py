"""Runs with a checkpoint of a network that has learned nothing yet, written as the learner writes its own."""

from pathlib import Path

import torch
from rljob.algorithms.registry import algorithm
from rljob.api import load_manifest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs import describe_environment

from tests.support.paths import EXAMPLES


def untrained(folder: Path, manifest: str, *overrides: str) -> Path:
    """A run folder with one checkpoint of a job's untrained network."""
    job = load_manifest(EXAMPLES / manifest, overrides)
    params, env_params = job.spec.algorithm.parameters, job.spec.environment.parameters
    spec = describe_environment(job.spec.environment.id, env_params)
    torch.manual_seed(1)
    network = algorithm(job.spec.algorithm.type).build_learner(spec, params, env_params)
    tensors = {f"online.{name}": tensor for name, tensor in network.state_dict().items()}
    document = PolicyIdentity(job.spec.algorithm.type, spec, params, env_params, job.spec.judged_environment).document()
    checkpoint.write(folder / "checkpoints", checkpoint.checkpoint_name(1, 100), tensors, document)
    return folder
