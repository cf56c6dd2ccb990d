"""The steps of benchmarks/gpu in their tiny form on a CPU: each goes its whole way, and says what it lacks before it begins."""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.gpu import bench, learner_alone
from tests.support.devices import ByCalling
from tests.support.paths import ROOT

STEPS = ROOT / "benchmarks" / "gpu"
ALONE = {
    "limits": "products",
    "learner_alone": "updates",
    "copies": "updates",
    "inference": "central against local",
    "simulation": "an unroll against a step",
}
"""Steps that start no run, and a figure that each is there for. utilisation needs the driver's program."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "figures.jsonl"


def step(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> list[dict[str, Any]]:
    """The lines that a step left in ``out``."""
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out), "--commit", "abc", *options])
    importlib.import_module(f"benchmarks.gpu.{name}").main()
    return lines_of(out)


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("name", ALONE)
def test_a_step_writes_its_figures(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = step(name, out, monkeypatch, "--device", "cpu", "--seconds", "1")
    assert [line for line in lines if "failed" in line] == []
    assert (lines[0]["figure"], lines[0]["commit"]) == ("machine", "abc")
    assert any(line["figure"] == ALONE[name] for line in lines[1:])


def test_the_learners_own_graph_is_measured(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``ByCalling`` in the place of a graph: what is around one can be tried anywhere."""
    capture = ByCalling()
    monkeypatch.setattr(learner_alone, "cuda_graph", capture)
    lines = step("learner_alone", out, monkeypatch, "--device", "cpu", "--seconds", "1", "--ways", "graph")
    assert [line for line in lines if "failed" in line] == []
    assert {line["learner"] for line in lines if line["figure"] == "updates"} == {"ApeXDQN", "IMPALA"}
    assert all(line["difference"] < 0.01 for line in lines if line["figure"] == "graph against eager")
    assert capture.replays > 10


def test_utilisation_is_read_under_every_load(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = step("utilisation", out, monkeypatch, "--device", "cpu", "--seconds", "1")
    assert [line.get("load") for line in lines[1:]] == ["idle", "at times", "always"]
    assert all(line["ours"] == {} for line in lines[1:] if "failed" not in line), "a CPU has no such figures"


@pytest.mark.parametrize("name", [*ALONE, "utilisation", "works", "minutes_to_18", "feeding"])
def test_without_a_device_a_step_says_so_and_does_nothing(
    name: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "why_no_cuda", lambda: "torch finds no CUDA device")
    with pytest.raises(SystemExit, match=f"^{bench.MISSING}$"):
        step(name, out, monkeypatch)
    (line,) = lines_of(out)
    assert (line["figure"], "a CUDA device: torch finds no CUDA device" in str(line["what"])) == ("missing", True)


def test_what_goes_wrong_is_a_line_and_the_others_are_kept(out: Path) -> None:
    figures = bench.Figures("step", out)
    for number in range(3):
        with figures.trying("rate", number=number):
            if number == 1:
                raise RuntimeError("no such thing\nand more")
            figures.write("rate", number=number, value=number / 3)
    found = [(line["number"], line.get("failed"), line.get("value")) for line in lines_of(out)]
    assert found == [(0, None, 0.0), (1, "RuntimeError: no such thing", None), (2, None, 0.6667)]


def test_the_wheels_to_carry_are_the_pinned_ones() -> None:
    def named(file: Path) -> dict[str, str]:
        wanted = [Requirement(line) for line in file.read_text().splitlines()]
        return {canonicalize_name(each.name): str(each.specifier) for each in wanted}

    pins, carried = named(ROOT / "constraints.txt"), named(STEPS / "wheels.txt")
    assert len(carried) > 20
    assert {name: pins.get(name) for name in carried} == carried


def test_the_page_names_every_step() -> None:
    steps = re.findall(r"^\| \d+ \| `(\w+)` \|", (STEPS / "README.md").read_text(), re.MULTILINE)
    assert sorted(steps) == sorted(file.stem for file in STEPS.glob("*.py") if "def main()" in file.read_text())
