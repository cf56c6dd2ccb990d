"""Where the learner's mirror of the replay lives: in the memory of its device where it fits beside the updates, else in RAM."""

import logging
from dataclasses import dataclass
from typing import Final

import torch

from rljob.api.memory_estimate import two_digits
from rljob.errors import first_line
from rljob.experience import SegmentLayout
from rljob.learner.device_mirror import DeviceMirror
from rljob.learner.optim import readback

log = logging.getLogger(__name__)

_GIB: Final = 1 << 30
_SMALLEST_MARGIN_BYTES: Final = 1 * _GIB
_MARGIN_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class MirrorSize:
    """What the frames of all shards' mirrors take on a device, where memory is taken for every slot when the mirror is made.

    ``slots``: chunks that a shard's table has room for. ``capacity``: transitions over all shards, for advice."""

    layout: SegmentLayout
    slots: int
    shards: int
    capacity: int

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        return self.shards * self.slots * self.layout.max_frames * self.layout.row_bytes


@dataclass(frozen=True, slots=True)
class MirrorPlace:
    """``told``: where the mirror is and why, for people."""

    on_device: bool
    told: str


def margin_bytes(layout: SegmentLayout, batch_size: int, prefetch: int, total_bytes: int) -> int:
    """What a mirror leaves free on a device of ``total_bytes``, once torch holds what the gradient of an update needs: a tenth,
    1 GiB at least, for the optimiser and for others on the device; and the batches that may lie there at once."""
    batches = prefetch + 2 + readback.DEPTH
    stacks = 2 * batch_size * layout.stack * layout.row_bytes
    return max(_SMALLEST_MARGIN_BYTES, int(total_bytes * _MARGIN_SHARE)) + batches * stacks


def place(size: MirrorSize, free_bytes: int, margin_bytes: int) -> MirrorPlace:
    """The device, where ``size`` fits into what is free there less the margin."""
    wanted, allowed = size.nbytes, max(0, free_bytes - margin_bytes)
    free = f"of the GPU's {_gib(free_bytes)} that are free {_gib(min(margin_bytes, free_bytes))} are left for updates"
    if wanted <= allowed:
        return MirrorPlace(True, f"on the GPU: it takes {_gib(wanted)}; {free}")
    fits = int(size.capacity * (allowed / wanted))
    advice = f"; a replay.capacity of about {two_digits(fits):,} would fit" if fits >= size.layout.length else ""
    return MirrorPlace(False, f"in RAM: it would take {_gib(wanted)}, and {free}{advice}")


def mirror_for(
    size: MirrorSize, batch_size: int, prefetch: int, device: torch.device
) -> tuple[DeviceMirror | None, MirrorPlace]:
    """The mirror on ``device``, or None where it belongs into RAM, and why. To be asked once torch holds on the device what the
    gradient of an update needs (``precision.choose`` has tried one)."""
    if device.type == "cpu":
        return None, MirrorPlace(False, "in RAM, as the learner computes on the CPU")
    if len(size.layout.observation) > 1:
        return None, MirrorPlace(False, "in RAM, as observations have more than one column")
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    chosen = place(size, free, margin_bytes(size.layout, batch_size, prefetch, total))
    mirror = None
    if chosen.on_device:
        try:
            mirror = DeviceMirror(size.layout, size.slots, size.shards, device)
        except torch.OutOfMemoryError as error:  # another process was quicker
            chosen = MirrorPlace(False, f"in RAM: the GPU did not give {_gib(size.nbytes)} ({first_line(error)})")
    log.info("the mirror of the replay is %s", chosen.told)
    return mirror, chosen


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"
