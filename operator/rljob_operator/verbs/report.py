"""``rljob report``: a run, or an experiment, as one page; of this machine or of a cluster."""

from pathlib import Path
from typing import Annotated

import typer
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

from rljob_operator.local.run_folder import EXPERIMENT_FILE
from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, Meaning, NamespaceOption


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|JOB",
            help="The folder of a run; on a cluster the name of a job or an experiment, also of one that was deleted.",
            show_default=False,
        ),
    ],
    uid: Annotated[
        str,
        typer.Option(
            metavar="UID|TIME",
            help="On a cluster: of several with this name the one whose uid, or time of creation, begins so.",
            show_default="the newest",
        ),
    ] = "",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Write report.html of a run: learning curve, throughput, queue, actors, time per stage, the bottleneck in a sentence, and
    the gain of one more actor, shard and so on. For an experiment: its trials' curves, scores over each parameter, why each
    ended, and the best one.

    On a cluster the recording is fetched into runs/NAME-UID: from the learner, or from the job's bucket or claim, also when the
    job is gone. An experiment's runs are compared.

    Examples:

        rljob report runs/pong-apex-20260101-120000

        rljob report -n team-a pong
    """
    with one_line_errors():
        require_data_plane("rljob report")
        place = Place(namespace, context, kubeconfig)
        if any(place) or (Meaning.cluster and not Path(run).is_dir()):
            from rljob_operator.verbs.cluster_jobs import ClusterJobs
            from rljob_operator.verbs.recorded import write_recorded

            with ClusterJobs(place, plugin=Meaning.cluster) as jobs:
                pages = write_recorded(jobs, run, uid, lambda said: typer.echo(said, err=True))
            typer.echo("\n".join(map(str, pages)))
            return
        folder = Path(run)
        if not any((folder / name).exists() for name in ("job.yaml", "metrics.jsonl", "outcome.json", EXPERIMENT_FILE)):
            raise UsageError(
                f"{folder}: no run folder (no job.yaml, metrics.jsonl or outcome.json in it); see the folder runs/, or name the "
                "namespace of a cluster's job with -n"
            )
        from rljob.telemetry.report import write_report

        from rljob_operator.verbs.experiment_page import write_experiment_report

        write = write_experiment_report if (folder / EXPERIMENT_FILE).is_file() else write_report
        typer.echo(str(write(folder)))
