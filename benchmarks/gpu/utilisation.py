"""Step 6, a minute: the learner's own figures of its GPU against ``nvidia-smi``'s, under three loads.

Idle, updates with a pause after each, and updates without one. Once a second the learner's reading code is asked; beside it
``nvidia-smi`` is, for the same numbers. A line a load: the means of both, and the largest difference of each.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import threading
import time
from collections.abc import Callable

import torch
from rljob.algorithms.compute import Compute
from rljob.learner.device import Gpu

from benchmarks.gpu.bench import begin, options
from benchmarks.gpu.learner_alone import batch_of, learner, learners

ASKED = {
    "utilization": ("utilization.gpu", 0.01),
    "memory_utilization": ("utilization.memory", 0.01),
    "memory_used_bytes": ("memory.used", 2.0**20),
    "power_watts": ("power.draw.instant", 1.0),
}
"""Each of our figures -> nvidia-smi's name for it, and one of its units in ours."""


def main() -> None:
    arguments = options(__doc__, 60.0).parse_args()
    figures = begin("utilisation", arguments, packages=["pynvml"], programs=["nvidia-smi"])
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    name = "ApeXDQN"
    frames, params = learners(tiny=not cuda)[name]
    each = learner(name, frames, params, Compute("bf16", channels_last=True) if cuda else Compute(), device)
    batch = batch_of(name, frames, params, device)
    gpu = Gpu(device)

    def update() -> None:
        list(each.updates_from(batch, 0))
        if cuda:
            torch.cuda.synchronize()

    def at_times() -> None:
        update()
        time.sleep(0.02)

    loads: dict[str, Callable[[], None]] = {"idle": lambda: time.sleep(0.05), "at times": at_times, "always": update}
    for load, work in loads.items():
        with figures.trying("load", load=load):
            ours, theirs = watched(gpu, work, arguments.seconds / len(loads))
            shared = sorted(ours[0].keys() & theirs[0].keys()) if ours and theirs else []
            apart = {key: max(abs(a[key] - b[key]) for a, b in zip(ours, theirs, strict=False)) for key in shared}
            figures.write("load", load=load, ours=means(ours), nvidia_smi=means(theirs), largest_difference=apart)
    gpu.close()


def watched(
    gpu: Gpu, work: Callable[[], None], seconds: float
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """What both say, once a second, while ``work`` is done again and again."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            work()

    worker = threading.Thread(target=busy, name="load")
    worker.start()
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(min(1.0, seconds))
            ours.append(gpu.figures())
            if shutil.which("nvidia-smi"):
                theirs.append(nvidia_smi())
    finally:
        stop.set()
        worker.join()
    return ours, theirs


def nvidia_smi() -> dict[str, float]:
    """What the driver's own program says now, under our names; what it does not know is left out."""
    query = f"--query-gpu={','.join(theirs for theirs, _ in ASKED.values())}"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    row = next(csv.reader(done.stdout.splitlines()))
    found = {}
    for (ours, (_, unit)), text in zip(ASKED.items(), row, strict=True):
        try:
            found[ours] = float(text) * unit
        except ValueError:  # "[N/A]"
            continue
    return found


def means(looks: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each figure over those looks that have it."""
    names = {name for look in looks for name in look}
    told = {name: [look[name] for look in looks if name in look] for name in sorted(names)}
    return {name: float(f"{sum(values) / len(values):.4g}") for name, values in told.items()}


if __name__ == "__main__":
    main()
