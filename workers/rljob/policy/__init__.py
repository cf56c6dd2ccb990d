"""A trained policy outside of its run: in Python (``load_policy``), and exported for programs without rljob (``export``)."""

import os
from typing import TYPE_CHECKING

from rljob.data_plane import require_data_plane

if TYPE_CHECKING:
    from rljob.policy.trained import Policy


def load_policy(source: str | os.PathLike[str]) -> "Policy":
    """The policy of a run or of a checkpoint: a folder, or ``s3://bucket/prefix``.

    A run, or a folder of checkpoints, gives the best judged policy, else the newest valid checkpoint. Where the run kept a
    moving average of its weights for evaluations, that is the policy.

    Raises CheckpointProblem (a ValueError) where there is none or it can't be used, StorageProblem where a bucket can't be asked,
    and UsageError where the packages of the extra ``[worker]`` are missing; each in one sentence.
    """
    require_data_plane("rljob.load_policy")
    from rljob.policy.trained import load

    return load(source)
