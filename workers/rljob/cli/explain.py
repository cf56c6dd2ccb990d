"""``rljob explain FIELD``: what a field of the manifest means, as `kubectl explain` says it, without a cluster."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rljob.api import API_VERSION, KIND, PRESETS, EnvironmentParameters, Preset
from rljob.api.catalogue import Explanation, UnknownField, explained_own, type_in_words, wherever
from rljob.api.document import dump_document, in_one_line
from rljob.api.examples import by_environment, examples as shipped, examples_for
from rljob.api.fields import first_sentence
from rljob.api.problems import nearest
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

_WIDEST = 110


def explain(
    field: Annotated[
        str,
        typer.Argument(metavar="FIELD", help="A field, such as algorithm.learningRate.", show_default="all of them"),
    ] = "",
    parameter: Annotated[
        str,
        typer.Argument(
            metavar="PARAMETER",
            help="One of the parameters, where FIELD is the factory of an algorithm or a network of your own.",
            show_default="all of them",
        ),
    ] = "",
) -> None:
    """Explain a field of the manifest: type, default, when it may change, meaning, and the presets that set it.

    A section is explained with its fields. You may leave out spec. and sections: learningRate is found anywhere. status. and
    metadata. work too, as do the parameters of your own algorithm or network, by its factory. With environment.id=ID rljob
    makes the environment and shows its observations and actions, and how it reads each part. `preset` lists the presets with
    their purpose and score.

    Examples:

        rljob explain

        rljob explain actors

        rljob explain algorithm.learningRate

        rljob explain learningRate

        rljob explain preset

        rljob explain examples/plugins/qr_dqn.py:QRDQN kappa

        rljob explain rlexperiment.search

        rljob explain environment.id=Taxi-v4
    """
    name, equals, value = field.partition("=")
    if equals and name.removeprefix("spec.") == "environment.id":
        typer.echo("\n".join(_environment(value)))
        return
    try:
        found = [_own(field, parameter)] if ":" in field else wherever(field)
    except UnknownField as error:
        raise UsageError(str(error)) from None
    typer.echo("\n\n\n".join("\n".join(_page(each)) for each in found))
    if name.removeprefix("spec.") == "preset":
        facts = ((each.name, [each.purpose, *map(": ".join, _facts_of(each).items()), ""]) for each in PRESETS.values())
        _print_table("Preset", ((name, "\n".join(lines)) for name, lines in facts))


def _page(found: Explanation) -> Iterator[str]:
    """All that there is to say about a field, line by line."""
    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    yield found.path
    for paragraph in found.description:
        yield from ("", *textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False))
    yield ""
    for name, text in {"Type": found.type, "Default": found.default, "Changes": found.changes}.items():
        yield from textwrap.wrap(text, width, initial_indent=f"  {name:8}  ", subsequent_indent=" " * 12)
    if found.presets:
        widest = max(map(len, found.presets))
        yield from ("", "Presets that set it:")
        yield from (_cut(f"  {name:{widest}}  {in_one_line(value)}", width) for name, value in found.presets.items())
    if found.fields:
        widest = max(map(len, found.fields))
        yield from ("", "Fields:")
        for name, place in found.fields.items():
            yield f"  {name:{widest}}  {_cut(type_in_words(place), 34):34}  {first_sentence(place.description)}".rstrip()


def _own(factory: str, parameter: str) -> Explanation:
    require_data_plane("explaining the parameters of your own")
    from rljob.algorithms.registry import declared_parameters

    return explained_own(declared_parameters(factory), factory, parameter)


def _environment(environment_id: str) -> Iterator[str]:
    """What an environment shows and takes, a line a leaf."""
    require_data_plane("looking at an environment")
    from rljob.envs import describe_environment_apart

    spec = describe_environment_apart(environment_id, EnvironmentParameters())
    yield environment_id
    yield from (f"  {line}" for line in spec.lines)
    yield "\nIf a part is taken for something else than it is, set environment.leaves (rljob explain environment.leaves)."


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def examples(
    for_: Annotated[
        str,
        typer.Option("--for", metavar="ID", help="Only those that train in this environment.", show_default="all"),
    ] = "",
) -> None:
    """List the examples that come with rljob: whole jobs that `rljob run`, `validate` and `size` take by their names.

    Those that begin with zoo/ are five seeds of settings for one environment; docs/zoo.md has their scores. With `--set seeds=1`
    one is run.

    `rljob render NAME` writes one out, to change it. `rljob explain preset` lists the presets, which a manifest of your own can
    start from.

    Examples:

        rljob examples

        rljob examples --for Pendulum-v1

        rljob run cartpole-ppo

        rljob render cartpole-ppo > my.yaml
    """
    names = examples_for(for_) if for_ else list(shipped())
    if not names:
        near = nearest(for_, list(by_environment()))
        hint = f"did you mean {near}?" if near else "`rljob explain preset` lists settings for kinds of environments"
        raise UsageError(f"--for {for_}: no example trains in it; {hint}")
    heads = ((name, shipped()[name].read_text().partition("\n#\n")[0]) for name in names)
    told = (
        (name, text.replace("\n# ", " ").removeprefix("# ").partition(". ")[0].rstrip(".:")) for name, text in heads
    )
    _print_table("Example", told)


def _print_table(heading: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(heading, "What it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table, markup=False, highlight=False)


def _facts_of(preset: Preset) -> dict[str, str]:
    return {"score": preset.expected, "time": preset.time, "raw frames": preset.frames, "source": preset.source}


def written_out(name: str) -> str | None:
    """The manifest of an example or a preset, with what it is for above it; None where there is none of that name."""
    if name in shipped():
        return shipped()[name].read_text()
    if name not in PRESETS:
        return None
    preset = PRESETS[name]
    facts = (f"preset {name}", preset.purpose, *map(": ".join, _facts_of(preset).items()))
    head = (textwrap.fill(text, 110, initial_indent="# ", subsequent_indent="#   ") for text in facts)
    example = {"id": preset.example, **preset.spec.get("environment", {})}
    spec = {**preset.spec, **({"environment": example} if preset.example else {})}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name.lower()}, "spec": spec}
    return "\n".join((*head, dump_document(document)))
