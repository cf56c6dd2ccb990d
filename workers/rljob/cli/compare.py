"""``rljob compare``: several runs beside each other."""

from pathlib import Path
from typing import Annotated

import typer

from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.files import replace


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of experiments.", show_default=False)
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Runs with the same value here are a group, such as algorithm.learningRate. Repeatable.",
            show_default="all settings that differ, but the seed",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Mean return that counts as solved.", show_default="that of the jobs' successPolicy"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with curves, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare runs: interquartile mean of their verdicts, share solved, time to the target, and which group beats which.

    Runs whose settings are the same but for the seed are a group. Every figure has a 95 % interval, and what makes it worth less,
    such as fewer than 8 runs a group, is said. An experiment stands for its runs, as it judged them after as many raw frames.

    Examples:

        rljob compare runs/pong-*

        rljob compare runs/a-* runs/b-* --html comparison.html

        rljob compare runs/* --by algorithm.learningRate --target 400 --json
    """
    with one_line_errors():
        require_data_plane("rljob compare")
        if html is not None and not html.parent.is_dir():
            raise UsageError(f"--html {html}: there is no folder {html.parent}; create it first")
        if html is not None and html.is_dir():
            raise UsageError(f"--html {html}: is a folder; name a file, such as {html / 'comparison.html'}")
        from rljob.comparison.comparison import compare as compared
        from rljob.comparison.page import render_comparison
        from rljob.comparison.words import document, lines
        from rljob.strict_json import dumps

        comparison = compared(runs, by or (), target)
        if html is not None:
            try:
                replace(html, render_comparison(comparison))
            except OSError as error:
                raise UsageError(f"--html {html}: can't be written: {error.strerror}; name another file") from error
        typer.echo(dumps(document(comparison)) if as_json else "\n".join(lines(comparison)))
