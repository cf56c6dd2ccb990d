"""What the steps share: options, what must be there, and figures that are safe as soon as they are known."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rljob.learner.device import Gpu, why_no_cuda

from benchmarks.common import machine

MISSING = 3
"""Exit code where something that a step needs is not there."""


class Figures:
    """Writes one JSON line a figure to the terminal and, at once, to the end of ``file``: a step may be ended at any moment."""

    def __init__(self, step: str, file: Path | None) -> None:
        self._step, self._file = step, file
        self._started = time.monotonic()
        self.failures = 0

    def write(self, figure: str, **values: Any) -> None:
        """One figure, and whatever it depends on; numbers are rounded to four significant digits."""
        seconds = round(time.monotonic() - self._started, 1)
        rounded = {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in values.items()}
        line = json.dumps({"step": self._step, "figure": figure, **rounded, "at_seconds": seconds})
        print(line, flush=True)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def trying(self, figure: str, **values: Any) -> Iterator[None]:
        """What goes wrong inside is a line of its own, and the step goes on with what comes next."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - minutes on such a machine are few: one figure must not cost the others
            self.failures += 1
            text = str(error).strip().splitlines()
            self.write(figure, **values, failed=f"{type(error).__name__}: {text[0][:300] if text else ''}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def options(doc: str | None, seconds: float) -> argparse.ArgumentParser:
    """The options that every step has. ``seconds``: that it takes on a GPU, unless told otherwise."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a tiny form that tries the way")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"for the whole step, about (default {seconds:g})"
    )
    parser.add_argument("--out", type=Path, help="file that figures are added to, a JSON line each")
    parser.add_argument("--commit", default="", help="of the tree, where git cannot be asked")
    return parser


def begin(
    step: str, arguments: argparse.Namespace, *, packages: Sequence[str] = (), programs: Sequence[str] = ()
) -> Figures:
    """Checks what the step needs and says what is missing, all of it, with exit code 3; then notes what it runs on."""
    figures = Figures(step, arguments.out)
    missing = [f"package {name}" for name in packages if importlib.util.find_spec(name) is None]
    if arguments.device == "cuda":
        missing += [f"program {name}" for name in programs if shutil.which(name) is None]
        if reason := why_no_cuda():
            missing.append(f"a CUDA device: {reason}")
    if missing:
        figures.write("missing", what=missing)
        sys.exit(MISSING)
    gpu = Gpu(torch.device(arguments.device))
    found = machine()
    found["commit"] = arguments.commit or found["commit"]
    figures.write("machine", device_kind=arguments.device, **gpu.facts, cuda=torch.version.cuda, **found)
    gpu.close()
    return figures


def rate(call: Callable[[], object], seconds: float, device: torch.device, *, warm_up: int = 3) -> float:
    """Calls a second, of as many as ``seconds`` allow; the device has done all of them before the time is read."""

    def finished() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(warm_up):
        call()
    finished()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(5):
            call()
        calls += 5
        if device.type == "cuda" and calls % 50 == 0:
            finished()  # a host that ran far ahead would count what has not been done
    finished()
    return calls / (time.perf_counter() - start)
