"""Draw the chart's Grafana dashboards from what a Prometheus has kept of a run, as `docs/images/dashboard-*.svg`.

    python -m benchmarks.dashboard_pictures DATA --job-namespace NS --job NAME [--operator-namespace NS] [--minutes 6]

DATA is a Prometheus's data folder, such as tests/e2e/test_monitoring.py leaves where RLJOB_E2E_PROMETHEUS says. A Prometheus is
started on it that scrapes nothing; it must be on the PATH. Every panel asks what Grafana would ask, and stands where Grafana
would put it. Stacked panels are drawn as lines.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rljob.telemetry.charts import COLOURS, Series, compact, line_chart

from tests.support.dashboards import FILES, filled, read
from tests.support.paths import ROOT
from tests.support.ports import free_ports
from tests.support.prometheus import Prometheus

OUT = ROOT / "docs" / "images"
PALETTE = ("#1f6fb4", "#d1495b", "#3d8f5f", "#e0902f", "#7d5ba6", "#4d4d4d", "#17a2a2", "#b8860b")
UNITS = {
    "percentunit": (100.0, "%"),
    "bytes": (1e-6, "MB"),
    "s": (1.0, "seconds"),
    "short": (1.0, ""),
    "none": (1.0, ""),
}
COLUMN, ROW = 60, 33
"""Size of a cell of Grafana's grid, which has 24 columns; most charts take 8 x 8 cells."""
TITLE, LEGEND, GAP = 26, 22, 10
LONGEST_NAME = 20
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #444; } .chart text { font-size: 15px; }
.head { font-size: 20px; font-weight: 600; fill: #222; } .title { font-size: 14px; font-weight: 600; fill: #222; }
.big { font-size: 24px; font-weight: 600; fill: #1f6fb4; } .panel { fill: #fff; stroke: #dcdcdc; }
.grid { stroke: #e4e4e4; } .line { fill: none; stroke-width: 2.4; stroke-linejoin: round; }
"""
STYLE += "".join(f".s{i} {{ stroke: {colour}; }} .f{i} {{ fill: {colour}; }}" for i, colour in enumerate(PALETTE))


class Run:
    """What a run has left in a Prometheus, and which part of it is drawn."""

    def __init__(self, prometheus: Prometheus, end: float, minutes: float, variables: dict[str, str]) -> None:
        self._prometheus, self.end, self.start = prometheus, end, end - 60.0 * minutes
        self._variables = variables

    def lines(self, expression: str, legend: str) -> Iterator[tuple[str, list[tuple[float, float]]]]:
        """(name, points in minutes since the start) of each series."""
        step = max(1.0, (self.end - self.start) / 120)
        for found in self._prometheus.query_range(self._filled(expression), self.start, self.end, step):
            yield _named(legend, found["metric"]), list(self._points(found["values"], step))

    def values(self, expression: str, legend: str) -> Iterator[tuple[str, float]]:
        """(name, value) of each series at the end."""
        for found in self._prometheus.query(self._filled(expression), self.end):
            yield _named(legend, found["metric"]), float(found["value"][1])

    def _points(self, values: Sequence[tuple[float, str]], step: float) -> Iterator[tuple[float, float]]:
        """In minutes; where samples are missing, a point that is no number, which breaks the line."""
        before = float("inf")
        for at, value in values:
            if at - before > 1.5 * step:
                yield (at - self.start) / 60.0, float("nan")
            yield (at - self.start) / 60.0, float(value)
            before = at

    def _filled(self, expression: str) -> str:
        return filled(expression, self._variables)


def _named(legend: str, labels: dict[str, str]) -> str:
    """The legend with its labels; of a long name, such as a pod's, the end, which tells it from others."""
    name = re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)
    return name if len(name) <= LONGEST_NAME else f"…{name[-LONGEST_NAME + 1 :]}"


def stat(run: Run, panel: Any, unit: str, width: int, height: int) -> str:
    """The value at the end, large; for a panel that shows names, the name."""
    factor, word = UNITS[unit]
    found = [each for ask in panel["targets"] for each in run.values(ask["expr"], ask["legendFormat"])]
    mode = panel["options"]["textMode"]
    words = [
        name
        if mode == "name"
        else " ".join(filter(None, (compact(factor * value), word, name if mode == "value_and_name" else "")))
        for name, value in found
    ]
    size = 24 if len(words) < 2 else 18
    top = height / 2 + 14 - (len(words) - 1) * (size / 2 + 2)
    return "".join(
        f'<text class="big" style="font-size:{size}px" text-anchor="middle" x="{width / 2:.0f}" '
        f'y="{top + place * (size + 4):.0f}">{escape(text)}</text>'
        for place, text in enumerate(words or ["no data"])
    )


def chart(run: Run, panel: Any, unit: str, width: int, height: int) -> str:
    """The lines with their legend below; the words `no data` where there are none."""
    found = [each for ask in panel["targets"] for each in run.lines(ask["expr"], ask["legendFormat"])]
    short = unit == "s" and all(not y >= 1.0 for _, points in found for _, y in points)
    factor, word = (1000.0, "milliseconds") if short else UNITS[unit]
    series = [
        Series(name, [(x, factor * y) for x, y in points], colour=place % COLOURS)
        for place, (name, points) in enumerate(found)
    ]
    zero = panel["fieldConfig"]["defaults"].get("min") == 0
    drawn = line_chart(panel["title"], series, x_label="minutes", y_label=word, from_zero=zero).svg
    if not drawn:
        return f'<text text-anchor="middle" x="{width / 2:.0f}" y="{height / 2:.0f}">no data</text>'
    place = f'x="4" y="{TITLE}" width="{width - 8}" height="{height - TITLE - LEGEND}"'
    parts = [re.sub("^<svg ", f"<svg {place} ", str(drawn))]
    x = 12.0
    for name, colour in ((one.name, one.colour) for one in series):
        if x + 20 + 7.0 * len(name) > width:
            parts.append(f'<text x="{x:.0f}" y="{height - 8}">…</text>')
            break
        parts.append(f'<rect class="f{colour}" x="{x:.0f}" y="{height - 14}" width="12" height="4"/>')
        parts.append(f'<text x="{x + 16:.0f}" y="{height - 8}">{escape(name)}</text>')
        x += 28 + 7.0 * len(name)
    return "".join(parts)


def picture(document: dict[str, Any], run: Run) -> str:
    """The whole dashboard as SVG."""
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in document["panels"])
    width, height = 24 * COLUMN, bottom * ROW + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#f4f5f5"/>',
        f'<text class="head" x="{GAP}" y="28">{escape(document["title"])}</text>',
    ]
    for panel in document["panels"]:
        at, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
        wide, high = at["w"] * COLUMN - GAP, at["h"] * ROW - GAP
        draw = stat if panel["type"] == "stat" else chart
        parts.append(
            f'<g transform="translate({at["x"] * COLUMN + GAP / 2:.0f} {at["y"] * ROW + 40})">'
            f'<rect class="panel" width="{wide}" height="{high}" rx="3"/>'
            f'<text class="title" x="10" y="19">{escape(panel["title"])}</text>'
            f"{draw(run, panel, unit, wide, high)}</g>"
        )
    return "".join(parts) + "</svg>\n"


