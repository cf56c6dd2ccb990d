"""Everything a learner needs to go on as if it had never stopped, as named tensors: networks, optimiser, step
size, random state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rljob.learner.checkpoint import Checkpoint, CheckpointProblem
from rljob.learner.update import Updater


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

    A run that began to keep evaluation weights after the checkpoint starts their average from the online network. Raises
    CheckpointProblem when the checkpoint is of another network.
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
    for index, _ in enumerate(updater.online.parameters()):
        if saved := checkpoint.section(f"optimizer.{index}"):
            updater.descent.load(index, saved)
    updater.updates = updates
    if "random.torch" in checkpoint.tensors:
        torch.set_rng_state(checkpoint.tensors["random.torch"])
    if "step_size.share" in checkpoint.tensors:
        updater.step_size.share = float(checkpoint.tensors["step_size.share"])
