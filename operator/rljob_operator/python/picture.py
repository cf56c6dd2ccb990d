"""A run drawn: for a notebook as HTML with its curve, elsewhere as a line of figures."""

import sys
from collections.abc import Callable
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rljob.api.learner_status import Verdict
from rljob.errors import UsageError

from rljob_operator.view import run_figures
from rljob_operator.view.job_view import JobView, table

_STYLE: Final = """<style>
.rljob-run { max-width: 560px; --c0: #3b82bd; --c1: #d1661b; --c7: #7d858c; }
.rljob-run svg { width: 100%; height: auto; }
.rljob-run .grid { stroke: currentColor; stroke-opacity: .15; } .rljob-run text { fill: currentColor; font-size: 11.5px; }
.rljob-run .line, .rljob-run .error { fill: none; stroke-width: 1.6; } .rljob-run .dashed { stroke-dasharray: 5 5; }
.rljob-run .f0 { fill: var(--c0); } .rljob-run .f1 { fill: var(--c1); } .rljob-run .f7 { fill: var(--c7); }
.rljob-run .s0 { stroke: var(--c0); } .rljob-run .s1 { stroke: var(--c1); } .rljob-run .s7 { stroke: var(--c7); }
</style>"""
"""Colours for the report's charts on a page whose own are not known, light or dark."""


def html(name: str, look: Callable[[], tuple[str, str, Verdict | None]], folder: Path | None) -> str:
    """The run's name and what ``look`` answers: its state, what there is to say, and its verdict; and the learning curve in
    ``folder``. Never raises for a run that is gone or a cluster that does not answer: that is said in their place."""
    try:
        state, message, verdict = look()
        said = [message, "" if verdict is None else f"verdict: {run_figures.verdict(verdict)}"]
        parts = [f"<b>{escape(state)}</b>", *(f"<div>{escape(each)}</div>" for each in said if each)]
        parts += [] if folder is None else _curve(folder)
    except (UsageError, OSError) as problem:
        parts = [f"<div>{escape(str(problem))}</div>"]
    return f'{_STYLE}<div class="rljob-run"><code>{escape(name)}</code> {"".join(parts)}</div>'


def _curve(folder: Path) -> list[str]:
    """The report's learning curve and its legend; nothing before there is one."""
    from rljob.telemetry.run_charts import learning_charts
    from rljob.telemetry.run_folder import read_run_folder

    charts = learning_charts(read_run_folder(folder))[:1]
    legend = [
        f'<span style="color:var(--c{n})">&#9679;</span> {escape(of)} ' for one in charts for of, n, _ in one.legend
    ]
    return [str(one.svg) for one in charts] + legend


def screen(run: object) -> Callable[[JobView], None]:
    """What to call with each look at a run that is waited for: draws its picture anew in a notebook, else prints a line of
    `rljob get`, and the heading before the first."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        drawn = import_module("IPython.display").display(run, display_id=True)
        return lambda seen: drawn.update(run)
    first = True

    def line(seen: JobView) -> None:
        nonlocal first
        print("\n".join(table([seen], wide=False)[0 if first else 1 :]), flush=True)
        first = False

    return line
