"""Where the training loop gets its batches: a replay service, or the learner's own queue of unrolls."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rljob.api.job import RLJobSpec
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
    """``ReplayClient`` or ``UnrollQueue``. Every batch that ``next`` gives is handed back once, by ``give_back`` (learned
    from) or ``pass_over`` (only read). ``needs_weights_first``: actors without weights make nothing worth learning from."""

    needs_weights_first: bool

    @property
    def ready_batches(self) -> int: ...
    @property
    def resubscriptions(self) -> int: ...
    def next(self, timeout_seconds: float) -> Any: ...
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
