"""``rljob validate FILE...``: is this manifest right, and if not, what would be?"""

from pathlib import Path
from typing import Annotated

import typer

from rljob.api import ManifestError, dump_manifest, parse_job, read_with_files
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.experiment import is_experiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.experiment_trials import dump_experiment
from rljob.api.presets.merging import note_on, preset_of, value_at
from rljob.api.presets.values import leaves
from rljob.cli.own_parts import with_own_parts_checked
from rljob.loading import PluginProblem, forget_files, printing_aside, short

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a field, e.g. spec.algorithm.gamma=0.997; repeatable."),
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
    no_environment: Annotated[
        bool,
        typer.Option(
            "--no-environment", help="Only look the environment up, and don't make it to see what it shows and needs."
        ),
    ] = False,
) -> None:
    """Check manifests without running them: every problem at once, each with its place, its value and what is allowed. The file -
    is standard input.

    What is of one's own is checked too: the parameters of an algorithm or a network, the kwargs of an environment's factory. The
    environment is made once, as a run would make it, in a process of its own. A file or a package that is missing is a problem,
    unless spec.image says that it may be in there.

    Each trial of an RLExperiment is checked with its settings, and the environment of the first is made.

    Exit code 0 if all are right, 2 if not. With --effective, stdout holds YAML and nothing else.

    Examples:

        rljob validate manifests/examples/pong-vtrace.yaml

        rljob validate my.yaml --set actors.replicas=4 --set suspend=true

        rljob validate my.yaml --effective > effective.yaml
    """
    valid: list[str] = []
    for file in files:
        forget_files()  # those of the manifest before it, in another folder
        try:
            written = read_with_files(file, overrides or ())
            experiment = parse_experiment(written) if is_experiment(written) else None
            if experiment is not None:
                written = experiment.manifest(0, 1, experiment.raw_frames)
            with printing_aside():
                job, note, lines = with_own_parts_checked(parse_job(written), made=not no_environment)
        except PluginProblem as error:
            typer.echo(f"{file}: {error}", err=True)
        except ManifestError as error:
            count = len(error.problems)
            typer.echo(f"{file}: {count} problem{'s' if count > 1 else ''}", err=True)
            for problem in error.problems:
                typer.echo(f"  {problem}", err=True)
        else:
            valid.append(dump_manifest(job) if experiment is None else dump_experiment(experiment))
            if not effective:
                typer.echo(f"{file}: ok, {short(job.spec.algorithm.name)} on {short(job.spec.environment.id)}{note}")
                for line in (*([experiment.in_words] if experiment is not None else ()), *lines):
                    typer.echo(f"  {line}")
            nulls = (
                f"spec.{path}: null takes nothing away; presetWithout: [{path}] does"
                for path, value in leaves(written["spec"])
                if value is None and value_at(preset_of(written), path) is not None
            )
            for note in filter(None, (note_on(job.spec), *nulls)):
                typer.echo(f"  {note}", err=effective)
    if effective:
        typer.echo("---\n".join(valid), nl=False)
    if len(valid) < len(files):
        raise typer.Exit(EXIT_INVALID)
