"""``rljob explain`` and ``rljob presets``: what they print, and that it can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rljob.api import PRESETS, load_manifest, parse_job
from rljob.api.catalogue import explained

from tests.support.command_line import printed, refused


def explain(*words: str) -> str:
    return printed("explain", *words, env={"COLUMNS": "100"})


def test_a_field() -> None:
    assert explain("algorithm.impala.learningRate").splitlines() == [
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
    blocks = ("apeXDQN", "impala", "ppo", "sac")
    assert explain(given) == "\n\n".join(explain(f"algorithm.{each}.learningRate") for each in blocks)
    assert explain("unrollQueue.capacity").startswith("spec.algorithm.impala.unrollQueue.capacity\n")
    assert refused("explain", "name"), "there are too many"


def test_a_section_has_a_line_for_each_field() -> None:
    lines = explain("spec.algorithm.impala.unrollQueue").splitlines()
    at = lines.index("Fields:")
    assert [line.split()[0] for line in lines[at + 1 :]] == ["capacity", "overflow", "maxPolicyLagUpdates"]
    assert lines[at + 1].split("  ")[-1].strip() == "Unrolls that may wait; at least one batch."
    assert "  PongVTrace  capacity" in lines[lines.index("Presets that set something in it:") :]


def test_a_link_is_not_broken_over_lines() -> None:
    lines = explain("actors.env").splitlines()
    assert "https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/" in lines


def test_without_a_field_the_whole_object_is_shown() -> None:
    shown = explain()
    assert (shown.startswith("rljob\n"), "\n  spec.algorithm " in shown) == (True, True)


def test_long_words_keep_to_the_width_and_are_whole() -> None:
    field = "algorithm.impala.network"
    lines = explain(field).splitlines()
    assert max(map(len, lines)) <= 100
    words = " ".join(" ".join(lines).split())
    assert all(paragraph in words for paragraph in explained(field).description)
    assert explained(field).type in words


def test_an_unknown_field_or_preset_names_the_nearest_in_a_line() -> None:
    assert refused("explain", "learningRat").count("\n") == 1
    for words, said in (
        (("explain", "actors.replica"), "spec.actors has no field 'replica'; did you mean spec.actors.replicas?"),
        (("presets", "PongVtrac"), "PongVtrac: unknown preset; did you mean 'PongVTrace'?"),
    ):
        assert refused(*words) == f"rljob: {said}\n"


def test_the_list_of_presets_says_all_there_is_to_say() -> None:
    words = " ".join(printed("presets").split())
    for name, preset in PRESETS.items():
        assert name in words
        for fact in (preset.purpose, preset.expected, preset.time, preset.frames, preset.source):
            assert " ".join(fact.split()) in words


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_the_same_job(name: str, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(printed("presets", name))
    written_out = load_manifest(file)
    head: dict[str, Any] = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name.lower()}}
    example = PRESETS[name].example
    by_name = parse_job({**head, "spec": {"preset": name, **({"environment": {"id": example}} if example else {})}})
    assert written_out.metadata == by_name.metadata
    assert written_out.spec == by_name.spec.model_copy(update={"preset": None})
