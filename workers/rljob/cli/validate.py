"""``rljob validate FILE...``: is this manifest right, and if not, what would be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rljob.api import ManifestError, RLJob, dump_manifest, load_manifest
from rljob.api.exit_codes import EXIT_INVALID

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.algorithm.impala.gamma=0.997; repeatable."
    ),
]


def validate(
    files: Annotated[list[Path], typer.Argument(help="Manifests to check.", metavar="FILE...", show_default=False)],
    overrides: SetOption = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective", help="Print the job in force: every value of its preset and every default filled in."
        ),
    ] = False,
) -> None:
    """Check manifests without running them: every problem at once, each with its place, its value and what is allowed.

    Exit code 0 if all are right, 2 if not. With --effective, stdout holds YAML and nothing else.

    Examples:

        rljob validate manifests/examples/pong-vtrace.yaml

        rljob validate my.yaml --set spec.actors.replicas=4 --set spec.algorithm.impala.batchSize=16

        rljob validate my.yaml --effective > effective.yaml
    """
    valid: list[RLJob] = []
    for file in files:
        try:
            job = load_manifest(file, overrides or ())
        except ManifestError as error:
            count = len(error.problems)
            typer.echo(f"{file}: {count} problem{'s' if count > 1 else ''}", err=True)
            for problem in error.problems:
                typer.echo(f"  {problem}", err=True)
        else:
            valid.append(job)
            if not effective:
                typer.echo(f"{file}: ok, {job.spec.algorithm.type} on {job.spec.environment.id}")
    if effective:
        typer.echo("---\n".join(dump_manifest(job) for job in valid), nl=False)
    if len(valid) < len(files):
        raise typer.Exit(EXIT_INVALID)
