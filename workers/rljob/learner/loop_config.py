"""What the learner's loop is told by the job, and how it ends where the job says so."""

from dataclasses import dataclass

from rljob.api.exit_codes import EXIT_NON_FINITE_LOSS, EXIT_SUPERSEDED
from rljob.checkpoints.location import Location
from rljob.errors import CommandRefused


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
