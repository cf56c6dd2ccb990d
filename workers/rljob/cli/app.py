"""The command line of the data plane. ``rljob run`` joins it in the operator's package, which knows how to start
processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperCommand

from rljob.cli.compare import compare
from rljob.cli.explain import explain
from rljob.cli.export import export
from rljob.cli.keys import keys
from rljob.cli.policies import evaluate, play
from rljob.cli.presets import presets
from rljob.cli.validate import validate
from rljob.command_errors import Debug
from rljob.roles.command import RoleCommand, worker
from rljob.wire.version import WIRE_VERSION

PANELS = MANIFEST, TRAIN, LEARNED, PARTS = (
    "Write a manifest",
    "Train, watch and steer",
    "Use what was learned",
    "A cluster, and parts by hand",
)
"""The groups of commands, in the order in which the help shows them."""

app = typer.Typer(
    name="rljob",
    help=(
        "Train reinforcement-learning agents from one manifest, on a laptop or a cluster.\n\n"
        "Start here:\n\n"
        "    rljob validate manifests/examples/pong-vtrace.yaml\n\n"
        "    rljob run manifests/examples/pong-vtrace.yaml\n\n"
        "    rljob eval runs/pong-vtrace-<time>"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rljob {version('rljob')}, protocol {WIRE_VERSION}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="RLJOB_DEBUG", help="Show tracebacks and debug messages, those of a run's roles, too."
        ),
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Show release and protocol.")
    ] = False,
) -> None:
    """Options before the command."""
    Debug.enabled = debug


def register(
    to: typer.Typer, panel: str, cls: type[TyperCommand] = TyperCommand, /, **commands: Callable[..., None]
) -> None:
    """Add commands to a panel of the help. It shows their docstrings: each paragraph as one line, which a terminal of any width
    wraps, and examples line by line."""
    for name, command in commands.items():
        parts = inspect.cleandoc(command.__doc__ or "").split("\n\n")
        text = "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in parts)
        to.command(name, cls=cls, help=text, rich_help_panel=panel)(command)


register(app, MANIFEST, validate=validate, explain=explain, presets=presets)
register(app, LEARNED, eval=evaluate, play=play, compare=compare, export=export)
register(app, PARTS, keys=keys)
register(app, PARTS, RoleCommand, worker=worker)
