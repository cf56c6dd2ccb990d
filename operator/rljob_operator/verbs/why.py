"""``rljob why``: the reasons for what a job does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer
from rljob.api import ManifestError, parse_job
from rljob.cli.policies import PricesOption
from rljob.command_errors import one_line_errors
from rljob.cores import usable_cores
from rljob.telemetry.figures import flatten_status
from rljob.telemetry.next_unit import lines, next_units
from rljob.telemetry.prices import read_prices

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, JobArgument, KubeconfigOption, Meaning, NamespaceOption, jobs_of
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import why as reasons


def why(
    job: JobArgument = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    prices: PricesOption = None,
) -> None:
    """Explain a job: the last decision about its actors with the numbers to check it by hand, and what limited it; while it
    trains, what one more of each thing would bring; for one that does not run, the conditions and the last failures.

    Examples:

      rljob why

      rljob why -n team-a pong

      rljob why --prices prices.yaml
    """
    place = Place(namespace, context, kubeconfig)
    with one_line_errors(), jobs_of(place) as jobs:
        run = jobs.chosen(job).look()
        cores = None if Meaning.cluster or any(place) else float(usable_cores())
        for line in (*reasons(run), *_next_unit(run, prices, cores)):
            typer.echo(line)


def _next_unit(run: JobView, prices: Path | None, cores: float | None) -> Iterator[str]:
    """What one more of each thing would bring, where the learner's figures tell. ``cores``: that all roles share, None on a
    cluster. Raises ManifestError for a table of prices that lacks something."""
    try:
        spec = parse_job(run.document).spec
    except ManifestError:  # it was edited since, or is not there; without prices that does not matter
        if prices is not None:
            raise
        spec = None
    table = read_prices(prices, spec) if prices is not None and spec is not None else None
    found = next_units(
        flatten_status(run.figures.to_document()),
        spec,
        cores=cores,
        seconds_left=run.status.progress.estimated_seconds_remaining,
        prices=table,
    )
    told = [run.status.progress.next_unit] if found is None else list(lines(found))
    yield from ("", *told) if any(told) else ()
