"""The policy of a run as a tar archive on standard output (``python -m rljob.checkpoints.send FOLDER``): for those who reach the
volume that it is on through a pod alone."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rljob.checkpoints.files import VerifiedFiles, is_checkpoint, stored, tensors_file, verify
from rljob.checkpoints.names import BEST, MANIFEST, CheckpointProblem, StorageProblem


def policy_files(directory: Path) -> VerifiedFiles:
    """The checkpoint that `rljob.load_policy` takes of a run's checkpoints: the best judged one, else the newest valid one.

    Raises CheckpointProblem where there is none, StorageProblem where the folder can't be read.
    """
    best = directory / BEST
    for path in [*((best,) if is_checkpoint(best) else ()), *stored(directory)]:
        try:
            return verify(path)
        except CheckpointProblem:
            continue
    raise CheckpointProblem(f"there is no valid checkpoint in {directory} yet")


def send(found: VerifiedFiles, out: BinaryIO) -> None:
    """Write the checkpoint's two files into ``out``, as they are named in its folder."""
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for name in (MANIFEST, tensors_file(found.path, found.manifest)):
            archive.add(Path(str(found.path)) / name, arcname=name)


def main(arguments: Sequence[str]) -> int:
    """The exit code; what is wrong stands on standard error in a sentence."""
    try:
        send(policy_files(Path(arguments[0])), sys.stdout.buffer)
    except (CheckpointProblem, StorageProblem, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
