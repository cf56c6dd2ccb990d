"""A job as its user sees it: what is stored, what the controller wrote, and what runs. Views are made of it, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob.api.status import RLJobStatus

UNATTENDED = "Unattended"
"""State of a run whose processes go on without a controller."""
LOST = "Lost"
"""State of a run that neither has ended nor has anything left: its machine was restarted, or all of it was killed."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One look at a run.

    Attributes:
        document: what ``job.yaml`` holds, the job as written; empty where it can't be read.
        status: the newest status; a new one where none was written yet.
        controller: process id of its controller, None where none runs.
        running: process ids of its members that run, by name.
        figures: the learner's own status document; empty where it does not answer.
        servers: the same of each inference server of its own that runs, by name.
    """

    run_dir: Path
    document: Mapping[str, Any]
    status: RLJobStatus
    controller: int | None
    running: Mapping[str, int]
    figures: Mapping[str, Any] = field(default_factory=dict)
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        """The job's name, or the folder's where that is unknown."""
        metadata = self.document.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else self.run_dir.name

    @property
    def state(self) -> str:
        """The job's state in one word, as the controller says; or what it is without one."""
        if self.controller is None and not self.status.finished:
            if self.running:
                return UNATTENDED
            if self.status.state != "SessionEnded":
                return LOST
        return self.status.state or "Starting"

    def active_seconds(self, now: float) -> float:
        """How long the run has been at work until ``now`` (seconds since 1970): without suspensions, and without the time
        after its end or after whatever ended it unseen."""
        memory = self.status.controller
        if memory.active_since is None:
            return memory.spent_active_seconds
        if self.controller is None and not self.running:
            return float(self.status.active_seconds)
        return memory.spent_active_seconds + max(0.0, now - memory.active_since)
