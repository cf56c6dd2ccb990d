"""What the manifest knows of a built-in algorithm: all of it is declared in the algorithm's folder, ``rljob.algorithms.NAME``.

Among it its presets: whole jobs to start from, written as in a manifest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from rljob.api.parameters import LearnerParameterSet

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


Field = tuple[type[BaseModel], str]
"""A field of a section, by its Python name."""


class Computed(NamedTuple):
    """A default that follows from other fields: in words, and as a function of the job's `RLJobSpec`."""

    words: str
    value: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A built-in algorithm.

    Attributes:
        name: ``spec.algorithm.type``, and the class in its ``loss.py``.
        block: the field below ``spec.algorithm`` of what it alone has.
        about: what the block holds, with the publication.
        parameters: all that it is set by, shared parameters too.
        networks: its networks by name, and the least height and width that each sees (`rljob.api.networks`); none where
            ``network`` is no parameter of it.
        takes: as ``rljob.algorithms.base.Algorithm.takes``.
        from_replay: it learns from transitions, which spec.replay holds; else from unrolls.
        elsewhere: what others call it or something like it.
        defaults: fields beside its parameters whose default is another one with it, or that follow from others with it alone
            (`rljob.api.effective`): a value, or what it follows from.
        presets: jobs that it learns.
        in_turns: fields, by path, with which one actor and the learner wait for each other, so that a run can be repeated; none
            where they can't.
    """

    name: str
    block: str
    about: str
    parameters: type[LearnerParameterSet]
    networks: Mapping[str, int] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()
    from_replay: bool = False
    elsewhere: tuple[str, ...] = ()
    defaults: Mapping[Field, Any] = field(default_factory=dict)
    presets: tuple[Preset, ...] = ()
    in_turns: Mapping[str, Any] = field(default_factory=dict)
