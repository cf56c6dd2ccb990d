"""``rljob why``: the reasons for the state of a job, or what a job's rules would have done to runs that were recorded."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api import ManifestError, load_manifest, parse_job
from rljob.api.experiment import is_experiment
from rljob.cli.validate import SetOption
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.telemetry.flat_figures import flatten_status
from rljob.telemetry.sizing import crowded, lines, next_units
from rljob.threads import usable_cores

from rljob_operator.core.recorded import Judged, Moment, judged
from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, Meaning, NamespaceOption, jobs_of
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import why as reasons


def recorded_lines(runs: Mapping[str, Judged]) -> list[str]:
    """For people: each run with what would have ended it, then all together."""
    lines = []
    for name, run in runs.items():
        solved = f"solved at {_at(run.solved)}" if run.solved is not None else "not solved"
        lines.append(f"{name}: {solved}; the record ends at {_at(run.last)}")
        for rule, end in sorted(run.ends.items(), key=lambda item: item[1].seconds):
            lines.append(f"  {rule} at {_at(end)}{'  <- ends it' if rule == run.given_up else ''}: {end.message}")
    whole = summary(runs)
    lines += [
        "",
        f"{whole['runs']} runs, {whole['solved']} solved. Given up before: {len(whole['solvedGivenUp'])} of those solved, "
        f"{whole['unsolvedGivenUp']} of the others.",
        f"Saved: {whole['savedRawFrames']:,} of {whole['rawFrames']:,} raw frames, {whole['savedSeconds']:,.0f} of "
        f"{whole['seconds']:,.0f} s" + ("." if not whole["solvedGivenUp"] else ", at the cost of what was solved:"),
    ]
    return lines + [f"  {name}" for name in whole["solvedGivenUp"]]


def summary(runs: Mapping[str, Judged]) -> dict[str, Any]:
    """All runs together. What is saved of a run lies between where it would have been given up and where it ended."""
    ended = {name: (run, run.ends[run.given_up]) for name, run in runs.items() if run.given_up is not None}
    return {
        "runs": len(runs),
        "solved": sum(run.solved is not None for run in runs.values()),
        "solvedGivenUp": [name for name, (run, _) in ended.items() if run.solved is not None],
        "unsolvedGivenUp": sum(run.solved is None for run, _ in ended.values()),
        "rawFrames": sum(_end(run).raw_frames for run in runs.values()),
        "savedRawFrames": sum(_end(run).raw_frames - at.raw_frames for run, at in ended.values()),
        "seconds": sum(_end(run).seconds for run in runs.values()),
        "savedSeconds": sum(_end(run).seconds - at.seconds for run, at in ended.values()),
    }


def _end(run: Judged) -> Moment:
    """Where the run ended, or would have once it was solved."""
    return run.solved or run.last


def _at(where: Moment) -> str:
    score = "" if where.mean_return is None else f", training return {where.mean_return:.2f}"
    return f"{where.raw_frames:,} raw frames, {where.seconds:,.0f} s{score}"


def records_of(run: Path) -> list[dict[str, Any]]:
    """The records of ``run``, oldest first; lines that are none are passed over, as one cut short by a kill. Raises UsageError
    where there is none to read."""
    require_data_plane("rljob why --rules")
    from rljob.telemetry.recorder import METRICS_FILE, read_records

    file = run / METRICS_FILE if run.is_dir() else run
    try:
        records = read_records(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give folders of runs, or their metrics.jsonl") from None
    if not any("raw_frames" in record for record in records):
        raise UsageError(f"{file}: it holds no record of a run; give folders of runs, or their metrics.jsonl")
    return records


RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN|JOB...",
        help="The run's folder; on a cluster the job's name. With --rules folders of runs, or files such as metrics.jsonl.",
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
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Explain a job: the last decision about its actors, with all numbers, and its limits; during training the gain of one more
    of each part; for a job that does not run, the conditions and the last failures.

    With --rules no job is asked: rljob shows where successPolicy, earlyStopping and deadlines of a manifest would have ended
    recorded runs, and what that would have saved.

    Examples:

      rljob why

      rljob why -n team-a pong

      rljob why --rules job.yaml runs/pong-*

      rljob why --rules job.yaml runs/* \\
        --set earlyStopping.valueLoss.factor=5
    """
    with one_line_errors():
        if rules is not None:
            if not runs or any((namespace, context, kubeconfig)):
                raise UsageError("--rules needs runs on this machine: their folders, or their metrics.jsonl")
            job = load_manifest(rules, overrides or ())
            found = {run: judged(job, records_of(Path(run))) for run in runs}
            typer.echo("\n".join(recorded_lines(found)))
            return
        if overrides or len(runs or ()) > 1:
            raise UsageError("--set and several runs go with --rules FILE; without it one job is explained")
        place = Place(namespace, context, kubeconfig)
        with jobs_of(place) as jobs:
            run = jobs.chosen(runs[0] if runs else None, or_experiment=True).look()
            cores = None if Meaning.cluster or any(place) else float(usable_cores())
            for line in (*reasons(run), *_next_unit(run, cores)):
                typer.echo(line)


def _next_unit(run: JobView, cores: float | None) -> Iterator[str]:
    """What one more of each thing would bring by the learner's figures; where they do not tell, or training stands still for an
    evaluation, what the status has of it. ``cores``: that all roles share, None on a cluster."""
    if is_experiment(run.document) or run.status.finished:
        return
    try:
        spec = parse_job(run.document).spec
    except ManifestError:  # it was edited since, or is not there
        spec = None
    figures = flatten_status(run.figures.to_document()) if run.figures.state != "Evaluating" else {}
    found = next_units(
        figures,
        spec,
        cores=cores,
        seconds_left=run.status.progress.estimated_seconds_remaining,
    )
    told = [crowded(figures, cores) or run.status.progress.next_unit] if found is None else list(lines(found))
    yield from ("", *told) if any(told) else ()
