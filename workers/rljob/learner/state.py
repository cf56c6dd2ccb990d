"""Everything a learner needs to go on as if it had never stopped, as named tensors: networks, optimiser, step
size, random state."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from rljob.learner.checkpoint import Checkpoint, CheckpointProblem
from rljob.learner.update import Updater

log = logging.getLogger(__name__)


def capture(updater: Updater) -> dict[str, Tensor]:
    """Copies of the updater's tensors, on the CPU: training may go on while they are written."""
    tensors: dict[str, Tensor] = {}
    for section, module in updater.networks().items():
        tensors |= {f"{section}.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, _ in enumerate(updater.online.parameters()):
        tensors |= {f"optimizer.{index}.{name}": value for name, value in updater.descent.state(index).items()}
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    copies["random.torch"] = torch.get_rng_state()
    copies["step_size.share"] = torch.tensor(updater.step_size.share, dtype=torch.float64)
    return copies


def restore(updater: Updater, checkpoint: Checkpoint, updates: int) -> None:
    """Put the updater where ``capture`` found it. Nothing is changed unless every network fits.

    A run that began to keep evaluation weights after the checkpoint starts their average from the online network, and one whose
    optimiser was changed starts its moments anew. Raises CheckpointProblem when the checkpoint is of another network.
    """
    loads: list[tuple[nn.Module, dict[str, Tensor]]] = []
    for section, module in updater.networks().items():
        state = checkpoint.section(section) or (checkpoint.section("online") if section == "evaluation" else {})
        own = module.state_dict()
        wrong = sorted(set(own) ^ set(state)) or [name for name in own if own[name].shape != state[name].shape]
        if wrong:
            raise CheckpointProblem(
                f"{checkpoint.path} is of another network than this job's: {section} differs in {', '.join(wrong[:4])}; "
                "resume with the manifest it was trained with, or start a new run folder"
            )
        loads.append((module, state))
    for module, state in loads:
        module.load_state_dict(state)
    _restore_optimizer(updater, checkpoint)
    updater.updates = updates
    if "random.torch" in checkpoint.tensors:
        torch.set_rng_state(checkpoint.tensors["random.torch"])
    if "step_size.share" in checkpoint.tensors:
        updater.step_size.share = float(checkpoint.tensors["step_size.share"])


def _restore_optimizer(updater: Updater, checkpoint: Checkpoint) -> None:
    """Give the optimiser what it remembered; where another one wrote the checkpoint, it begins anew and the log says so."""
    saved = [checkpoint.section(f"optimizer.{index}") for index, _ in enumerate(updater.online.parameters())]
    others = {name for each in saved if each for name in each.keys() ^ updater.descent.remembered}
    if others:
        kept = sorted(set().union(*saved) - {"step"})
        log.warning(
            "%s was written by another optimiser than %s (it kept %s): its moments begin anew",
            checkpoint.path.name,
            updater.params.optimizer,
            ", ".join(kept),
        )
        return
    for index, each in enumerate(saved):
        if each:
            updater.descent.load(index, each)
