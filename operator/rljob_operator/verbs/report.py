"""``rljob report``: a run, or an experiment, as one page."""

from pathlib import Path
from typing import Annotated

import typer
from rljob.cli.policies import PricesOption
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError

from rljob_operator.local.run_folder import EXPERIMENT_FILE


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    prices: PricesOption = None,
) -> None:
    """Write report.html of a run: learning curve, throughput, queue, actors, time per stage, the bottleneck in a sentence, and
    the gain of one more actor, shard and so on. For an experiment: its trials' curves, scores over each parameter, why each
    ended, and the best one.

    Examples:

        rljob report runs/pong-apex-20260101-120000

        rljob report runs/pong-apex-20260101-120000 --prices prices.yaml

        rljob report runs/cartpole-search-20260101-120000
    """
    with one_line_errors():
        require_data_plane("rljob report")
        if not any((run / name).exists() for name in ("job.yaml", "metrics.jsonl", "outcome.json", EXPERIMENT_FILE)):
            raise UsageError(
                f"{run}: no run folder (no job.yaml, metrics.jsonl or outcome.json in it); see the folder runs/"
            )
        from rljob.telemetry.report import write_report

        from rljob_operator.verbs.experiment_page import write_experiment_report

        if not (run / EXPERIMENT_FILE).is_file():
            typer.echo(str(write_report(run, prices)))
        elif prices is not None:
            raise UsageError("--prices goes with a single run; name one of the experiment's")
        else:
            typer.echo(str(write_experiment_report(run)))
