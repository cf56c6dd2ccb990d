"""What happens in a role while it is profiled: its stages as spans, and the way of each segment of experience from role to role.

``recording`` is None except while a profile is under way, so all that a role pays otherwise is a look at it. It is replaced every
second, and a stage that begins in one second and ends in the next is in the later one. Times are ``time.perf_counter_ns``, which
all processes of one Linux kernel share.
"""

import sys
import threading
from time import perf_counter_ns
from typing import Any, Final

MOST: Final = 4000
"""Spans and steps of flows in one second; a loop of 30,000 stages a second would else send a megabyte of them each second."""
_ROOM: Final = 500
"""Beside them, for the stages in which flows were recorded and that have not ended then."""


class Recording:
    """What was recorded; any thread may add to it.

    ``spans``: (thread, name, begin, end). ``flows``: (thread, ``s``, ``t`` or ``f`` for the first, a middle and the last step of
    what ``origin`` names, origin, time). ``left_out`` counts the spans beyond ``MOST``. ``ranges``:
    ``torch.cuda.nvtx``, or None in a process that does not compute on a CUDA device.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[int, str, int, int]] = []
        self.flows: list[tuple[int, str, str, int]] = []
        self.left_out = 0
        torch = sys.modules.get("torch")
        on_device = torch is not None and torch.cuda.is_initialized()
        self.ranges: Any = torch.cuda.nvtx if torch is not None and on_device else None

    def span(self, name: str, began_ns: int, ended_ns: int) -> None:
        """The calling thread did ``name`` from one time to the other."""
        if len(self.spans) < MOST + _ROOM:
            self.spans.append((threading.get_ident(), name, began_ns, ended_ns))
        else:
            self.left_out += 1

    def flow(self, step: str, origin: str, name: str = "", began_ns: int = 0) -> None:
        """The segment ``origin`` is here. An arrow needs a span to end at: it is the stage that runs, or with ``name`` one of its
        own, from ``began_ns`` until now."""
        now = perf_counter_ns()
        if name:
            self.span(name, began_ns, now)
        if len(self.spans) < MOST and len(self.flows) < MOST:
            self.flows.append((threading.get_ident(), step, origin, began_ns or now))


recording: Recording | None = None
