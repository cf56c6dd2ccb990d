"""What a preset is: a whole job to start from, in the manifest's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """A job without what only its user can know: its name, its place in a cluster and its number of actors.

    ``actors.replicas`` is never part of it: ``/scale``, ``kubectl scale`` and autoscalers read that from the stored job.
    """

    name: str
    purpose: str
    """What it is for, in one line."""
    expected: str
    """The score that it reaches, and who measured it."""
    time: str
    """How long that takes, and on what."""
    frames: str
    """Raw frames that are played until then."""
    source: str
    """Where its values come from."""
    spec: Mapping[str, Any]
    """Part of a manifest's spec; what is written beside the preset wins."""

    @property
    def algorithm_type(self) -> str:
        """The type of its algorithm."""
        return str(self.spec["algorithm"]["type"])
