"""The device that the learner computes on: what the job asks for, what there is, and what happens where the two differ."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from rljob.api.roles import Accelerator
from rljob.errors import first_line

log = logging.getLogger(__name__)


class DeviceProblem(Exception):
    """The job asks for a device, and there is none that works. ``str()`` says why, and what to write to go without."""


def why_no_cuda() -> str:
    """Why torch cannot compute on a CUDA device here; empty where it can. It is tried, as a driver that is too old, or a device
    that this build of torch has no code for, shows only then."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of torch computes on CPUs only"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    try:
        (torch.ones(1, device="cuda") + 1).item()
    except RuntimeError as error:
        return f"torch finds a CUDA device and cannot compute on it ({first_line(error)})"
    return ""


def choose(accelerator: Accelerator, *, on_cluster: bool, why_not: Callable[[], str] = why_no_cuda) -> torch.device:
    """The device for ``accelerator``. ``why_not`` is asked only where one may be used.

    Raises DeviceProblem where one was asked for, there is none that works, and that is not to be passed over.
    """
    wanted = accelerator.count
    if wanted == 0 or (wanted is None and on_cluster):
        return torch.device("cpu")
    reason = why_not()
    if not reason:
        return torch.device("cuda")
    if wanted is None:
        log.info("%s: the learner computes on the CPU", reason)
        return torch.device("cpu")
    missing = f"learner.accelerator asks for {accelerator.resource_name}, but {reason}"
    on_missing = accelerator.on_missing or ("Fail" if on_cluster else "UseCPU")
    if on_missing == "Fail":
        raise DeviceProblem(
            f"{missing}; to compute on the CPU, write learner.accelerator.onMissing: UseCPU, or count: 0 to ask for none"
        )
    log.warning("%s; the learner computes on the CPU", missing)
    return torch.device("cpu")
