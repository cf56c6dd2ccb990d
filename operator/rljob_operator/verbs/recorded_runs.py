"""The records of runs that have been, as `rljob why --rules` reads them: of a run folder, or of a CSV file with its curve."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rljob.errors import UsageError

from rljob_operator.core.recorded import EVALUATION

_METRICS_FILE: Final = "metrics.jsonl"
_NEEDED: Final = ("elapsed_seconds", "raw_frames", "mean_return")


def records_of(run: Path) -> list[dict[str, Any]]:
    """The records of ``run``, oldest first; lines that are none are passed over, as one cut short by a kill. Raises UsageError
    where there is none to read."""
    file = run / _METRICS_FILE if run.is_dir() else run
    try:
        with file.open(encoding="utf-8", errors="replace", newline="") as text:
            records = list(_of_csv(file, text) if file.suffix == ".csv" else _of_lines(text))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give folders of runs, or CSV files of their curves") from None
    if not any("raw_frames" in record for record in records):
        raise UsageError(f"{file}: it holds no record of a run; give folders of runs, or CSV files of their curves")
    return records


def _of_lines(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _of_csv(file: Path, text: Iterator[str]) -> Iterator[dict[str, Any]]:
    """As ``benchmarks.time_to_solve`` writes them: a row has figures, or ``evaluation_mean`` and ``evaluation_games``. An
    evaluation with fewer games than the largest one of its file was given up."""
    rows = csv.DictReader(text)
    if missing := [name for name in _NEEDED if name not in (rows.fieldnames or ())]:
        raise UsageError(f"{file}: it has no column {', '.join(missing)}; the first line names the columns")
    try:
        found = [{name: float(value) for name, value in row.items() if name and value} for row in rows]
    except (ValueError, TypeError) as error:
        raise UsageError(f"{file}: line {rows.line_num}: {error}") from None
    most = max((row.get("evaluation_games", 0.0) for row in found), default=0.0)
    for version, row in enumerate(found, 1):
        if (mean := row.get("evaluation_mean")) is not None:
            games = row.get("evaluation_games", most)
            yield {
                **row,
                "kind": EVALUATION,
                "mean": mean,
                "episodes": games,
                "finished": games >= most,
                "version": version,
            }
        else:
            yield row