def last_sample(prometheus: Prometheus) -> float:
    """When the newest sample of the data was taken. Raises SystemExit where there is none in 30 days."""
    kept = prometheus.query("max(max_over_time(timestamp(rljob_start_time_seconds)[30d:15s]))")
    if not kept:
        raise SystemExit("no figure of a job was scraped into this folder")
    return float(kept[0]["value"][1])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--job-namespace", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--operator-namespace", help="default: the job's")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--rate-seconds", type=int, default=20, help="what $__rate_interval stands for")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(words)
    job = {"namespace": options.job_namespace, "rljob": options.job}
    of_which = {
        "job": job,
        "experiment": {**job, "experiment": options.job.rpartition("-")[0]},
        "operator": {"namespace": options.operator_namespace or options.job_namespace},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Prometheus(Path(folder), {}, port, data=options.data.absolute()) as prometheus,
    ):
        end = last_sample(prometheus)
        for file in FILES:
            variables = {**of_which[file.stem], "__rate_interval": f"{options.rate_seconds}s"}
            drawn = picture(read(file), Run(prometheus, end, options.minutes, variables))
            (options.out / f"dashboard-{file.stem}.svg").write_text(drawn)
            print(
                f"dashboard-{file.stem}.svg: {len(drawn) / 1000:.0f} kB, {drawn.count('no data')} panels without data"
            )


if __name__ == "__main__":
    main()
