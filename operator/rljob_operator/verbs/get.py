"""``rljob get``: runs in columns, as `kubectl get rljob` shows them."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api.yaml_dialect import dump_document
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import RUNS, chosen_run, stored_runs
from rljob_operator.verbs.options import RunArgument
from rljob_operator.view.columns import table
from rljob_operator.view.job_view import JobView


class Form(enum.StrEnum):
    """How objects are printed."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def get(
    run: RunArgument = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every run under runs/, or under RUN.")] = False,
    output: Annotated[
        Form | None, typer.Option("--output", "-o", help="wide: more columns; json, yaml: spec and status.")
    ] = None,
) -> None:
    """Show a run, or all of them, in columns.

    ACTORS is ready/desired, DEPTH the learner's queue and its bound in batches, RETURN that of the newest games, LAG how many
    updates behind the learner its data is, DURATION the time it has been at work, AGE the time since it began. A state of
    Unattended: the processes run on, but their controller is gone.

    Examples:

      rljob get

      rljob get --all -o wide

      rljob get runs/pong-apex-20260101-120000 -o json | jq .status.conditions
    """
    with one_line_errors():
        folders = _all(run or RUNS) if everything else [chosen_run(run)]
        seen = [look(folder) for folder in folders]
        if output in (Form.JSON, Form.YAML):
            documents = [as_object(one) for one in seen]
            shown = {"apiVersion": "v1", "kind": "List", "items": documents} if everything else documents[0]
            as_json = output is Form.JSON
            typer.echo(json.dumps(shown, indent=2) if as_json else dump_document(shown).rstrip())
            return
        for line in table(seen, wide=output is Form.WIDE):
            typer.echo(line)
        for one in seen:
            if one.problem:
                typer.echo(f"{one.run_dir}: {one.problem}", err=True)


def as_object(seen: JobView) -> dict[str, Any]:
    """The run as the cluster would answer it: what is stored, with its status."""
    return {**seen.document, "status": seen.status.document()}


def _all(folder: Path) -> list[Path]:
    runs = stored_runs(folder)
    if not runs:
        raise UsageError(f"no run under {folder}/; `rljob run FILE` starts one")
    return runs
