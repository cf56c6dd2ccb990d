"""``rljob explain`` and ``rljob presets``: what they print, and that it can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rljob.api import PRESETS, load_manifest, parse_job
from rljob.api.catalogue import explained
from rljob.cli.app import app
from typer.testing import CliRunner, Result


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})


def test_a_field() -> None:
    result = invoke("explain", "algorithm.impala.learningRate")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "spec.algorithm.impala.learningRate",
        "",
        "Step size of the optimiser at the start.",
        "",
        "  Type      number above 0 to 1",
        "  Default   0.0006",
        "  Changes   while the job is suspended",
        "",
        "Presets that set it:",
        "  PongVTrace      0.001",
        "  CartPoleIMPALA  0.001",
        "  ImpalaAtari     0.0006",
    ]


@pytest.mark.parametrize("given", ["learningRate", "learning_rate"])
def test_a_field_is_found_wherever_it_is(given: str) -> None:
    result = invoke("explain", given)
    assert result.exit_code == 0
    blocks = ("apeXDQN", "impala", "ppo", "sac")
    assert result.stdout == "\n\n".join(invoke("explain", f"algorithm.{each}.learningRate").stdout for each in blocks)
    assert invoke("explain", "unrollQueue.capacity").stdout.startswith("spec.algorithm.impala.unrollQueue.capacity\n")
    assert invoke("explain", "name").exit_code == 2, "there are too many"


def test_a_section_has_a_line_for_each_field() -> None:
    lines = invoke("explain", "spec.algorithm.impala.unrollQueue").stdout.splitlines()
    at = lines.index("Fields:")
    assert [line.split()[0] for line in lines[at + 1 :]] == ["capacity", "overflow", "maxPolicyLagUpdates"]
    assert lines[at + 1].split("  ")[-1].strip() == "Unrolls that may wait; at least one batch."
    assert "  PongVTrace  capacity" in lines[lines.index("Presets that set something in it:") :]


def test_a_link_is_not_broken_over_lines() -> None:
    lines = invoke("explain", "actors.env").stdout.splitlines()
    assert "https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/" in lines


def test_without_a_field_the_whole_object_is_shown() -> None:
    result = invoke("explain")
    assert result.exit_code == 0
    assert result.stdout.startswith("rljob\n")
    assert "\n  spec.algorithm " in result.stdout


def test_long_words_keep_to_the_width_and_are_whole() -> None:
    field = "algorithm.impala.network"
    lines = invoke("explain", field).stdout.splitlines()
    assert max(map(len, lines)) <= 100
    words = " ".join(" ".join(lines).split())
    assert all(paragraph in words for paragraph in explained(field).description)
    assert explained(field).type in words


def test_an_unknown_field_is_one_line_and_exits_2() -> None:
    result = invoke("explain", "learningRat")
    assert result.exit_code == 2
    assert result.stdout == ""
    result = invoke("explain", "actors.replica")
    assert result.exit_code == 2
    assert result.stderr == "rljob: spec.actors has no field 'replica'; did you mean spec.actors.replicas?\n"


def test_the_list_of_presets_says_all_there_is_to_say() -> None:
    result = invoke("presets")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for name, preset in PRESETS.items():
        assert name in words
        for fact in (preset.purpose, preset.expected, preset.time, preset.frames, preset.source):
            assert " ".join(fact.split()) in words


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_the_same_job(name: str, tmp_path: Path) -> None:
    result = invoke("presets", name)
    assert result.exit_code == 0
    file = tmp_path / "m.yaml"
    file.write_text(result.stdout)
    written_out = load_manifest(file)
    head: dict[str, Any] = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name.lower()}}
    example = PRESETS[name].example
    by_name = parse_job({**head, "spec": {"preset": name, **({"environment": {"id": example}} if example else {})}})
    assert written_out.metadata == by_name.metadata
    assert written_out.spec == by_name.spec.model_copy(update={"preset": None})


def test_an_unknown_preset_names_the_nearest() -> None:
    result = invoke("presets", "PongVtrac")
    assert result.exit_code == 2
    assert result.stderr == "rljob: PongVtrac: unknown preset; did you mean 'PongVTrace'?\n"
