"""A stand-in for CUDA graphs where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

from rljob.learner.optim.captured_update import WARM_UPS, Learned


class ByCalling:
    """Replays by calling the function again, and puts what it gives where it gave it first, as a graph does.

    It shows what surrounds a graph: the copies into its inputs, the check, the choice, the state put back. It can't show what a
    real capture shows: that nothing in an update waits for the device, and that no number of the host's is frozen in it.
    """

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, work: Callable[[], Learned]) -> tuple[Learned, Callable[[], object]]:
        for _ in range(WARM_UPS):
            work()
        given = Learned(*(None if tensor is None else tensor.clone() for tensor in work()))  # type: ignore[arg-type]

        def replay() -> None:
            self.replays += 1
            for own, new in zip(given, work(), strict=True):
                if own is not None and new is not None:
                    own.copy_(new)

        return given, replay
