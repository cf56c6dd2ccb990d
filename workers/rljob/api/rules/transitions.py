"""Rules of a change: what may never change, and what may only change while the job is suspended."""

from __future__ import annotations

from collections.abc import Sequence

from rljob.api.job import RLJobSpec
from rljob.api.parameters import NamedParameter
from rljob.api.rule import TransitionRule


def _values(parameters: Sequence[NamedParameter]) -> dict[str, str]:
    """By name: the order of a list that is keyed by name says nothing."""
    return {item.name: item.value for item in parameters}


def _same_environment(old: RLJobSpec, new: RLJobSpec) -> bool:
    before, after = old.environment, new.environment
    return before.id == after.id and _values(before.parameters) == _values(after.parameters)


def _same_shards(old: RLJobSpec, new: RLJobSpec) -> bool:
    return old.replay is None or new.replay is None or old.replay.shards == new.replay.shards


_NEW_JOB = "it cannot be changed; make a new job"
_SUSPEND_FIRST = (
    "allowed to change only while the job is suspended; set spec.suspend: true first, and resume afterwards"
)

TRANSITIONS: tuple[TransitionRule, ...] = (
    TransitionRule(
        "same_algorithm",
        "algorithm.name",
        "self.algorithm.name == oldSelf.algorithm.name",
        f"{_NEW_JOB}: checkpoints of one algorithm mean nothing to another",
        lambda old, new: old.algorithm.name == new.algorithm.name,
    ),
    TransitionRule(
        "same_controller",
        "managedBy",
        "self.managedBy == oldSelf.managedBy",
        f"{_NEW_JOB}: two controllers would act on one set of pods",
        lambda old, new: old.managed_by == new.managed_by,
    ),
    TransitionRule(
        "same_environment",
        "environment",
        "self.environment == oldSelf.environment",
        f"{_NEW_JOB}: what was learned and stored belongs to the environment",
        _same_environment,
    ),
    TransitionRule(
        "same_shards",
        "replay.shards",
        "!has(self.replay) || !has(oldSelf.replay) || self.replay.shards == oldSelf.replay.shards",
        f"{_NEW_JOB}: each shard owns its part of the stored experience",
        _same_shards,
    ),
    TransitionRule(
        "image_while_suspended",
        "image",
        "oldSelf.suspend || self.image == oldSelf.image",
        _SUSPEND_FIRST,
        lambda old, new: old.suspend or old.image == new.image,
    ),
    TransitionRule(
        "parameters_while_suspended",
        "algorithm.parameters",
        "oldSelf.suspend || self.algorithm.parameters == oldSelf.algorithm.parameters",
        _SUSPEND_FIRST,
        lambda old, new: old.suspend or _values(old.algorithm.parameters) == _values(new.algorithm.parameters),
    ),
)
