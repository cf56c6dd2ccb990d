"""The command line from outside: exit codes, one-line errors, help that teaches, and files of keys."""

import os
import re
import shutil
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from rljob.api.examples import examples
from rljob.cli.app import PANELS
from rljob.command_errors import one_line_errors
from rljob.wire.security import ROLES, SecurityProblem, load_keys
from rljob.wire.version import WIRE_VERSION
from rljob_operator.cli import app

from tests.support.command_line import invoke, printed, refused
from tests.support.paths import EXAMPLES, MANIFESTS

GOOD = EXAMPLES / "cartpole-apex.yaml"
COLOURS = r"\x1b\[[0-9;]*m"
COMMANDS = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]


def help_of(*words: str, columns: str = "200") -> str:
    return re.sub(COLOURS, "", printed(*words, "--help", env={"COLUMNS": columns, "NO_COLOR": "1"}))


@pytest.mark.timeout(300)
def test_every_example_is_right_by_its_name() -> None:
    experiments = [*(EXAMPLES / "experiments").glob("*.yaml"), *(EXAMPLES.parent / "zoo").glob("*.yaml")]
    assert {file.resolve() for file in examples().values()} == {*MANIFESTS, *experiments}
    said = printed("validate", *examples())
    assert said.count(": ok, ") == len(examples())
    assert "cartpole-qr-dqn: ok, qr_dqn.py:QRDQN on CartPole-v1\n" in said
    assert printed("render", GOOD.stem) == GOOD.read_text()
    listed = printed("examples", env={"COLUMNS": "200"})
    assert [name for name in examples() if f" {name} " not in listed] == []


def test_examples_of_an_environment() -> None:
    listed = printed("examples", "--for", "Taxi-v4", env={"COLUMNS": "200"})
    assert [name for name in examples() if f" {name} " in listed] == [
        "taxi-apex",
        "taxi-impala",
        "zoo/taxi-apex",
        "zoo/taxi-ppo",
        "zoo/taxi-vtrace",
    ]
    assert "--for Taxi-v3: no example trains in it; did you mean Taxi-v4?" in refused("examples", "--for", "Taxi-v3")
    assert "`rljob explain preset` lists settings" in refused("examples", "--for", "Zaxxon")
    said = refused("run", "Taxi-v4")
    assert "it is an environment, in which these examples train: taxi-apex, taxi-impala, zoo/taxi-apex, zoo/" in said


def test_validate_names_every_problem_of_every_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.read_text() + "  replay: {capacity: many, shardz: 2}\n")
    result = invoke("validate", bad, GOOD, tmp_path / "none.yaml")
    for words in (
        f"{bad}: 2 problems",
        "spec.replay.capacity: got 'many'; allowed: an integer",
        "spec.replay.shardz: got 2; unknown field; did you mean 'shards'?",
        "none.yaml: cannot be read: No such file or directory",
    ):
        assert words in result.stderr
    assert (result.exit_code, result.stdout) == (
        2,
        (f"{GOOD}: ok, ApeXDQN on CartPole-v1\n  observation: vector float32 [4]\n  action: Discrete int64 [] of 2\n"),
    )


def test_a_home_is_expanded_where_a_shell_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "a job.yaml").write_text(GOOD.read_text())
    home = {"HOME": str(tmp_path)}
    assert printed("validate", "~/a job.yaml", env=home).startswith(f"{tmp_path}/a job.yaml: ok, ")
    printed("keys", "~/keys", env=home)
    assert (tmp_path / "keys").is_dir()
    assert "there is no user" in refused("run", GOOD, "--run-dir=~nobody-has-this-name/a")


def test_a_manifest_from_standard_input() -> None:
    for verb in ("validate", "render"):
        assert "cartpole" in printed(verb, "-", stdin=GOOD.read_text()).lower()
    assert "-: is empty; allowed: one RLJob document" in refused("validate", "-", stdin="")


def test_validate_with_overrides() -> None:
    printed("validate", GOOD, "--set", "spec.algorithm.gamma=0.9")
    said = refused("validate", GOOD, "--set", "spec.algorithm.gamma=9")
    assert "spec.algorithm.gamma: got 9; allowed: a number from 0 to 1" in said


@pytest.mark.parametrize("command", [("eval",), ("play", "--video", "a.mp4"), ("report",)])
def test_a_missing_run_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    said = refused(command[0], tmp_path / "none", *command[1:])
    expected = "none: no run folder" if command[0] == "report" else "none: no such file or folder; give a run"
    assert (said.count("\n"), expected in said) == (1, True)


@pytest.mark.parametrize("command", [("eval",), ("play", "--video", "a.mp4"), ("export",)])
def test_a_file_in_the_place_of_a_run_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no run")
    said = refused(command[0], tmp_path / "file", *command[1:])
    assert said == f"rljob: {tmp_path / 'file'}: not a folder; {said.partition('; ')[2]}"
    assert "give a run folder or one of its checkpoints" in said


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    run = tmp_path / os.fsdecode(b"caf\xe9")
    run.mkdir()
    shutil.copy(GOOD, run / "job.yaml")
    command = [sys.executable, "-m", "rljob_operator", "report", run]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "utf-8"}, check=False)
    assert (done.returncode, rb"caf\udce9/report.html" in done.stdout) == (0, True), done.stderr


