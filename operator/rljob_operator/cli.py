"""The `rljob` command: the workers' commands, and `run`, which needs the controller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rljob.api import load_manifest
from rljob.cli.app import app
from rljob.cli.errors import Unusable, one_line_errors
from rljob.cli.roles import Profiled


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
    profile: Annotated[
        list[Profiled] | None,
        typer.Option(
            help="After 10 s of work, record 3 s of that role with torch's profiler: a trace for chrome://tracing or "
            "ui.perfetto.dev and a table of operations, in the run folder's profiles/. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a job on this machine: actors, replay, learner and evaluator as processes, with an embedded Redis.

    Exit codes: 0 the success policy was met (or --max-seconds is over), 1 the job failed, 2 the manifest or the command line
    is wrong or can't run here, 130 stopped with Ctrl-C.

    Examples:

      rljob run manifests/examples/pong-apex.yaml

      rljob run manifests/examples/cartpole-apex.yaml --set spec.algorithm.parameters.seed=2 --run-dir runs/seed-2
    """
    with one_line_errors():
        job = load_manifest(file, set_ or ())
        if resume and run_dir is None:
            raise Unusable("--resume needs --run-dir: the folder of the run to go on with")
        # Gymnasium and ALE take a second to import: only a run pays for them, not --help.
        from rljob_operator.local.run import run as run_locally
        from rljob_operator.local.run_folder import default_run_dir

        if profile:  # the roles inherit it
            os.environ["RLJOB_PROFILE"] = " ".join(profile)
        folder = run_dir or default_run_dir(job.metadata.name)
        code = run_locally(job, folder, resume=resume, max_seconds=max_seconds, console=Console())
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the `rljob` command."""
    app()


if __name__ == "__main__":
    main()
