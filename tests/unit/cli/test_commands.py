"""The command line from outside: exit codes, one-line errors, help that teaches."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from rljob.cli.app import PANELS
from rljob.command_errors import one_line_errors
from rljob.wire.version import WIRE_VERSION
from rljob_operator.cli import app
from typer.testing import CliRunner, Result

from tests.support.paths import EXAMPLES, MANIFESTS

GOOD = EXAMPLES / "cartpole-apex.yaml"


def invoke(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)


def test_validate_examples() -> None:
    result = invoke("validate", *MANIFESTS)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(": ok, ") == len(MANIFESTS) >= 8
    assert "cartpole-qr-dqn.yaml: ok, qr_dqn.py:QRDQN on CartPole-v1\n" in result.stdout


def test_validate_names_every_problem_of_every_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.read_text() + "  replay: {capacity: many, shardz: 2}\n")
    result = invoke("validate", bad, GOOD, tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert f"{bad}: 2 problems" in result.stderr
    assert "spec.replay.capacity: got 'many'; allowed: an integer" in result.stderr
    assert "spec.replay.shardz: got 2; unknown field; did you mean 'shards'?" in result.stderr
    assert "none.yaml: cannot be read: No such file or directory" in result.stderr
    assert result.stdout == (
        f"{GOOD}: ok, ApeXDQN on CartPole-v1\n  observation: vector float32 [4]\n  action: Discrete int64 [] of 2\n"
    )


def test_a_home_is_expanded_where_a_shell_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "a job.yaml").write_text(GOOD.read_text())
    result = invoke("validate", "~/a job.yaml", env={"HOME": str(tmp_path)})
    assert result.stdout.startswith(f"{tmp_path}/a job.yaml: ok, "), result.output
    assert invoke("keys", "~/keys", env={"HOME": str(tmp_path)}).exit_code == 0
    assert (tmp_path / "keys").is_dir()
    refused = invoke("run", GOOD, "--run-dir=~nobody-has-this-name/a")
    assert refused.exit_code == 2
    assert "there is no user" in refused.stderr


def test_a_manifest_from_standard_input() -> None:
    for verb in ("validate", "render"):
        result = CliRunner().invoke(app, [verb, "-"], input=GOOD.read_text())
        assert result.exit_code == 0, result.output
        assert "cartpole" in result.stdout.lower()
    result = CliRunner().invoke(app, ["validate", "-"], input="")
    assert result.exit_code == 2
    assert "-: is empty; allowed: one RLJob document" in result.stderr


def test_validate_with_overrides() -> None:
    assert invoke("validate", GOOD, "--set", "spec.algorithm.apeXDQN.gamma=0.9").exit_code == 0
    result = invoke("validate", GOOD, "--set", "spec.algorithm.apeXDQN.gamma=9")
    assert result.exit_code == 2
    assert "spec.algorithm.apeXDQN.gamma: got 9; allowed: a number from 0 to 1" in result.stderr


@pytest.mark.parametrize("command", [("eval",), ("play", "--video", "a.mp4"), ("report",)])
def test_a_missing_run_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    result = invoke(command[0], tmp_path / "none", *command[1:])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert (
        "none: no run folder" if command[0] == "report" else "none: no such file or folder; give a run"
    ) in result.stderr


@pytest.mark.parametrize("command", [("eval",), ("play", "--video", "a.mp4"), ("export",)])
def test_a_file_in_the_place_of_a_run_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no run")
    result = invoke(command[0], tmp_path / "file", *command[1:])
    assert result.exit_code == 2
    assert result.stderr == f"rljob: {tmp_path / 'file'}: not a folder; {result.stderr.partition('; ')[2]}"
    assert "give a run folder or one of its checkpoints" in result.stderr


def test_the_version_is_that_of_the_package_and_of_what_roles_speak() -> None:
    assert invoke("--version").stdout == f"rljob {version('rljob')}, protocol {WIRE_VERSION}\n"


def test_an_empty_run_is_one_line(tmp_path: Path) -> None:
    result = invoke("eval", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("rljob: ")
    assert "Traceback" not in result.stderr


def test_play_checks_the_video_first(tmp_path: Path) -> None:
    assert "ends in .mp4" in invoke("play", tmp_path, "--video", tmp_path / "a.gif").stderr
    assert "there is no folder" in invoke("play", tmp_path, "--video", tmp_path / "b" / "a.mp4").stderr


@pytest.mark.parametrize("command", ["validate", "eval", "play", "report", "compare", "worker", "explain", "presets"])
def test_help_teaches_by_example(command: str) -> None:
    result = invoke(command, "--help", env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    assert "Example" in text
    assert f"rljob {command} " in text


def test_help_keeps_to_a_terminal_of_80_columns() -> None:
    """A paragraph is wrapped by the terminal alone: with its lines of the source kept, every other one broke after two words."""
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        for paragraph in (command.help or "").split("\n\n"):
            if paragraph.startswith(" "):
                assert max(map(len, paragraph.splitlines())) <= 78, (command.name, paragraph)
            else:
                assert "\n" not in paragraph, (command.name, paragraph)


def test_help_groups_the_commands() -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", invoke("--help", env={"COLUMNS": "80", "NO_COLOR": "1"}).output)
    panels = [re.sub("[─╭╮ ]+", " ", line).strip() for line in shown.splitlines() if line.startswith("╭")]
    assert panels == ["Options", *PANELS]
    firsts = [re.search(rf"─ {panel} ─.*\n│ (\w+) ", shown) for panel in PANELS]
    assert [found and found[1] for found in firsts] == ["validate", "run", "eval", "keys"]


def test_help_shows_what_is_taken_where_nothing_is_given() -> None:
    """Rich takes brackets in a help text for markup and drops them, so none may stand there: a default is given to typer."""
    shown = []
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        for parameter in command.params:
            assert "[" not in (getattr(parameter, "help", None) or ""), (command.name, parameter.name)
            if isinstance(parameter.show_default, str):
                shown.append((command.name, parameter.show_default))
    assert ("top", "the newest under runs/, or the only job of the namespace") in shown
    assert ("run", "runs/<name>-<time>") in shown
    for name, default in shown:
        text = invoke(name, "--help", env={"COLUMNS": "300", "NO_COLOR": "1"}).output
        assert f"[default: ({default})]" in re.sub(r"\x1b\[[0-9;]*m", "", text), name


def test_a_bucket_without_the_package_for_it_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    result = invoke("eval", "s3://bucket/run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("needs the package obstore, which this install lacks: pip install 'rljob[s3]'\n")


def test_an_end_that_is_meant_is_no_failure() -> None:
    with pytest.raises(typer.Exit) as ended, one_line_errors():
        raise typer.Exit(0)
    assert ended.value.exit_code == 0


def test_top_help_starts_with_what_to_type() -> None:
    result = invoke("--help", env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert "rljob run manifests/examples/pong-vtrace.yaml" in re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def test_a_command_waits_for_the_imports_of_no_other() -> None:
    """A shell that completes a word waits for them each time."""
    code = (
        "import sys; sys.argv = ['rljob', *sys.argv[1:]]\n"
        "from rljob_operator.cli import main\n"
        "try: main()\n"
        "except SystemExit as error: assert error.code == 0\n"
        "heavy = ('pydantic', 'torch', 'zmq', 'redis')\n"
        "print([name for name in sys.modules if name in heavy or name.startswith('rljob_operator.verbs.')])"
    )
    shown = []
    for words in (["--version"], ["validate", str(GOOD)]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=60
        )
        shown.append(done.stdout.splitlines()[-1])
    assert shown == ["[]", "['pydantic']"]


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = invoke("--debug", "eval", tmp_path / "none")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "Traceback" not in invoke("eval", tmp_path / "none").stderr
