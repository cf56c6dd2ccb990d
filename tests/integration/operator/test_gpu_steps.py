"""The steps of benchmarks/gpu that start whole runs, in their tiny form on a CPU."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

SECONDS = 90
"""A run takes no longer, the start of its processes included; it ends as soon as it has the figures that its step writes."""
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
FIGURES = {"works": ["run", "report"], "minutes_to_18": ["rates", "end"], "feeding": ["run"]}


@pytest.mark.parametrize("name", FIGURES)
def test_a_step_runs_a_job_and_writes_its_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figures.jsonl"
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out), "--device", "cpu", "--seconds", str(SECONDS)])
    importlib.import_module(f"benchmarks.gpu.{name}").main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line for line in lines if "failed" in line] == []
    told = {line["figure"]: line for line in lines}
    assert set(FIGURES[name]) <= told.keys()
    rates = told.get("rates", told.get("run", {}))
    assert rates["device"] == "cpu"
    assert rates["updates_per_second"] > 0
    assert rates["bottleneck"]
    if name == "minutes_to_18":
        assert told["end"]["state"] is not None
        assert "return" in told
        assert "verdict" in told or told["end"]["state"] != "Complete", "the last one comes as the run ends"
    if name == "works":
        assert told["report"]["written"]
        assert not told["report"]["names_device"], "a processor has no name in it"
