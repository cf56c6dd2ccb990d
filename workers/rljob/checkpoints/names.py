"""The names of checkpoints, their order, and the errors of a checkpoint or of the place that they are in."""

import re
from typing import Final, NamedTuple

FORMAT: Final = 1
TENSORS: Final = "tensors.safetensors"
MANIFEST: Final = "manifest.json"
BEST: Final = "best"
JUDGED: Final = "judged"
"""Of a run of an experiment: its best weights by the experiment's own games."""
SCORED: Final = ("scored-0", "scored-1")
"""Of a member of a population: the checkpoints that its newest scores are of, whole, for others to fork from."""

_CHECKPOINT: Final = re.compile(r"(?:epoch-([0-9]{1,18})-)?step-([0-9]{1,18})")
_CLAIM: Final = re.compile(r"epoch-([0-9]{1,18})")


class CheckpointProblem(ValueError):
    """A checkpoint that cannot be used or written; the message says which, why, and what would be right."""


class StorageProblem(Exception):
    """A place of checkpoints that cannot be read: it says nothing of whether there are any, so no learner may begin anew
    because of it. The message is one sentence without credentials."""


class StorageNotInstalled(StorageProblem):
    """The client for such a place is not installed, so trying again does not help."""


class Order(NamedTuple):
    """A checkpoint's place among those of its run: one of a later epoch is newer than any before it, whatever their numbers of
    updates."""

    epoch: int
    updates: int


def checkpoint_name(epoch: int, updates: int) -> str:
    """The name of the checkpoint that a learner of ``epoch`` writes after ``updates`` updates; names sort as their order does."""
    return f"epoch-{epoch:06d}-step-{updates:012d}"


def order(name: str) -> Order | None:
    """The place of a checkpoint by its name; None for what is none of a series, as ``best``. One without an epoch is older than
    all that have one."""
    found = _CHECKPOINT.fullmatch(name)
    return Order(int(found[1] or 0), int(found[2])) if found is not None else None


def is_checkpoint_name(name: str) -> bool:
    """Whether a checkpoint may have this name."""
    return order(name) is not None or name in (BEST, JUDGED, *SCORED)


def claim_name(epoch: int) -> str:
    """The name of the mark by which a learner takes an epoch for itself."""
    return f"epoch-{epoch:06d}"


def claimed(name: str) -> int | None:
    """The epoch that a mark takes; None for what is no mark."""
    found = _CLAIM.fullmatch(name)
    return int(found[1]) if found is not None else None


def newest_epoch(names: list[str]) -> int:
    """The latest epoch that is taken, or that has written a checkpoint; 0 where there is none."""
    written = (found.epoch for name in names if (found := order(name)) is not None)
    taken = (epoch for name in names if (epoch := claimed(name)) is not None)
    return max([*written, *taken], default=0)
