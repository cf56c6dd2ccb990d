"""The command line of the data plane. ``rljob run`` joins it in the operator's package, which knows how to start
processes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from rljob.cli.explain import explain
from rljob.cli.export import export
from rljob.cli.keys import keys
from rljob.cli.policies import evaluate, play, report
from rljob.cli.presets import presets
from rljob.cli.validate import validate
from rljob.command_errors import Debug
from rljob.roles.command import RoleCommand, worker
from rljob.wire.version import WIRE_VERSION

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


app.command()(validate)
app.command()(explain)
app.command()(presets)
app.command("eval")(evaluate)
app.command()(play)
app.command()(report)
app.command()(export)
app.command()(keys)
app.command(cls=RoleCommand)(worker)
