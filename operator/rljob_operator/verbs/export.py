"""``rljob export``: what a job has learned, as a checkpoint's folder or as a file for programs that have no rljob."""

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rljob.archive import unpack
from rljob.checkpoints.files import verify
from rljob.checkpoints.names import CheckpointProblem
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, Meaning, NamespaceOption, jobs_of


class Format(StrEnum):
    """The forms of a policy."""

    POLICY = "policy"
    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"


def export(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|JOB|CHECKPOINT",
            help="A checkpoint, or a run, whose best (else newest) checkpoint is taken: a folder, or s3://bucket/prefix; on a "
            "cluster the job's name.",
            show_default="the newest under runs/, or the only job of the namespace",
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="policy: a checkpoint's files; torchscript and onnx hold the whole way from observations to actions, "
            "safetensors the weights alone.",
        ),
    ] = Format.TORCHSCRIPT,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            "--output",
            "-o",
            help="The folder to write to.",
            show_default="export/ of the run; policy/ for a policy",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest wait for a job's, in seconds.")] = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Write a job's policy to a folder, also during or after training: the best judged one, else the newest.

    On a cluster a temporary pod reads it from the job's claim. `rljob.load_policy`, `rljob eval` and `rljob export` accept the
    folder of --format policy, which must not exist yet.

    Other formats are files for programs without rljob. rljob reads the file back and checks that it gives the same actions;
    policy.FORMAT.json describes inputs, outputs and the making of observations.

    Examples:

        rljob export runs/pong-vtrace-20260101-120000

        rljob export runs/pong-vtrace --format safetensors --to exported

        rljob export -n team-a pong --format policy -o pong-policy
    """
    place = Place(namespace, context, kubeconfig)
    with one_line_errors(), jobs_of(place) as jobs, tempfile.TemporaryDirectory(prefix="rljob-") as beside:
        of_cluster = Meaning.cluster or any(place)
        if form is not Format.POLICY:
            require_data_plane("rljob export")
        if of_cluster or form is Format.POLICY:
            chosen = jobs.chosen(source)
            folder = to or Path("policy") if form is Format.POLICY else Path(beside) / "policy"
            updates = into(
                folder, lambda archive: chosen.policy(archive, lambda said: typer.echo(said, err=True), timeout)
            )
            if form is Format.POLICY:
                typer.echo(
                    f"{chosen.place}: the policy of update {updates:,} is in {folder}; `rljob eval {folder}` scores it"
                )
                return
            source = str(folder)
        elif source is None:
            source = jobs.chosen(None).place
        _as_file(source, form, to)


def _as_file(source: str, form: Format, to: Path | None) -> None:
    from rljob.policy.export import export as write
    from rljob.policy.trained import load

    policy = load(source)
    if to is None and not (Path(source) / "job.yaml").is_file():
        raise UsageError(f"--to: {source} is no run folder to write export/ to; name the folder to write to")
    written = write(policy, form, to or Path(source) / "export")
    typer.echo(
        f"{written.file}: {form}, {written.file.stat().st_size / 1024:,.0f} KiB, of {policy.algorithm} on "
        f"{policy.environment_id}: {policy.seen_and_chosen}"
    )
    typer.echo(f"{written.about}: what goes in, what comes out, and how observations are made")
    typer.echo(
        f"checked: the same action for each of {written.compared} observations ({written.origin}); "
        f"preferences differ by {written.difference:.2g} at most"
    )


def into(folder: Path, fetch: Callable[[BinaryIO], None]) -> int:
    """Have ``fetch`` write an archive, and put what is in it into ``folder`` where it is whole; answers the learner's updates.

    Raises UsageError where the folder holds something, or what came is damaged.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already; name a new folder with -o")
    with tempfile.TemporaryFile() as archive:
        fetch(archive)
        archive.seek(0)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
            whole = Path(beside) / folder.name
            try:
                with tarfile.open(fileobj=archive) as files:
                    unpack(files, whole.absolute())
                updates = verify(whole).updates
            except (tarfile.TarError, CheckpointProblem, OSError) as problem:
                raise UsageError(f"what came is no whole policy: {problem}; try again") from None
            if folder.exists():
                folder.rmdir()
            shutil.move(whole, folder)
    return updates
