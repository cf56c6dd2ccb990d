"""The policy of a run on standard output (``python -m rljob.checkpoints.send FOLDER``): for those who reach the volume that it is
on through a pod alone. With the uid of a job its recording, and with its manifest's file, too, as its learner would keep it now.

First a line with the number of bytes, then that many bytes: of a tar archive, or of a recording. The process stays until its
reader has written a line: where a command in a pod ends before all of its output was read, the rest is lost, and the command
counts as successful.
"""

import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rljob.checkpoints.files import VerifiedFiles, policies, tensors_file, verify
from rljob.checkpoints.names import MANIFEST, CheckpointProblem, StorageProblem
from rljob.checkpoints.recording import kept, packed


def policy_files(directory: Path) -> VerifiedFiles:
    """The checkpoint that `rljob.load_policy` takes of a run's checkpoints: the best judged one, else the newest valid one.

    Raises CheckpointProblem where there is none, StorageProblem where the folder can't be read.
    """
    for path in policies(directory):
        try:
            return verify(path)
        except CheckpointProblem:
            continue
    raise CheckpointProblem(f"there is no valid checkpoint in {directory} yet")


def size_bytes(found: VerifiedFiles) -> int:
    """How long the archive is: a header and whole blocks for each file, and an end, in records."""
    blocks = sum(1 + -(-path.stat().st_size // tarfile.BLOCKSIZE) for path in _paths(found)) + 2
    return -(-blocks * tarfile.BLOCKSIZE // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def send(found: VerifiedFiles, out: BinaryIO) -> None:
    """Write the checkpoint's two files into ``out``, as they are named in its folder."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        for path in _paths(found):
            archive.add(path, arcname=path.name)


def _paths(found: VerifiedFiles) -> list[Path]:
    return [Path(str(found.path)) / name for name in (MANIFEST, tensors_file(found.path, found.manifest))]


def main(arguments: Sequence[str]) -> int:
    """The exit code; what is wrong stands on standard error in a sentence."""
    try:
        folder, out = Path(arguments[0]), sys.stdout.buffer
        if len(arguments) > 1:
            job = [Path(file).read_text() for file in arguments[2:]]
            content = packed(job[0], folder.parent) if job else kept(folder, arguments[1])
            out.write(b"%d\n%s" % (len(content), content))
        else:
            found = policy_files(folder)
            out.write(b"%d\n" % size_bytes(found))
            send(found, out)
        out.flush()
        sys.stdin.readline()
    except (CheckpointProblem, StorageProblem, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
