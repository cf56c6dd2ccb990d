"""The device that the learner computes on: what the job asks for, what exists, what happens where the two differ, or where its
memory does not suffice; and how the C library keeps what an update frees."""

import ctypes
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rljob.api.roles import Accelerator
from rljob.errors import first_line
from rljob.threads import ThreadEnded

log = logging.getLogger(__name__)


class DeviceProblem(Exception):
    """The job asks for a device, and there is none that works. ``str()`` says why, and what to write to go without."""


class DeviceMemoryProblem(Exception):
    """The device's memory has sufficed until now, and no longer does. ``str()`` says what to change."""


class DeviceMemory:
    """Says what to change where a device's memory does not suffice. ``sufficed`` is set once an update has fitted into it, in
    this life of the learner or in one before; ``mirror_bytes`` to what the mirror of the replay holds there."""

    def __init__(self, device: torch.device, params: Any) -> None:
        self._device, self._params = device, params
        self.sufficed = False
        self.mirror_bytes = 0

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raises, for torch's ``OutOfMemoryError`` inside, ``DeviceProblem`` where no update has fitted yet: it will not when it
        is tried again. Later it is ``DeviceMemoryProblem``: others use the device, and may not always do so. The same where that
        error has ended a thread of the learner's."""
        try:
            yield
        except (torch.OutOfMemoryError, ThreadEnded) as error:
            cause = error.__cause__ if isinstance(error, ThreadEnded) else error
            if not isinstance(cause, torch.OutOfMemoryError):
                raise
            problem = DeviceMemoryProblem if self.sufficed else DeviceProblem
            raise problem(self._what_to_change(first_line(cause))) from error

    def _what_to_change(self, said: str) -> str:
        held = ""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            others = max(0, total - free - torch.cuda.memory_reserved(self._device))
            name = torch.cuda.get_device_name(self._device)
            held = f" {name} with {total / 2**30:.1f} GiB, of which other processes hold {others / 2**30:.1f},"
        length = getattr(self._params, "unroll_length", None)
        unroll = "" if length is None else f" or unrollLength (now {length})"
        precision = self._params.precision
        halves = "" if precision in ("BF16", "FP16") else f" precision: BF16 (now {precision}) or"
        mirror = ""
        if self.mirror_bytes:
            mirror = f" a smaller replay.capacity (its mirror there takes {self.mirror_bytes / 2**30:.1f} GiB),"
        return (
            f"the learner's device{held} is out of memory: write a smaller batchSize (now {self._params.batch_size}){unroll},"
            f"{mirror}{halves} a smaller network, or give the learner a larger device; torch says: {said}"
        )


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


def devices(
    accelerator: Accelerator, *, on_cluster: bool, role: str = "learner", why_not: Callable[[], str] = why_no_cuda
) -> tuple[torch.device, ...]:
    """The devices that ``role`` may compute on by ``accelerator``, the one to be preferred first: with several it measures.
    ``why_not`` is asked only where one may be used.

    Raises DeviceProblem where one was asked for, none works, and the job may not go on without.
    """
    wanted = accelerator.count
    asks_for_none = wanted == 0 or (wanted is None and on_cluster)
    reason = f"{role}.accelerator.count asks for no device" if asks_for_none else why_not()
    if not reason:
        measures = accelerator.device == "Auto"
        whether = "on the faster of" if measures else "on"
        log.info(
            "the %s computes %s a %s device%s", role, whether, accelerator.resource_name, " and the CPU" * measures
        )
        return (torch.device("cuda"), *([torch.device("cpu")] if measures else []))
    if not wanted:
        log.info("%s: the %s computes on the CPU", reason, role)
        return (torch.device("cpu"),)
    where = "no such device works in this pod: " if on_cluster else ""
    missing = f"{role}.accelerator asks for {accelerator.resource_name}, but {where}{reason}"
    on_missing = accelerator.on_missing or ("Fail" if on_cluster else "UseCPU")
    if on_missing == "Fail":
        raise DeviceProblem(
            f"{missing}; to compute on the CPU, write {role}.accelerator.onMissing: UseCPU, or count: 0 to ask for none"
        )
    log.warning("%s; the %s computes on the CPU", missing, role)
    return (torch.device("cpu"),)


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's mallopt
_MIB = 1 << 20


def keep_freed_memory() -> None:
    """Let glibc keep what an update frees for the next one, at most 512 MiB. Does nothing with another C library.

    By default it returns memory to the kernel whenever it can, which then clears it anew, page by page: 2,500 page faults in a
    double-DQN update of 32 transitions and 15,000 in an IMPALA update of 640 steps, a sixth of the time of either.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)  # the most it allows
        mallopt(_M_TRIM_THRESHOLD, 512 * _MIB)
        mallopt(_M_TOP_PAD, 32 * _MIB)
