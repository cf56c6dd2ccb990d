"""``rljob export RUN``: a trained policy as a file for programs that have no rljob."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError


class Format(StrEnum):
    """What can be written."""

    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="A checkpoint, or a run, whose best (else newest) checkpoint is taken: a folder, or s3://bucket/prefix.",
            show_default=False,
        ),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="torchscript and onnx hold the whole way from observations to actions, safetensors the weights alone.",
        ),
    ] = Format.TORCHSCRIPT,
    to: Annotated[
        Path | None, typer.Option(help="The folder to write to.", show_default="export/ in the folder of the run")
    ] = None,
) -> None:
    """Write a trained policy to a file, read it back, and check that it gives the same actions.

    A second file, policy.FORMAT.json, says what goes in, what comes out, and how observations are made.

    Examples:

        rljob export runs/pong-vtrace-20260101-120000

        rljob export runs/pong-vtrace --format safetensors --to exported
    """
    with one_line_errors():
        require_data_plane("rljob export")
        from rljob.policy.export import export as write
        from rljob.policy.trained import load

        policy = load(source)
        folder = to or _folder_of_run(source)
        written = write(policy, form, folder)
        typer.echo(
            f"{written.file}: {form}, {written.file.stat().st_size / 1024:,.0f} KiB, of {policy.algorithm} on "
            f"{policy.environment_id}: {policy.seen_and_chosen}"
        )
        typer.echo(f"{written.about}: what goes in, what comes out, and how observations are made")
        typer.echo(
            f"checked: the same action for each of {written.compared} observations ({written.origin}); "
            f"preferences differ by {written.difference:.2g} at most"
        )


def _folder_of_run(source: str) -> Path:
    if not (Path(source) / "job.yaml").is_file():
        raise UsageError(f"--to: {source} is no run folder to write export/ to; name the folder to write to")
    return Path(source) / "export"
