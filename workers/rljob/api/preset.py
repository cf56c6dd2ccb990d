"""What a preset is: a whole job to start from, written as in a manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OF_ITS_ENVIRONMENT = (
    "environment",
    "algorithm.network",
    "evaluator.triggerReturn",
    "successPolicy.targetReturn",
    "activeDeadlineSeconds",
)
"""What a preset says below ``spec`` about the environment that it names: how that is seen, by which kind of network, which return
is good there and after how long it should be reached. Beside another environment it does not count."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A job without what only its user can know: its name, its place in a cluster and its number of actors.

    ``actors.replicas`` is never part of it: ``/scale``, ``kubectl scale`` and autoscalers read that from the stored job.
    """

    name: str
    purpose: str
    """What it is for, in one line."""
    expected: str
    """The score that it reaches, and where that was measured."""
    time: str
    """How long that takes, and on what."""
    frames: str
    """Raw frames that are played until then."""
    source: str
    """Where its values come from."""
    spec: Mapping[str, Any]
    """Part of a manifest's spec; what is written beside the preset wins."""
    raw_frames_to_target: int | None = None
    """About how many of them that was in the median of the runs that were measured; None where none were."""
    example: str = ""
    """An environment to try it with, where it names none."""
    of_one_environment: bool = True
    """Whether `OF_ITS_ENVIRONMENT` was found for the one that it names. What was published for many games counts for each."""

    @property
    def algorithm_type(self) -> str:
        """The type of its algorithm."""
        return str(self.spec["algorithm"]["type"])

    @property
    def environment_id(self) -> str:
        """The environment that it names; empty where it names none."""
        return str(self.spec.get("environment", {}).get("id", ""))

    def is_whole_for(self, environment_id: Any) -> bool:
        """Whether all of it counts beside the environment that a manifest names: where that is its own, with or without the
        module that registers it, where none is named, and where it is of no single one."""
        named = environment_id.rpartition(":")[2] if isinstance(environment_id, str) else self.environment_id
        return named == self.environment_id or not self.of_one_environment
