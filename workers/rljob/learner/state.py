"""Everything a learner needs to go on as if it had never stopped, as named tensors: networks, optimiser, step
size, running statistics, random state; and how its other processes take that over."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from rljob.algorithms.trunk import STATISTICS
from rljob.checkpoints.saved_policy import acting_state
from rljob.checkpoints.store import Checkpoint, CheckpointProblem
from rljob.learner.optim.update_trial import network_tensors
from rljob.learner.optim.updater import AnyUpdater
from rljob.strict_json import dumps

log = logging.getLogger(__name__)


def capture(updater: AnyUpdater) -> dict[str, Tensor]:
    """Copies of the updater's tensors, on the CPU: training may go on while they are written."""
    tensors = network_tensors(updater)
    for index, _ in enumerate(updater.online.parameters()):
        tensors |= {f"optimizer.{index}.{name}": value for name, value in updater.optimizer.state(index).items()}
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    if updater.loss_scale is not None:
        copies |= {
            f"loss_scale.{name}": value.to("cpu", copy=True) for name, value in updater.loss_scale.state().items()
        }
    copies |= statistics(updater)
    copies["random.torch"] = torch.get_rng_state()
    if updater.device.type == "cuda":
        copies["random.cuda"] = torch.cuda.get_rng_state(updater.device)
    copies["step_size.share"] = torch.tensor(updater.learning_rate.scale, dtype=torch.float64)
    return copies


def packed(updater: AnyUpdater, manifest: Mapping[str, Any]) -> bytes:
    """What ``capture`` gives, with a manifest, for the other processes of this learner, each with random numbers of its own."""
    tensors = {name: tensor for name, tensor in capture(updater).items() if not name.startswith("random.")}
    return dumps(manifest).encode() + b"\0" + safetensors.torch.save(tensors)


def unpacked(content: bytes) -> Checkpoint:
    """What ``packed`` gave, as ``restore`` takes it."""
    manifest, _, tensors = content.partition(b"\0")
    return Checkpoint(Path("rank 0"), json.loads(manifest), safetensors.torch.load(tensors))


def statistics(updater: AnyUpdater) -> dict[str, Tensor]:
    """Copies of the running statistics behind the networks' buffers, on the CPU; none where they normalise nothing."""
    kept = {} if updater.normalizer is None else updater.normalizer.state()
    return {f"statistics.{name}": tensor.to("cpu", copy=True) for name, tensor in kept.items()}


def restore(updater: AnyUpdater, checkpoint: Checkpoint, updates: int) -> None:
    """Put the updater where ``capture`` found it, with so many updates made. Nothing is changed unless every network fits.

    A run that began to keep evaluation weights after the checkpoint starts their average from the online network, and one whose
    optimiser was changed starts its moments anew. Raises CheckpointProblem when the checkpoint is of another network.
    """
    start_from(updater, checkpoint)
    updater.updates = updates
    if "random.torch" in checkpoint.tensors:
        torch.set_rng_state(checkpoint.tensors["random.torch"])
    if "random.cuda" in checkpoint.tensors and updater.device.type == "cuda":
        torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], updater.device)


def start_from(updater: AnyUpdater, checkpoint: Checkpoint) -> None:
    """Give the updater the networks, optimiser and step size of another run's checkpoint; it counts its own updates, and draws
    its own random numbers.

    From ``best``, which holds one network and no more, every network begins as that one. Raises CheckpointProblem as ``restore``.
    """
    loads: list[tuple[nn.Module, dict[str, Tensor]]] = []
    only = checkpoint.section("policy")
    for section, module in updater.networks().items():
        state = checkpoint.section(section) or only
        if section == "evaluation" and not checkpoint.section(section):
            state = acting_state(checkpoint.section("online"), updater.acting_name) or only
        own = module.state_dict()
        if state is only and section != "evaluation" and updater.acting_name:  # what only learning needs begins anew
            state = own | {f"{updater.acting_name}.{name}": tensor for name, tensor in only.items()}
        # Weights of before the job normalised lack these: they begin as in a new network.
        state = {name: own[name] for name in own if name.rpartition(".")[2] in STATISTICS} | state
        wrong = sorted(name for name in own.keys() | state.keys() if _shape(own, name) != _shape(state, name))
        if wrong:
            differences = ", ".join(
                f"{name} (expected {_shape(own, name)}, came {_shape(state, name)})" for name in wrong[:4]
            )
            raise CheckpointProblem(
                f"{checkpoint.path} is of another network than this job's: {section} differs in {differences}; go on with the "
                "network it was trained with, or start without it in a new run folder"
            )
        loads.append((module, state))
    for module, state in loads:
        module.load_state_dict(state)
    _restore_optimizer(updater, checkpoint)
    if updater.normalizer is not None and not updater.normalizer.load(checkpoint.section("statistics")):
        log.warning(
            "%s has no running statistics for this job's normalisation: they start from zero", checkpoint.path.name
        )
    updater.forget_under_way()
    if "step_size.share" in checkpoint.tensors:
        updater.learning_rate.scale = float(checkpoint.tensors["step_size.share"])
    if updater.loss_scale is not None and (scale := checkpoint.section("loss_scale")):
        updater.loss_scale.load(scale)


def _shape(state: Mapping[str, Tensor], name: str) -> str:
    """The shape of a tensor in words."""
    return "x".join(map(str, state[name].shape)) or "a number" if name in state else "nothing"


def _restore_optimizer(updater: AnyUpdater, checkpoint: Checkpoint) -> None:
    """Restore the optimiser's state; where another one wrote the checkpoint, it begins anew and the log says so."""
    saved = [checkpoint.section(f"optimizer.{index}") for index, _ in enumerate(updater.online.parameters())]
    fits = (each.keys() == updater.optimizer.state_names(index) for index, each in enumerate(saved) if each)
    if not all(fits):
        kept = sorted(set().union(*saved) - {"step"})
        log.warning(
            "%s was written by another optimiser than %s (it kept %s): its moments start from zero",
            checkpoint.path.name,
            updater.params.optimizer,
            ", ".join(kept),
        )
        return
    for index, each in enumerate(saved):
        if each:
            updater.optimizer.load(index, each)
