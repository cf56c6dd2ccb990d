"""The recording of a job on a cluster, which its learner keeps beside its checkpoints for `rljob report`: pods and job may be
gone by then.

It is one gzip file: a line with the job in force, then the lines of the learner's ``metrics.jsonl``, of a long run a part of
them. Each writing replaces the whole file in one step. It lies at the place of the checkpoints as one of them does, under a name
that is none of theirs.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from rljob.checkpoints.location import Location, place
from rljob.checkpoints.names import CheckpointProblem
from rljob.files import replace
from rljob.strict_json import dumps

METRICS: Final = "metrics.jsonl"
_FILE: Final = "metrics.jsonl.gz"
MOST_LINES: Final = 1_000
"""Half an hour of them; of more each second, third and so on is kept, and what has a kind. A page of so many is drawn at once."""


def packed(job: str, run_dir: Path) -> bytes:
    """The recording of a learner that writes to ``run_dir``; ``job`` is its manifest. Raises OSError."""
    lines = (run_dir / METRICS).read_bytes().splitlines(keepends=True)
    every, last = -(-len(lines) // MOST_LINES), len(lines) - 1
    some = [line for at, line in enumerate(lines) if at % every == 0 or at == last or b'"kind":' in line]
    whole = b"".join([f"{dumps({'kind': 'job', 'job': job})}\n".encode(), *some]).rpartition(b"\n")[0]
    return gzip.compress(whole + b"\n", compresslevel=6)  # without the line that the learner is in the middle of


def unpacked(content: bytes) -> tuple[str, bytes, str]:
    """The manifest of the job, the whole records, and why those behind them can't be read; empty where they are all. Raises
    CheckpointProblem where nothing can be."""
    lines, damage = list[bytes](), ""
    try:
        lines.extend(gzip.GzipFile(fileobj=io.BytesIO(content)))
    except (OSError, EOFError, zlib.error) as problem:
        damage = str(problem)
    whole = [line for line in lines if line.endswith(b"\n")]
    try:
        return str(json.loads(whole[0])["job"]), b"".join(whole[1:]), damage
    except (LookupError, TypeError, ValueError):
        raise CheckpointProblem(f"its recording can't be read ({damage or 'it begins with no job'})") from None


def kept(directory: Location, uid: str) -> bytes:
    """The recording of the job with this uid. Raises CheckpointProblem where there is none, and StorageProblem."""
    try:
        return b"".join(place(directory).pieces(f"recording-{uid}", _FILE))
    except CheckpointProblem:
        raise CheckpointProblem(
            f"there is no recording of it at {directory}; its learner writes one with each checkpoint and at its end"
        ) from None


class Recording(NamedTuple):
    """What a learner keeps at ``directory`` of the job with this ``uid``; ``job`` and ``run_dir`` as for `packed`."""

    job: str
    uid: str
    run_dir: Path
    directory: Location

    def restored(self) -> Self:
        """This, once a learner without a record, such as one on another node, has that of the job. Raises StorageProblem."""
        if not (self.run_dir / METRICS).exists():
            with suppress(CheckpointProblem):  # the first learner of this job
                self.run_dir.mkdir(parents=True, exist_ok=True)
                replace(self.run_dir / METRICS, unpacked(kept(self.directory, self.uid))[1], essential=False)
        return self

    def keep(self, confirm: Callable[[], None]) -> None:
        """Replace it by the present one, unless ``confirm`` raises. Raises as `Folder.write`, and OSError."""
        confirm()
        place(self.directory).write(f"recording-{self.uid}", _FILE, packed(self.job, self.run_dir), b"{}\n")
