"""``rljob validate FILE...``: is this manifest right, and if not, what would be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rljob.api import ManifestError, load_manifest
from rljob.cli.errors import EXIT_INVALID

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.algorithm.parameters.gamma=0.997; repeatable."
    ),
]


def validate(
    files: Annotated[list[Path], typer.Argument(help="Manifests to check.", metavar="FILE...", show_default=False)],
    overrides: SetOption = None,
) -> None:
    """Check manifests without running them: every problem at once, each with its place, its value and what is allowed.

    Exit code 0 if all are right, 2 if not.

    Examples:

        rljob validate manifests/examples/pong-vtrace.yaml

        rljob validate my.yaml --set spec.actors.replicas=4 --set spec.algorithm.parameters.batchSize=256
    """
    failed = False
    for file in files:
        try:
            job = load_manifest(file, overrides or ())
        except ManifestError as error:
            failed = True
            count = len(error.problems)
            typer.echo(f"{file}: {count} problem{'s' if count > 1 else ''}", err=True)
            for problem in error.problems:
                typer.echo(f"  {problem}", err=True)
        else:
            typer.echo(f"{file}: ok, {job.spec.algorithm.name} on {job.spec.environment.id}")
    if failed:
        raise typer.Exit(EXIT_INVALID)
