"""``rljob track``: send a run's figures to W&B and MLflow."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rljob.api import load_manifest
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

_LOOK_SECONDS = 0.2


def track(
    run: Annotated[Path | None, typer.Argument(help="The run's folder.", show_default="the newest under runs/")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Override a field, e.g. tracking.wandb.project=pong. Repeatable."
        ),
    ] = None,
) -> None:
    """Send a run's figures to W&B or MLflow, each point once, as the manifest's `tracking` or --set says.

    `rljob run` does so itself if the manifest has `tracking`. This command sends the rest, follows a running run, and retries
    while a server is away. Ctrl-C ends it; the next call continues.

    Examples:

      rljob track runs/pong-vtrace-20260101-120000

      rljob track --set tracking.mlflow.uri=http://127.0.0.1:5000
    """
    with one_line_errors():
        require_data_plane("rljob track")
        from rljob.tracking.tracker import TRACKERS, wanted

        from rljob_operator.local.run_folder import EFFECTIVE_FILE, RunFolderProblem, chosen_run, holder
        from rljob_operator.local.trackers import Trackers

        folder = chosen_run(run)
        if not (folder / EFFECTIVE_FILE).is_file():
            raise RunFolderProblem(f"{folder}: the run has not begun (no {EFFECTIVE_FILE})")
        tracking = load_manifest(folder / EFFECTIVE_FILE, set_ or ()).spec.tracking
        if tracking is None or not wanted(tracking):
            fields = " or ".join(f"--set tracking.{name}..." for name in TRACKERS)
            raise UsageError(f"{folder}: its manifest has no tracking; say where to with {fields}")
        options = [word for each in set_ or () for word in ("--set", each)]
        for each in [[], ["--once"]] if holder(folder) is not None else [["--once"]]:
            trackers = Trackers(folder, typer.echo, [*options, *each])
            try:
                while trackers.look(tracking) and (each or holder(folder) is not None):
                    time.sleep(_LOOK_SECONDS)
                trackers.close()
            except KeyboardInterrupt:
                trackers.close(0.0)
                raise typer.Exit(130) from None
