"""``rljob validate``: is a manifest right? ``rljob render``: a manifest written out.

Both make what the operator would make of it, so neither takes a manifest that the other refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api import ManifestError, parse_job, read_manifest
from rljob.api.document import dump_document
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.job import KIND
from rljob.api.problems import ABSENT, Problem
from rljob.cli.explain import written_out
from rljob.cli.validate import SetOption, checked
from rljob.loading import PluginProblem

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import Secrets, children
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.rendering import revision, revision_of_job
from rljob_operator.kube.render.roles import section_name
from rljob_operator.kube.render.server_rules import problems
from rljob_operator.kube.render.settings import Settings, default_image

_NO_UID = "00000000-0000-0000-0000-000000000000"
_SUFFIX = "xxxxx"
_SECRET = "<made by the operator>"


def validate(
    files: Annotated[list[Path], typer.Argument(help="Manifests to check.", metavar="FILE...", show_default=False)],
    overrides: SetOption = None,
    no_environment: Annotated[
        bool,
        typer.Option("--no-environment", help="Look the environment up, but do not make it."),
    ] = False,
) -> None:
    """Check manifests without running them: every problem at once, with its place, its value and what is allowed. The file - is
    standard input.

    Your own parts are checked too: parameters of an algorithm or network, kwargs of an environment's factory. The environment
    is made once, in its own process. A missing file or package is a problem unless spec.image may contain it.

    Each trial of an RLExperiment is checked with its settings; the environment of the first is made.

    Exit code 0 if all are right, 2 if not. `rljob render FILE --effective` prints the effective job.

    Examples:

        rljob validate pong-vtrace

        rljob validate my.yaml --set actors.replicas=4 --set suspend=true
    """
    wrong = False
    for file in files:
        try:
            found = checked(file, overrides or (), made=not no_environment)
            if refused := server_problems(found.written):
                raise ManifestError(refused)
        except PluginProblem as error:
            wrong = True
            typer.echo(f"{file}: {error}", err=True)
        except ManifestError as error:
            wrong, count = True, len(error.problems)
            typer.echo(f"{file}: {count} problem{'s' if count > 1 else ''}", err=True)
            for problem in error.problems:
                typer.echo(f"  {problem}", err=True)
        else:
            typer.echo("\n  ".join((*found.lines, *found.notes)))
    if wrong:
        raise typer.Exit(EXIT_INVALID)


def render(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME", help="The manifest (YAML), or the name of an example or a preset.", show_default=False
        ),
    ],
    overrides: SetOption = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective", help="Print the effective job instead, with all values of its preset and all defaults."
        ),
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of the job.", show_default="the manifest's")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Default image of the job.", show_default="that of this release")
    ] = None,
) -> None:
    """Print a manifest without a cluster: every object that the operator would make of it, or the effective job.

    First the job's own objects, then a pod of each first member. Placeholders stand for name suffixes, the owner's uid, keys
    and token.

    The name of an example or a preset prints its manifest; with an option it is rendered as a file is.

    Examples:

      rljob render cartpole-ppo > my.yaml

      rljob render PongVTrace > my-pong.yaml

      rljob render my.yaml -n team-a | kubectl apply --dry-run=server -f -

      rljob render my.yaml --effective > effective.yaml
    """
    file = Path(source)
    if effective:
        found = checked(file, overrides or (), made=False)
        typer.echo(found.document, nl=False)
        for note in found.notes:
            typer.echo(f"  {note}", err=True)
        return
    if not (overrides or namespace or image or file.exists()) and (text := written_out(source)):
        typer.echo(text, nl=False)
        return
    written = read_manifest(file, overrides or ())
    if namespace is not None:
        written = {**written, "metadata": {**(written.get("metadata") or {}), "namespace": namespace}}
    settings = Settings(image=image or default_image())
    documents = list(objects(written, settings))
    typer.echo("---\n".join(dump_document(each) for each in documents), nl=False)


def server_problems(written: dict[str, Any]) -> list[Problem]:
    """What an API server would refuse of a manifest's metadata and of the job's pods; of a role's pods each thing once. Raises as
    `objects`."""
    found = {str(each): each for each in problems({"kind": KIND, "metadata": written.get("metadata")})}
    for document in objects(written, Settings(image=default_image())):
        if document["kind"] == "Pod":
            part = f"spec.{section_name(Role(document['metadata']['labels'][names.ROLE_LABEL]))}, its pod: "
            found |= {  # labels of the job are handed on, and told already
                f"{part}{each}": replace(each, path=f"{part}{each.path}")
                for each in problems(document)
                if str(each) not in found
            }
    return list(found.values())


def objects(written: dict[str, Any], settings: Settings) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, in the order in which they are made. Raises ManifestError."""
    owned = Owned(parse_job(written), _NO_UID, written=revision_of_job(written))
    secrets = Secrets(keys=dict.fromkeys(Role, _SECRET), token=_SECRET)
    yield from (_readable(each) for each in children(owned, secrets, settings))
    try:
        for member in names.first_members(owned.job):
            yield pod(owned, member, _SUFFIX, revision(written, Role.of(member)), settings)
    except PodProblem as problem:
        place, _, words = str(problem).partition(": ")
        raise ManifestError([Problem(place, ABSENT, words)]) from None


def _readable(document: dict[str, Any]) -> dict[str, Any]:
    """A Secret with its placeholders as text, not in base64."""
    if document["kind"] != "Secret":
        return document
    texts = {"stringData": dict.fromkeys(document["data"], _SECRET)}
    return {**{name: value for name, value in document.items() if name != "data"}, **texts}
