"""``rljob render --effective``, ``rljob render PRESET`` and ``rljob explain``: what they print, and that it can be used."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rljob.api import PRESETS, load_manifest, parse_job
from rljob.api.catalogue import explained
from rljob.api.document import parse_document
from rljob.api.effective import NO_ALGORITHM

from tests.support.command_line import invoke, printed, refused

NO_FILE = "cannot be read: No such file or directory"
PRESET_ONLY = """\
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {name: a}
spec: {preset: PongVTrace}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(PRESET_ONLY)
    return path


def test_what_a_users_file_prints_is_not_the_job(file: Path, tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(
        "import os\nimport gymnasium\nprint('imported')\nos.system('echo by a program')\n\n"
        "def make(): return gymnasium.make('CartPole-v1')\n"
    )
    overrides = ["--set", "spec.environment.id=prints.py:make", "--set", "successPolicy={rawFrames: 9}"]
    words = [sys.executable, "-m", "rljob_operator", "render", str(file), "--effective", *overrides]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("apiVersion: ")
    assert [word for word in ("imported\n", "by a program\n") if word not in done.stderr] == []


def test_it_prints_yaml_alone_with_presets_and_defaults_filled_in(file: Path) -> None:
    result = invoke("render", file, "--effective", "--set", "spec.algorithm.learningRate=3e-4")
    assert (result.exit_code, result.stderr) == (0, "")
    parameters = parse_document(result.stdout.encode(), "stdout")["spec"]["algorithm"]
    own = parameters["impala"]
    # Written, of the preset, a default, and a computed one.
    found = [parameters["learningRate"], parameters["unrollLength"], own["correctOffPolicy"]]
    assert (found, own["unrollQueue"]["maxPolicyLagUpdates"] > 0) == ([3e-4, 128, True], True)


def test_what_it_prints_is_the_same_job(file: Path) -> None:
    assert parse_job(parse_document(printed("render", file, "--effective").encode(), "stdout")) == load_manifest(file)


def test_a_bad_manifest_prints_no_job(file: Path) -> None:
    result = invoke("render", file, "--effective", "--set", "spec.actors.replicas=-1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "spec.actors.replicas" in result.stderr


def test_without_it_a_line_says_what_the_job_is_and_one_each_what_its_environment_shows_and_takes(file: Path) -> None:
    assert printed("validate", file).splitlines() == [
        f"{file}: ok, IMPALA on ALE/Pong-v5",
        "  observation: image uint8 [42, 42]",
        "  action: Discrete int64 [] of 3",
        "  frames stacked: 4",
    ]
    assert printed("validate", file, "--no-environment") == f"{file}: ok, IMPALA on ALE/Pong-v5\n"


def test_what_of_a_preset_is_about_another_environment_is_named(file: Path) -> None:
    """Pong's actions and Pong's target mean nothing in Breakout; they were kept, and the job could never end."""
    elsewhere = ("--set", "spec.environment.id=ALE/Breakout-v5")
    said = refused("validate", file, *elsewhere)
    assert "spec.successPolicy: required: targetReturn, metric or rawFrames" in said
    ends = (
        *elsewhere,
        "--set",
        "spec.successPolicy.targetReturn.value=30",
        "--set",
        "spec.environment.atari.frameSize=42",
    )
    ok, *_, said = printed("validate", file, *ends).splitlines()
    assert ok == f"{file}: ok, IMPALA on ALE/Breakout-v5"
    assert said.startswith("  preset PongVTrace is of ALE/Pong-v5, and for ALE/Breakout-v5 this of it does not count: ")
    for left_out in ("environment.actions [0, 2, 3]", "algorithm.network Compact", "targetReturn.value 18"):
        assert left_out in said
    assert "frameSize" not in said, "it was written again"
    effective = invoke("render", file, *ends, "--effective")
    assert effective.stderr.strip() == said.strip()
    assert parse_document(effective.stdout.encode(), "stdout")["spec"]["environment"]["actions"] == "Clipped"


def test_that_ppo_was_chosen_is_said_in_one_sentence(file: Path) -> None:
    """Beside the verdict, and on stderr where stdout is the job in force; not where the manifest names its algorithm."""
    file.write_text(PRESET_ONLY.replace("preset: PongVTrace", "environment: {id: Pendulum-v1}"))
    quick = ("validate", file, "--no-environment")
    assert printed(*quick).splitlines() == [f"{file}: ok, PPO on Pendulum-v1", f"  {NO_ALGORITHM}"]
    effective = invoke("render", file, "--effective")
    assert effective.stderr == f"  {NO_ALGORITHM}\n"
    assert parse_document(effective.stdout.encode(), "stdout")["spec"]["algorithm"]["type"] == "PPO"
    for type_ in ("PPO", "IMPALA", "ApeXDQN"):
        assert printed(*quick, "--set", f"spec.algorithm.type={type_}") == f"{file}: ok, {type_} on Pendulum-v1\n"


def test_a_null_in_the_place_of_what_a_preset_says_is_named(file: Path) -> None:
    """An API server prunes it, and so it means nothing here either."""
    file.write_text(
        PRESET_ONLY.replace("PongVTrace", "PongVTrace, successPolicy: {targetReturn: {value: null}}, image: null")
    )
    *_, said = printed("validate", file).splitlines()
    path = "successPolicy.targetReturn.value"
    assert said == f"  spec.{path}: null removes nothing; presetWithout: [{path}] does"
    taken = invoke(
        "render",
        file,
        "--set",
        "presetWithout=[successPolicy.targetReturn.value]",
        "--set",
        "successPolicy=",
        "--effective",
    )
    assert (taken.exit_code, taken.stderr) == (0, "")
    assert (
        "successPolicy" not in parse_document(taken.stdout.encode(), "stdout")["spec"]
        or "targetReturn:" not in taken.stdout
    )


def explain(*words: str) -> str:
    return printed("explain", *words, env={"COLUMNS": "100"})


def test_a_field() -> None:
    assert explain("algorithm.gamma").splitlines()[:-9] == [
        "spec.algorithm.gamma",
        "",
        "Discount per step.",
        "",
        "  Type      number from 0 to 1",
        "  Default   0.99",
        "  Changes   while the job is suspended: never with ApeXDQN and SAC, as stored experience was made",
        "            with it",
        "",
        "Presets that set it:",
        "  PongApeX        0.99",
        "  CartPoleApeX    0.99",
        "  ApeXAtari       0.99",
    ]


@pytest.mark.parametrize("given", ["learningRate", "learning_rate"])
def test_a_field_is_found_wherever_it_is(given: str) -> None:
    assert explain(given) == explain("algorithm.learningRate")
    assert explain("unrollQueue.capacity").startswith("spec.algorithm.impala.unrollQueue.capacity\n")
    assert refused("explain", "name"), "there are too many"


def test_a_section_has_a_line_for_each_field() -> None:
    lines = explain("spec.algorithm.impala.unrollQueue").splitlines()
    at = lines.index("Fields:")
    assert [line.split()[0] for line in lines[at + 1 :]] == ["capacity", "overflow", "maxPolicyLagUpdates"]
    assert lines[at + 1].split("  ")[-1].strip() == "Unrolls that may wait."


def test_a_link_is_not_broken_over_lines() -> None:
    lines = explain("actors.env").splitlines()
    assert "https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/" in lines


def test_without_a_field_the_spec_is_shown() -> None:
    shown = explain()
    assert (shown.startswith("spec\n"), "\n  algorithm " in shown) == (True, True)


def test_long_words_keep_to_the_width_and_are_whole() -> None:
    field = "algorithm.network"
    lines = explain(field).splitlines()
    assert max(map(len, lines)) <= 100
    words = " ".join(" ".join(lines).split())
    assert all(paragraph in words for paragraph in explained(field).description)
    assert explained(field).type in words


def test_an_unknown_field_or_preset_names_the_nearest_in_a_line() -> None:
    assert refused("explain", "learningRat").count("\n") == 1
    for words, said in (
        (("explain", "actors.replica"), "spec.actors has no field 'replica'; did you mean spec.actors.replicas?"),
        (("render", "PongVtrac"), f"PongVtrac: {NO_FILE}; did you mean 'PongVTrace'?"),
        (("render", "manifests/pong-ppo.yaml"), f"manifests/pong-ppo.yaml: {NO_FILE}; did you mean 'PongPPO'?"),
    ):
        assert refused(*words) == f"rljob: {said}\n"


def test_the_list_of_presets_says_all_there_is_to_say() -> None:
    words = " ".join(printed("explain", "preset").split())
    for name, preset in PRESETS.items():
        assert name in words
        for fact in (preset.purpose, preset.expected, preset.time, preset.frames, preset.source):
            assert " ".join(fact.split()) in words


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_the_same_job(name: str, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(printed("render", name))
    written_out = load_manifest(file)
    head: dict[str, Any] = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name.lower()}}
    example = PRESETS[name].example
    by_name = parse_job({**head, "spec": {"preset": name, **({"environment": {"id": example}} if example else {})}})
    assert written_out.metadata == by_name.metadata
    assert written_out.spec == by_name.spec.model_copy(update={"preset": None})
