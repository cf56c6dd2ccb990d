"""What is wanted of a job: all that `decide` is given beside the job's status, what is observed and the time."""

from dataclasses import dataclass

from rljob.api import RLJob
from rljob.api.conditions import Reason
from rljob.api.controller_memory import RenderingMemory
from rljob.api.live import read_at_start

CHECKPOINT_ANNOTATION = "rljob.dev/checkpoint-requested-at"
"""A user's request for a checkpoint: any new text in it, by custom the time of the request."""

STOP_ANNOTATION = "rljob.dev/stop-requested-at"
"""A user's request that a cluster's job leaves in good order and stays stopped as long as this is there, whatever its text."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The newest spec can't be run.

    ``blocking`` is False where an older good spec is in force meanwhile (it is then the one given to `decide`).
    """

    reason: Reason
    message: str
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The stored object as the controller takes it.

    Attributes:
        job: the spec in force.
        generation: metadata.generation of what is stored, whether it is in force or refused.
        checkpoint_requested_at: the text of `CHECKPOINT_ANNOTATION`, empty without one.
        refusal: why the newest spec can't be run; None where it is the one in force.
        written: digest of what the user wrote of the fields that roles read when they start; empty where only the spec in force
            is known.
        rendering: what pods of a job that starts now are made with; None where nothing is rendered.
        scaled_by_hpa: a HorizontalPodAutoscaler, which KEDA makes too, has set ``actors.replicas`` last.
    """

    job: RLJob
    generation: int = 1
    checkpoint_requested_at: str = ""
    refusal: Refusal | None = None
    written: str = ""
    rendering: RenderingMemory | None = None
    scaled_by_hpa: bool = False

    @property
    def blocked(self) -> bool:
        """Whether no spec is known that the job could be run by."""
        return self.refusal is not None and self.refusal.blocking

    @property
    def suspends(self) -> bool:
        """Whether nothing of the job shall run, though it is not over."""
        return self.job.spec.suspend

    @property
    def read_at_start(self) -> str:
        """Digest of what roles read when they start. One of what the user wrote does not change with presets and defaults."""
        return self.written or read_at_start(self.job.spec)


@dataclass(frozen=True, slots=True)
class Session:
    """A controller that lives no longer than its terminal (`rljob run`): how long it has run, its bound, Ctrl-C. On a cluster
    there is one, interrupted, for a job that its user has stopped."""

    elapsed_seconds: float = 0.0
    max_seconds: float | None = None
    interrupted: bool = False
