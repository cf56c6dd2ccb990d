"""The command line of the data plane. ``rljob run`` joins it in the operator's package, which knows how to start
processes."""

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from rljob.errors import UsageError
from rljob.sources import user_path
from rljob.wire.version import WIRE_VERSION

PANELS = MANIFEST, TRAIN, LEARNED = ("Write a manifest", "Train, watch and steer", "Use what was learned")
"""The groups of commands, in the order in which the help shows them."""
HIDDEN = ""
"""In place of a group: programs type it, and people seldom. The help of all commands leaves it out."""

Commands = dict[str, tuple[str, str]]
"""Name -> panel of the help, and the command's place: ``module:function``, and ``:class`` where it is not `_Guarded`."""
COMMANDS: Commands = {
    "examples": (MANIFEST, "rljob.cli.explain:examples"),
    "explain": (MANIFEST, "rljob.cli.explain:explain"),
    "eval": (LEARNED, "rljob.cli.policies:evaluate"),
    "play": (LEARNED, "rljob.cli.policies:play"),
    "compare": (LEARNED, "rljob.cli.policies:compare"),
    "keys": (HIDDEN, "rljob.cli.keys:keys"),
    "worker": (HIDDEN, "rljob.roles.command:worker:RoleCommand"),
}


class _Guarded(TyperCommand):
    """A command none of whose errors is shown as a traceback, whatever part of it raises it."""

    def invoke(self, ctx: Any) -> Any:
        from rljob.command_errors import one_line_errors

        with one_line_errors():
            return super().invoke(ctx)


class _Imported(Mapping[str, TyperCommand]):
    """Commands by their names, of which each is imported when it is asked for: what one needs takes half a second or more, and a
    shell that completes a word waits for it."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def __getitem__(self, name: str) -> TyperCommand:
        return _imported(name, *self._commands[name])

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._commands, key=lambda name: (*PANELS, HIDDEN).index(self._commands[name][0])))

    def __len__(self) -> int:
        return len(self._commands)


@cache
def _imported(name: str, panel: str, place: str) -> TyperCommand:
    """The help shows a command's docstring: each paragraph as one line, which a terminal of any width wraps, and examples line by
    line."""
    module, function, *of_class = place.split(":")
    found = import_module(module)
    command = getattr(found, function)
    parts = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in parts)
    cls = getattr(found, of_class[0]) if of_class else _Guarded
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=cls, help=text, rich_help_panel=panel, hidden=panel == HIDDEN)(command)
    return cast(TyperCommand, typer.main.get_command(alone))


def _expanded(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{user_path(value)}" if value.startswith("~") else word


def group_of(commands: Commands) -> type[TyperGroup]:
    """A group of typer that has these commands."""

    class Group(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = cast(MutableMapping[str, Any], _Imported(commands))

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """As the base class, with ``~`` expanded where a shell leaves it: in quotes, and after ``--option=``."""
            try:
                return super().parse_args(ctx, [_expanded(each) for each in args])
            except UsageError as problem:
                raise typer.BadParameter(str(problem)) from None

    return Group


app = typer.Typer(
    name="rljob",
    cls=group_of(COMMANDS),
    help=(
        "Train reinforcement-learning agents from one manifest, on a laptop or a cluster.\n\n"
        "Start here:\n\n"
        "    rljob examples\n\n"
        "    rljob run pong-vtrace\n\n"
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
    from rljob.command_errors import Debug

    Debug.enabled = debug
