"""How busy and how full the learner's GPU is."""

from __future__ import annotations

import importlib.util

import torch


def gpu_figures(device: torch.device) -> dict[str, float]:
    """``memory_used_bytes`` (by all processes), ``allocated_bytes`` (tensors of this one), and ``utilization`` 0..1.

    Empty on a CPU. The utilisation needs the package ``nvidia-ml-py``, which CUDA builds of torch do not bring, and is left out
    without it; how much of each multiprocessor is active only a profiler or DCGM can tell.
    """
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    figures = {
        "memory_used_bytes": float(total - free),
        "allocated_bytes": float(torch.cuda.memory_allocated(device)),
    }
    if importlib.util.find_spec("pynvml") is not None:
        figures["utilization"] = torch.cuda.utilization(device) / 100.0
    return figures