def test_the_version_is_that_of_the_package_and_of_what_roles_speak() -> None:
    assert invoke("--version").stdout == f"rljob {version('rljob')}, protocol {WIRE_VERSION}\n"


def test_an_empty_run_is_one_line(tmp_path: Path) -> None:
    assert refused("eval", tmp_path).startswith("rljob: ")


def test_play_checks_the_video_first(tmp_path: Path) -> None:
    assert "ends in .mp4" in invoke("play", tmp_path, "--video", tmp_path / "a.gif").stderr
    assert "there is no folder" in invoke("play", tmp_path, "--video", tmp_path / "b" / "a.mp4").stderr


@pytest.mark.parametrize("command", ["validate", "eval", "play", "report", "compare", "worker", "explain"])
def test_help_teaches_by_example(command: str) -> None:
    assert re.search(rf"(?s)Example.*rljob {command} ", help_of(command))


def test_help_keeps_to_a_terminal_of_80_columns() -> None:
    """A paragraph is wrapped by the terminal alone: with its lines of the source kept, every other one broke after two words."""
    for command in COMMANDS:
        for paragraph in (command.help or "").split("\n\n"):
            if paragraph.startswith(" "):
                assert max(map(len, paragraph.splitlines())) <= 78, (command.name, paragraph)
            else:
                assert "\n" not in paragraph, (command.name, paragraph)


def test_help_groups_the_commands_below_what_to_type() -> None:
    shown = help_of(columns="80")
    panels = [re.sub("[─╭╮ ]+", " ", line).strip() for line in shown.splitlines() if line.startswith("╭")]
    assert panels == ["Options", *PANELS]
    firsts = [re.search(rf"─ {panel} ─.*\n│ (\w+) ", shown) for panel in PANELS]
    assert [found and found[1] for found in firsts] == ["examples", "run", "eval"]
    assert "rljob run pong-vtrace" in help_of()


def test_help_leaves_out_what_programs_type() -> None:
    shown, hidden = help_of(columns="80"), ("keys", "worker", "operator", "track", "mcp")
    assert [name for name in hidden if re.search(rf"│ {name} ", shown)] == []
    assert all("Usage" in help_of(name) for name in hidden)
    assert len([each for each in COMMANDS if not each.hidden]) <= 23


def test_help_shows_what_is_taken_where_nothing_is_given() -> None:
    """Rich takes brackets in a help text for markup and drops them, so none may stand there: a default is given to typer."""
    shown = []
    for command in COMMANDS:
        for parameter in command.params:
            assert "[" not in (getattr(parameter, "help", None) or ""), (command.name, parameter.name)
            if isinstance(parameter.show_default, str):
                shown.append((command.name, parameter.show_default))
    some = {("top", "the newest under runs/, or the only job of the namespace"), ("run", "runs/<name>-<time>")}
    assert some <= set(shown)
    for name, default in shown:
        assert f"[default: ({default})]" in help_of(name, columns="300"), name


def test_a_bucket_without_the_package_for_it_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    result = invoke("eval", "s3://bucket/run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("needs the package obstore, which this install lacks: pip install 'rljob[s3]'\n")


@pytest.mark.parametrize(
    "end", [typer.Exit(0), typer.Abort(), typer.BadParameter("it")], ids=["exit", "abort", "usage"]
)
def test_an_end_that_is_meant_is_no_failure(end: Exception) -> None:
    with pytest.raises(type(end)) as ended, one_line_errors():
        raise end
    assert ended.value is end


@pytest.mark.parametrize("words", [("examples",), ("validate", str(GOOD), "--no-environment")])
def test_a_full_disk_is_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rljob_operator", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "rljob: [Errno 28] No space left on device  (--debug shows where)\n")


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
    assert shown == ["[]", "['pydantic', 'rljob_operator.verbs.render']"]


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = invoke("--debug", "eval", tmp_path / "none")
    assert (result.exit_code, "Traceback" in result.stderr) == (2, True)
    assert refused("eval", tmp_path / "none")


# ``rljob keys``: a file a role with that role's secret alone, private, and never over an older one.


def test_each_role_gets_its_own_secret_and_the_same_peers(tmp_path: Path) -> None:
    folder = tmp_path / "pong"
    files = [folder / f"{role}.json" for role in ROLES]
    assert printed("keys", folder).splitlines() == list(map(str, files))
    assert sorted(folder.iterdir()) == sorted(files)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, *files)] == [0o700, *[0o600] * len(files)]
    loaded = [load_keys(folder / f"{role}.json", role) for role in ROLES]
    assert all(keys.public == loaded[0].public for keys in loaded)
    with pytest.raises(SecurityProblem, match="no secret key for 'learner'"):
        load_keys(folder / "actor.json", "learner")
    assert [path.name for path in tmp_path.iterdir()] == ["pong"], "nothing else is left behind"


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_keys_are_never_replaced(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "keys"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    assert "exists already" in refused("keys", target)
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_a_parent_that_is_missing_is_named(tmp_path: Path) -> None:
    said = f"rljob: {tmp_path / 'a' / 'b'}: there is no folder {tmp_path / 'a'}; create it first\n"
    assert refused("keys", tmp_path / "a" / "b") == said
