"""``rljob why``: the reasons for what a job does, or what a job's rules would have done to runs that were recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rljob.api import ManifestError, load_manifest, parse_job
from rljob.api.experiment import is_experiment
from rljob.cli.policies import PricesOption
from rljob.cli.validate import SetOption
from rljob.command_errors import one_line_errors
from rljob.cores import usable_cores
from rljob.errors import UsageError
from rljob.strict_json import dumps
from rljob.telemetry.figures import flatten_status
from rljob.telemetry.next_unit import crowded, lines, next_units
from rljob.telemetry.prices import read_prices

from rljob_operator.core.recorded import judged
from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, Meaning, NamespaceOption, jobs_of
from rljob_operator.verbs.recorded_runs import records_of
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import why as reasons
from rljob_operator.view.recorded import recorded_document, recorded_lines

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN|JOB...",
        help="The run's folder; on a cluster the job's name. With --rules folders of runs, or CSV files of curves.",
        show_default="the newest under runs/, or the only job of the namespace",
    ),
]


def why(
    runs: RunsArgument = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lead recorded runs through the rules of this manifest.", show_default=False),
    ] = None,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --rules: print one JSON object.")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    prices: PricesOption = None,
) -> None:
    """Explain a job: the last decision about its actors with the numbers to check it by hand, and what limited it; while it
    trains, what one more of each thing would bring; for one that does not run, the conditions and the last failures.

    With --rules nothing runs, and nothing is asked of a job: runs that were recorded are led through successPolicy,
    earlyStopping and the deadlines of a manifest, which say where each would have ended which run, and what that would have
    saved.

    Examples:

      rljob why

      rljob why -n team-a pong

      rljob why --prices prices.yaml

      rljob why --rules job.yaml runs/pong-*

      rljob why --rules job.yaml --json runs/* \\
        --set earlyStopping.valueLoss.factor=5
    """
    with one_line_errors():
        if rules is not None:
            if not runs or any((namespace, context, kubeconfig, prices)):
                raise UsageError("--rules needs runs on this machine: their folders, or CSV files of their curves")
            job = load_manifest(rules, overrides or ())
            found = {run: judged(job, records_of(Path(run))) for run in runs}
            typer.echo(dumps(recorded_document(found), 1) if as_json else "\n".join(recorded_lines(found)))
            return
        if overrides or as_json or len(runs or ()) > 1:
            raise UsageError("--set, --json and several runs go with --rules FILE; without it one job is explained")
        place = Place(namespace, context, kubeconfig)
        with jobs_of(place) as jobs:
            run = jobs.chosen(runs[0] if runs else None, or_experiment=True).look()
            cores = None if Meaning.cluster or any(place) else float(usable_cores())
            for line in (*reasons(run), *_next_unit(run, prices, cores)):
                typer.echo(line)


def _next_unit(run: JobView, prices: Path | None, cores: float | None) -> Iterator[str]:
    """What one more of each thing would bring by the learner's figures; where they do not tell, or training stands still for an
    evaluation, what the status has of it. ``cores``: that all roles share, None on a cluster. Raises ManifestError for a table
    of prices that lacks something."""
    if is_experiment(run.document) or run.status.finished:
        return
    try:
        spec = parse_job(run.document).spec
    except ManifestError:  # it was edited since, or is not there; without prices that does not matter
        if prices is not None:
            raise
        spec = None
    figures = flatten_status(run.figures.to_document()) if run.figures.state != "Evaluating" else {}
    found = next_units(
        figures,
        spec,
        cores=cores,
        seconds_left=run.status.progress.estimated_seconds_remaining,
        prices=read_prices(prices, spec) if prices is not None and spec is not None else None,
    )
    told = [crowded(figures, cores) or run.status.progress.next_unit] if found is None else list(lines(found))
    yield from ("", *told) if any(told) else ()
