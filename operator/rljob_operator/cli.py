"""The `rljob` command: the workers' commands, and `run`, which needs the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rljob.api import ManifestError, load_manifest
from rljob.cli.app import app

EXIT_BAD_INPUT = 2


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The RLJob manifest (YAML).", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.actors.replicas=2. Repeatable."),
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Folder of this run. [default: runs/<name>-<time>]")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=1, help="Stop in good order after so many seconds; the run can be resumed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --run-dir.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train a job on this machine: actors, replay, learner and evaluator as processes, with an embedded Redis.

    Exit codes: 0 the success policy was met (or --max-seconds is over), 1 the job failed, 2 the manifest or the command line
    is wrong or can't run here, 130 stopped with Ctrl-C.

    Examples:

      rljob run manifests/examples/pong-apex.yaml

      rljob run manifests/examples/cartpole-apex.yaml --set spec.algorithm.parameters.seed=2 --run-dir runs/seed-2
    """
    console = Console()
    errors = Console(stderr=True)
    try:
        job = load_manifest(file, set_ or ())
    except ManifestError as error:
        errors.print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    if resume and run_dir is None:
        errors.print("--resume needs --run-dir: the folder of the run to go on with", highlight=False)
        raise typer.Exit(EXIT_BAD_INPUT)

    # Gymnasium and ALE take a second to import: only a run pays for them, not --help.
    from rljob.envs import EnvironmentProblem

    from rljob_operator.local.preflight import PreflightProblem
    from rljob_operator.local.run import run as run_locally
    from rljob_operator.local.run_folder import RunFolderProblem, default_run_dir

    try:
        code = run_locally(
            job, run_dir or default_run_dir(job.metadata.name), resume=resume, max_seconds=max_seconds, console=console
        )
    except (EnvironmentProblem, PreflightProblem, RunFolderProblem) as error:
        if debug:
            raise
        errors.print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the `rljob` command."""
    app()


if __name__ == "__main__":
    main()
