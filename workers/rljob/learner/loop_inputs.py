"""What the training loop is given: its settings from the job, how it ends where the job says so, and where it gets batches.

Batches come from a replay service, or from the learner's own queue of unrolls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rljob.api.exit_codes import EXIT_NON_FINITE_LOSS, EXIT_SUPERSEDED
from rljob.api.job import RLJobSpec
from rljob.checkpoints.location import Location
from rljob.errors import CommandRefused
from rljob.ingest.shard_status import ShardStatus


class Ready(Protocol):
    """A batch on the device. ``policy_version`` int64, of any shape: the version that chose each action, 0 for none.
    ``origins``: while the process is profiled, the segments that are used for the first time."""

    @property
    def policy_version(self) -> NDArray[np.int64]: ...
    @property
    def origins(self) -> Sequence[str]: ...
    def wait(self) -> Any:
        """The batch itself, once its copy has been ordered before what the current stream does next."""
        ...

    def newest_frames(self) -> Tensor:
        """Frames [n, *F*] to measure a mean from."""
        ...


class BatchSource(Protocol):
    """``ReplayClient`` or ``UnrollQueue``, and ``InStep`` around one of them. Every batch that ``next`` gives is handed back
    once, by ``give_back`` (learned from) or ``pass_over`` (only read). ``needs_weights_first``: actors without weights make
    nothing worth learning from."""

    needs_weights_first: bool

    @property
    def ready_batches(self) -> int: ...
    @property
    def resubscriptions(self) -> int: ...
    def next(self, timeout_seconds: float) -> Any: ...
    def idle(self, seconds: float) -> None:
        """Training stands still for so long."""

    def close(self) -> None: ...
    def give_back(self, batch: Any) -> None: ...
    def pass_over(self, batch: Any) -> None: ...
    def learned(self, batch: Any, priority: NDArray[np.float32]) -> None: ...
    def published(self, epoch: int) -> None:
        """A version was published, in this epoch."""

    def follow(self, spec: RLJobSpec) -> None:
        """Live fields of the job have these values from now on."""

    @property
    def heard_epoch(self) -> int:
        """The latest epoch that the senders of experience know of; 0 for none."""

    def statuses(self) -> list[ShardStatus]: ...
    def section(self) -> dict[str, Any]:
        """What this source adds to the learner's status, by names of ``LearnerStatus``."""
        ...

    @property
    def counted(self) -> dict[str, Any] | None:
        """What a checkpoint must keep of the count of steps; None where the replay service counts, and keeps it."""
        ...

    @property
    def produced(self) -> float:
        """What all actors made, in the unit of this source: transitions inserted, or unrolls received."""
        ...

    @property
    def consumed(self) -> float:
        """What the learner has learned from: transitions as often as they were drawn, or unrolls."""
        ...


class NonFiniteLoss(CommandRefused):
    """The loss is not finite and the job's policy is to fail, or there is nothing to restore."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_NON_FINITE_LOSS)


class Superseded(CommandRefused):
    """A learner of a later epoch has begun, and does this one's work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_SUPERSEDED)


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """``batch_size``: transitions that a batch is learned from, repeats included. ``publish_interval`` in updates, 0 where each
    batch is followed by a version.
    ``on_non_finite``: Fail, RestoreAndContinue or Ignore (skip the update). ``started_from``: the other run that the job began
    from, for its checkpoints' manifests."""

    batch_size: int
    publish_interval: int
    checkpoint_interval_seconds: float
    checkpoint_directory: Location
    centred: bool = False
    on_non_finite: str = "Fail"
    started_from: str = ""
    record_seconds: float = 2.0
