"""``rljob presets [NAME]``: the whole jobs that a manifest can start from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

if TYPE_CHECKING:
    from rljob.api import Preset


def presets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Print this preset as a manifest.", show_default="list them all"),
    ] = None,
) -> None:
    """List the presets: whole jobs that a manifest can start from with spec.preset, with what each is for and what it reaches.

    With NAME, print that preset written out as a manifest of its own, to see its values or to begin from them.

    Examples:

        rljob presets

        rljob presets PongVTrace > my-pong.yaml
    """
    with one_line_errors():
        if name is None:
            _list()
        else:
            typer.echo("\n".join(_written_out(name)))


def _list() -> None:
    from rljob.api.presets import PRESETS

    table = Table("Preset", "What it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for preset in PRESETS.values():
        table.add_row(preset.name, "\n".join([preset.purpose, *map(": ".join, _facts(preset).items()), ""]))
    Console().print(table, markup=False, highlight=False)


def _facts(preset: Preset) -> dict[str, str]:
    return {"score": preset.expected, "time": preset.time, "raw frames": preset.frames, "source": preset.source}


def _written_out(name: str) -> Iterator[str]:
    from rljob.api import API_VERSION, KIND
    from rljob.api.presets import PRESETS
    from rljob.api.problems import unknown_name
    from rljob.api.yaml_dialect import dump_document

    if name not in PRESETS:
        raise UsageError(f"{name}: {unknown_name(name, list(PRESETS), 'preset')}")
    preset = PRESETS[name]
    for text in (f"preset {name}", preset.purpose, *map(": ".join, _facts(preset).items())):
        yield from textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ")
    metadata = {"name": name.lower()}
    spec = dict(preset.spec)
    if preset.example:
        spec["environment"] = {"id": preset.example, **spec.get("environment", {})}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    yield dump_document(document).rstrip()
