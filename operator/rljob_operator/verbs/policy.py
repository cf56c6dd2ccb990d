"""``rljob policy``: what a job has learned, as a folder."""

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rljob.checkpoints.files import verify
from rljob.checkpoints.names import CheckpointProblem
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption, jobs_of


def policy(
    job: JobArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder for it.")] = Path("policy"),
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest wait for it in seconds.")] = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Fetch a job's policy into a folder, while it trains, is suspended, or has ended: the best judged one, else the newest.

    On a cluster it comes from the job's claim, by a pod that reads it and is taken away again. `rljob.load_policy`, `rljob eval`
    and `rljob export` take the folder.

    Examples:

      rljob policy

      rljob policy -n team-a pong -o pong-policy
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen = jobs.chosen(job)
        updates = into(output, lambda archive: chosen.policy(archive, lambda said: typer.echo(said, err=True), timeout))
        typer.echo(f"{chosen.place}: the policy of update {updates:,} is in {output}; `rljob eval {output}` scores it")


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
                    files.extractall(whole, filter="data")
                updates = verify(whole).updates
            except (tarfile.TarError, CheckpointProblem, OSError) as problem:
                raise UsageError(f"what came is no whole policy: {problem}; try again") from None
            if folder.exists():
                folder.rmdir()
            shutil.move(whole, folder)
    return updates
