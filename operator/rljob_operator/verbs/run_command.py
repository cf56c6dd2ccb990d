"""The command `rljob run`: what it takes, before anything that a run needs is imported."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api import ManifestError, read_with_files, with_code
from rljob.api.examples import manifest_file
from rljob.api.exit_codes import EXIT_FAILURE
from rljob.api.experiment import is_experiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import given, repeatable
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

from rljob_operator.verbs.jobs import Place, wait_for
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, NamespaceOption
from rljob_operator.view.live import RunConsole
from rljob_operator.view.reasons import ending

_PACKAGES = "requirements.txt"


def run(
    file: Annotated[
        Path, typer.Argument(help="The manifest (YAML) of an RLJob or an RLExperiment.", show_default=False)
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.actors.replicas=2. Repeatable."),
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Folder of this run.", show_default="runs/<name>-<time>")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=1, help="Stop cleanly after this many seconds; you can resume the run.")
    ] = None,
    max_actors: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Most actors on this machine.",
            show_default="one for each core where autoscaling decides, else as many as actors.replicas says",
        ),
    ] = None,
    resume_: Annotated[bool, typer.Option("--resume", help="Resume the run in --run-dir.")] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="PPO or SAC with one actor, taking turns with the learner on the CPU: two runs end with equal weights.",
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="On a cluster: wait for the job's end.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="On a cluster: longest wait in seconds.", show_default="no limit")
    ] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Train a job on this machine: actors, replay, learner and evaluator as processes, with an embedded Redis.

    -n, --context or --kubeconfig create it on a cluster. If the manifest names a file or module beside it, its folder goes along.

    Watch and change it from another terminal: rljob get, top, why, logs, suspend, resume, scale, checkpoint, stop.

    An RLExperiment runs several jobs, spec.parallelism at a time, to find the best.

    Exit codes: 0 the success policy was met (or --max-seconds is over), 1 the job failed, 2 the manifest or the command line is
    wrong or can't run here, 130 stopped with Ctrl-C. On a cluster: 0 created, with --wait complete; 1 failed, stopped or not over
    within --timeout; 2 refused; 69 the cluster does not answer, 77 it lacks a right; 130 Ctrl-C, and the job goes on.

    Examples:

      rljob run pong-vtrace

      rljob run cartpole-impala --run-dir runs/seed-2 \\
        --set seed=2

      rljob run cartpole-search

      rljob run walk.yaml -n team --wait
    """
    place = Place(namespace, context, kubeconfig)
    with one_line_errors():
        if deterministic and (resume_ or any(place)):
            raise UsageError(
                "--deterministic is for a new run on this machine; it goes without --resume, and without a cluster"
            )
        if any(place):
            if resume_ or any(each is not None for each in (run_dir, max_seconds, max_actors)):
                here = "--run-dir, --max-seconds, --max-actors and --resume"
                raise UsageError(f"{here} are for a run on this machine; leave them out, or the cluster")
            raise typer.Exit(_on_cluster(file, set_ or (), place, wait, math.inf if timeout is None else timeout))
        if wait or timeout is not None:
            raise UsageError("--wait and --timeout are for a job of a cluster, which -n NAMESPACE names")
        require_data_plane("rljob run")
        if resume_ and run_dir is None:
            raise UsageError("--resume needs --run-dir: the folder of the run to go on with")
        # Gymnasium and ALE take a second to import: only a run pays for them, not --help.
        from rljob_operator.local.run_folder import is_stored_job
        from rljob_operator.verbs import run as local, run_experiment as experiment

        bounds: dict[str, Any] = {"max_seconds": max_seconds, "max_actors": max_actors, "console": RunConsole()}
        stored = resume_ and run_dir is not None and is_stored_job(file, run_dir) and not set_
        written = {} if stored else given(read_with_files(file, set_ or ()))
        if deterministic and is_experiment(written):
            raise UsageError("--deterministic is for an RLJob; the runs of an RLExperiment go on, or end, by the clock")
        if deterministic:
            written = repeatable(written)
        if is_experiment(written):
            code = experiment.start(written, run_dir, resume=resume_, **bounds)
        elif resume_ and run_dir is not None:
            code = local.go_on(run_dir, written or None, **bounds)
        else:
            code = local.start(written, run_dir, **bounds)
    raise typer.Exit(code)


def _on_cluster(file: Path, overrides: Sequence[str], place: Place, wait: bool, timeout_seconds: float) -> int:
    """Create a job or an experiment on a cluster, with the files beside its manifest, and with ``wait`` wait for its end. The
    exit code: 0 it was created, or is complete; 1 it has failed or was stopped, or has not ended in time; 130 interrupted, and it
    goes on. Raises as `ClusterJobs.create` and `with_code`."""
    from rljob_operator.verbs.cluster_jobs import ClusterJobs  # its client takes a while to import
    from rljob_operator.verbs.render import server_problems

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
            seen = wait_for(job, 0, lambda seen: seen.status.finished or seen.stopped, "at its end", timeout_seconds)
        except KeyboardInterrupt:
            typer.echo(f"{job.place} goes on; `{job.command('stop')}` ends it")
            return 130
        typer.echo(f"{job.place}: {ending(seen)}")
        return 0 if seen.status.is_true("Complete") else EXIT_FAILURE
