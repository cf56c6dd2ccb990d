"""``rljob why``: the reasons for what a run does."""

from __future__ import annotations

import typer
from rljob.command_errors import one_line_errors

from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import chosen_run
from rljob_operator.verbs.options import RunArgument
from rljob_operator.view.reasons import why as reasons


def why(run: RunArgument = None) -> None:
    """Explain a run: the last decision about its actors with the numbers to check it by hand, and what limited it; for a run
    that does not run, the conditions and the last failures.

    Example:

      rljob why
    """
    with one_line_errors():
        for line in reasons(look(chosen_run(run), figures=False)):
            typer.echo(line)
