"""``rljob worker``: options and environment become RoleOptions, signals become the stop event, and problems become exit 78."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from rljob import loading
from rljob.api import ManifestError, Problem, load_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION, EXIT_PROTOCOL
from rljob.api.roles import Role
from rljob.cli.app import app
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError
from rljob.roles.command import stopping_on_signals
from rljob.roles.options import RoleOptions, check_options, role_function, write_last_words
from rljob.wire import security
from rljob.wire.security import SecurityProblem, require_security
from rljob.wire.version import WIRE_VERSION
from typer.main import get_command
from typer.testing import Result

from tests.support import command_line
from tests.support.paths import EXAMPLES

JOB = EXAMPLES / "cartpole-apex.yaml"
TWO_SHARDS = EXAMPLES / "pong-apex-cluster.yaml"


@pytest.fixture(autouse=True)
def own_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """These roles run in the tests' own process, which keeps its name in `ps` and `top`."""
    for name in ("setproctitle", "setthreadtitle"):
        monkeypatch.setattr(f"rljob.roles.command.{name}", lambda title: None)


def worker(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return command_line.invoke("worker", *arguments, env=env)


def refused(*arguments: str, env: dict[str, str] | None = None, exit_code: int = EXIT_CONFIGURATION) -> str:
    """What a role that can't begin says of its configuration."""
    result = worker(*arguments, env=env)
    assert result.exit_code == exit_code, result.output
    return result.stderr


def common(tmp_path: Path, job: Path = JOB) -> list[str]:
    return ["--job", str(job), "--run-dir", str(tmp_path), "--name", "a-0"]


def options(tmp_path: Path, job: Path = JOB, **fields: object) -> RoleOptions:
    return RoleOptions(job=load_manifest(job), run_dir=tmp_path, name="a-0", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("role", "needs"),
    [
        ("actor", ["--replay-ingest (RLJOB_REPLAY_INGEST)", "--weights", "--notice"]),
        ("replay", ["--replay-ingest", "--replay-sample"]),
        ("learner", ["--replay-sample", "--weights", "--notice"]),
        ("evaluator", ["--weights", "--notice"]),
        ("inference", ["--inference (RLJOB_INFERENCE)", "--weights", "--notice"]),
    ],
)
def test_missing_addresses_are_a_configuration_problem(role: str, needs: list[str], tmp_path: Path) -> None:
    said = refused(role, *common(tmp_path))
    assert ([word for word in needs if word not in said], said.count("\n")) == ([], 1)


def test_missing_and_impossible_options_are_configuration_problems(tmp_path: Path) -> None:
    for words in (["actor"], ["conductor", *common(tmp_path)], ["actor", *common(tmp_path), "--metrics-port", "70000"]):
        assert refused(*words)


def test_a_token_file_without_a_token_is_a_configuration_problem(tmp_path: Path) -> None:
    addresses = ["--replay-sample", "inproc://s", "--weights", "inproc://w", "--notice", "inproc://n"]
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        said = refused("learner", *common(tmp_path), *addresses, "--token-file", str(tmp_path / name))
        assert f"--token-file {tmp_path / name}: a readable file with the job's token in it is needed" in said


def test_options_that_a_pod_sets_have_the_names_of_its_variables() -> None:
    found = {option: each.envvar for each in get_command(app).commands["worker"].params for option in each.opts}  # type: ignore[attr-defined]
    names = ["metrics-host", "metrics-port", "token-file", "on-cluster", "last-words", "protocol", "debug"]

    assert {name: found[f"--{name}"] for name in names} == {
        name: f"RLJOB_{name.upper().replace('-', '_')}" for name in names
    }


def test_an_image_of_another_protocol_says_so_before_it_reads_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("spec: {something: only the next release knows}\n")
    told = {"env": {"RLJOB_PROTOCOL": str(WIRE_VERSION + 1)}, "exit_code": EXIT_PROTOCOL}
    said = refused("evaluator", *common(tmp_path, job), **told)
    assert f"speaks protocol {WIRE_VERSION}; the job speaks protocol {WIRE_VERSION + 1}" in said
    assert refused("evaluator", *common(tmp_path, job), env={"RLJOB_PROTOCOL": str(WIRE_VERSION)})


@pytest.mark.parametrize(
    ("encryption", "on_cluster", "plain"), [("None", "1", True), ("None", "0", False), ("Curve", "1", False)]
)
def test_only_a_pod_of_a_job_without_encryption_talks_without_keys(
    encryption: str, on_cluster: str, plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security._Plain, "permitted", False)
    monkeypatch.setattr("rljob.roles.command.role_function", lambda role: lambda options, stop: None)
    job = tmp_path / "job.yaml"
    job.write_text(f"{JOB.read_text()}  network: {{encryption: {encryption}}}\n")
    addresses = ["--weights", "tcp://learner:5553", "--notice", "tcp://learner:5554"]
    assert worker("evaluator", *common(tmp_path, job), *addresses, env={"RLJOB_ON_CLUSTER": on_cluster}).exit_code == 0
    with nullcontext() if plain else pytest.raises(SecurityProblem, match="no CURVE keys"):
        require_security(addresses[1], None)


def test_last_words_are_one_line_of_json_and_their_loss_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = {"checkpoint": {"step": 7}}
    write_last_words(options(tmp_path), words)
    write_last_words(options(tmp_path, last_words=tmp_path / "words"), words)
    assert json.loads((tmp_path / "words").read_text()) == words
    write_last_words(options(tmp_path, last_words=tmp_path / "none" / "words"), words)
    assert "last words can't be written" in caplog.text


def test_every_role_has_its_function() -> None:
    for role in Role:
        assert role_function(role).__name__ == f"run_{role}"


def test_a_bad_manifest_is_a_configuration_problem(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(JOB.read_text() + "  replay: {rateLimiter: {minSize: 1}}\n")
    assert "batchSize (here 128)" in refused("actor", *common(tmp_path, bad))


def test_options_come_from_the_environment_too(tmp_path: Path) -> None:
    said = refused(
        "learner",
        env={
            "RLJOB_JOB": str(JOB),
            "RLJOB_RUN_DIR": str(tmp_path),
            "RLJOB_NAME": "learner",
            "RLJOB_REPLAY_SAMPLE": "inproc://a inproc://b",
            "RLJOB_WEIGHTS": "inproc://weights",
            "RLJOB_NOTICE": "inproc://notice",
        },
    )
    assert "learner got 2 --replay-sample; allowed: 1, one for each of spec.replay.shards" in said


LEARNERS = EXAMPLES / "pong-central.yaml"
"""Inference in the learner."""
OF_ITS_OWN = (LEARNERS.read_text(), "inference: {maxBatchSize", "inference: {replicas: 2, maxBatchSize")
BOTH = {"weights": "inproc://w", "notice": "inproc://n"}
ONE, TWO = ("inproc://a",), ("inproc://a", "inproc://b")


@pytest.mark.parametrize(
    ("role", "job", "fields", "said"),
    [
        (Role.ACTOR, TWO_SHARDS, {"replay_ingest": TWO, **BOTH}, None),
        (Role.ACTOR, TWO_SHARDS, {"replay_ingest": ONE, **BOTH}, "allowed: 2"),
        (Role.REPLAY, TWO_SHARDS, {"replay_ingest": ONE, "replay_sample": ONE}, None),
        (Role.REPLAY, TWO_SHARDS, {"replay_ingest": TWO, "replay_sample": ONE}, "exactly one"),
        (Role.EVALUATOR, JOB, {"keys": Path("none"), **BOTH}, "no such file"),
        # With central inference actors need a server and no weights.
        (Role.ACTOR, LEARNERS, {"replay_ingest": ONE, "inference": ONE}, None),
        (Role.ACTOR, LEARNERS, {"replay_ingest": ONE, **BOTH}, "--inference"),
        (Role.LEARNER, LEARNERS, {"replay_sample": ONE, **BOTH, "inference": ONE}, None),
        (Role.LEARNER, LEARNERS, {"replay_sample": ONE, **BOTH}, "--inference"),
        (Role.LEARNER, None, {"replay_sample": ONE, **BOTH}, None),
        (Role.ACTOR, None, {"replay_ingest": ONE, "inference": TWO}, None),
        (
            Role.ACTOR,
            None,
            {"replay_ingest": ONE, "inference": ONE},
            r"got 1 --inference; allowed: 2, one for each server of spec\.inference\.replicas",
        ),
        (Role.INFERENCE, None, {**BOTH, "inference": ONE}, None),
        (
            Role.INFERENCE,
            None,
            {**BOTH, "inference": TWO},
            "got 2 --inference; allowed: 1, the address that it binds",
        ),
    ],
)
def test_a_role_needs_the_addresses_of_its_peers_and_no_others(
    role: Role, job: Path | None, fields: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    """No job: one with two inference servers of their own."""
    if job is None:
        text, old, new = OF_ITS_OWN
        job = tmp_path / "own.yaml"
        job.write_text(text.replace(old, new))
    with nullcontext() if said is None else pytest.raises(UsageError, match=said):
        check_options(role, options(tmp_path, job, **fields))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_set_the_event_and_are_seen_in_the_exit_code(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = threading.Event()

    def told_to_leave() -> None:
        with stopping_on_signals(stop):
            os.kill(os.getpid(), number)
            assert stop.wait(60)

    with pytest.raises(typer.Exit) as left:
        told_to_leave()
    assert signal.getsignal(number) is before
    assert left.value.exit_code == 128 + number, "as any process that a signal has ended"
    with stopping_on_signals(stop):
        pass  # who was told nothing ends with 0


def test_signals_that_an_environment_has_taken_over_are_heard() -> None:
    """And what it has forked ends by them, and ends no other process."""
    stop = threading.Event()
    with stopping_on_signals(stop):
        child = os.fork()
        if child == 0:
            signal.pause()
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not stop.is_set()
    heard: list[int] = []

    def taken_over() -> None:
        with stopping_on_signals(stop):
            signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(60)

    with pytest.raises(typer.Exit):
        taken_over()
    assert heard == [signal.SIGTERM]


def test_errors_become_exit_codes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loading, "_authors", set()
    )  # another test may have loaded something from the folder of the tests
    problems = ManifestError([Problem(f"spec.{name}", 1, "allowed: 2") for name in "ab"])
    told = "rljob: spec.a: got 1; allowed: 2\nrljob: spec.b: got 1; allowed: 2\n"
    for error, exit_code, said in (
        (problems, EXIT_CONFIGURATION, told),
        (OSError("disk full\nmore"), 1, "rljob: disk full  (--debug shows where)\n"),
        (SystemExit(70), 70, ""),
    ):
        with (
            pytest.raises((typer.Exit, SystemExit)) as left,
            one_line_errors(configuration_exit=EXIT_CONFIGURATION),
        ):
            raise error
        code = left.value.exit_code if isinstance(left.value, typer.Exit) else left.value.code
        assert (code, capsys.readouterr().err) == (exit_code, said)


def test_a_pod_s_program_imports_no_other_command() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "rljob_operator", "worker", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "rljob worker" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "rljob.roles.options" in imported
    watched = ("rljob_operator.", "torch", "kubernetes")
    assert {name for name in imported if name.startswith(watched)} == {"rljob_operator.cli"}


def test_a_module_that_takes_the_root_loggers_handlers_or_closes_stderr_leaves_ours() -> None:
    code = (
        "import logging, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "from rljob.roles import command\n"
        "command.prepare_process(logging.INFO)\n"
        "logging.basicConfig(force=True, level=logging.ERROR)\n"
        "sys.stderr.close()\n"
        "logging.getLogger('rljob.actor.loop').info('still told')\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("still told")) == (0, 1), done.stderr
