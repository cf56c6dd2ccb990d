"""`rljob run -n`: one job or experiment made on a cluster, with the files beside its manifest, and waited for."""

import math
from collections.abc import Sequence
from pathlib import Path

import typer
from rljob.api import ManifestError, read_with_files, with_code
from rljob.api.examples import manifest_file
from rljob.api.exit_codes import EXIT_FAILURE
from rljob.api.experiment import is_experiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import given

from rljob_operator.verbs.cluster_jobs import ClusterJobs, has_stopped
from rljob_operator.verbs.jobs import Place, wait_for
from rljob_operator.verbs.render import server_problems
from rljob_operator.view.reasons import ending

_PACKAGES = "requirements.txt"
_INTERRUPTED = 130


def start(file: Path, overrides: Sequence[str], place: Place, *, wait: bool, timeout_seconds: float | None) -> int:
    """Create it, and with ``wait`` wait for its end. The exit code: 0 it was created, or is complete; 1 it has failed or was
    stopped, or has not ended in time; 130 interrupted, and it goes on. Raises as `ClusterJobs.create` and `with_code`."""
    written = given(read_with_files(file, overrides))
    experiment = parse_experiment(written) if is_experiment(written) else None
    run = written if experiment is None else experiment.manifest(0, 1, experiment.raw_frames)
    if problems := server_problems(run):
        raise ManifestError(problems)
    document, code = with_code(written, manifest_file(file).parent)
    with ClusterJobs(place) as jobs:
        job = jobs.named(jobs.create(document, code))
        typer.echo(f"{job.place}: created; `{job.command('get')}` shows it")
        if code is not None:
            typer.echo(f"code: {len(code.names)} files, {len(code.content):,} bytes, sha256:{code.digest}")
            if _PACKAGES in code.names:
                typer.echo(
                    f"warning: {_PACKAGES} is not installed there: packages belong in the image (docs/images.md)"
                )
        if not wait:
            return 0
        try:
            seen = wait_for(
                job,
                0,
                lambda seen: seen.status.finished or has_stopped(seen),
                "at its end",
                math.inf if timeout_seconds is None else timeout_seconds,
            )
        except KeyboardInterrupt:
            typer.echo(f"{job.place} goes on; `{job.command('stop')}` ends it")
            return _INTERRUPTED
        typer.echo(f"{job.place}: {ending(seen)}")
        return 0 if seen.status.is_true("Complete") else EXIT_FAILURE
