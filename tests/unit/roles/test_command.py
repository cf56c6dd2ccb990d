"""``rljob worker``: options and environment become RoleOptions, signals become the stop event, and problems become exit 78."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from rljob import loading
from rljob.api import ManifestError, Problem, load_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION, EXIT_PROTOCOL
from rljob.cli.app import app
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError
from rljob.roles.announce import write_last_words
from rljob.roles.checks import check_options
from rljob.roles.command import stopping_on_signals
from rljob.roles.options import RoleOptions
from rljob.roles.role import Role, role_function
from rljob.wire import security
from rljob.wire.security import SecurityProblem, require_security
from rljob.wire.version import WIRE_VERSION
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.support.paths import EXAMPLES

JOB = EXAMPLES / "cartpole-apex.yaml"
TWO_SHARDS = EXAMPLES / "pong-apex-cluster.yaml"


@pytest.fixture(autouse=True)
def own_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """These roles run in the tests' own process, which keeps its name in `ps` and `top`."""
    for name in ("setproctitle", "setthreadtitle"):
        monkeypatch.setattr(f"rljob.roles.command.{name}", lambda title: None)


def worker(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["worker", *arguments], env=env)


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
    result = worker(role, *common(tmp_path))
    assert result.exit_code == EXIT_CONFIGURATION
    assert result.stderr.count("\n") == 1
    for word in needs:
        assert word in result.stderr


def test_missing_and_impossible_options_are_configuration_problems(tmp_path: Path) -> None:
    assert worker("actor").exit_code == EXIT_CONFIGURATION
    assert worker("conductor", *common(tmp_path)).exit_code == EXIT_CONFIGURATION
    assert worker("actor", *common(tmp_path), "--metrics-port", "70000").exit_code == EXIT_CONFIGURATION


def test_a_token_file_without_a_token_is_a_configuration_problem(tmp_path: Path) -> None:
    addresses = ["--replay-sample", "inproc://s", "--weights", "inproc://w", "--notice", "inproc://n"]
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        result = worker("learner", *common(tmp_path), *addresses, "--token-file", str(tmp_path / name))
        assert result.exit_code == EXIT_CONFIGURATION
        assert f"--token-file {tmp_path / name}: a readable file with the job's token in it is needed" in result.stderr


def test_where_telemetry_listens_is_an_option_that_help_names() -> None:
    names = {option: each.envvar for each in get_command(app).commands["worker"].params for option in each.opts}  # type: ignore[attr-defined]
    assert names["--metrics-host"] == "RLJOB_METRICS_HOST"
    assert names["--metrics-port"] == "RLJOB_METRICS_PORT"
    assert names["--token-file"] == "RLJOB_TOKEN_FILE"
    assert names["--on-cluster"] == "RLJOB_ON_CLUSTER"
    assert names["--last-words"] == "RLJOB_LAST_WORDS"
    assert names["--protocol"] == "RLJOB_PROTOCOL"
    assert names["--debug"] == "RLJOB_DEBUG"


def test_an_image_of_another_protocol_says_so_before_it_reads_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("spec: {something: only the next release knows}\n")
    result = worker("evaluator", *common(tmp_path, job), env={"RLJOB_PROTOCOL": str(WIRE_VERSION + 1)})
    assert result.exit_code == EXIT_PROTOCOL
    assert f"speaks protocol {WIRE_VERSION}; the job speaks protocol {WIRE_VERSION + 1}" in result.stderr
    ours = {"RLJOB_PROTOCOL": str(WIRE_VERSION)}
    assert worker("evaluator", *common(tmp_path, job), env=ours).exit_code == EXIT_CONFIGURATION


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
    if plain:
        require_security(addresses[1], None)
    else:
        with pytest.raises(SecurityProblem, match="no CURVE keys"):
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
    result = worker("actor", *common(tmp_path, bad))
    assert result.exit_code == EXIT_CONFIGURATION
    assert "batchSize (128)" in result.stderr


def test_options_come_from_the_environment_too(tmp_path: Path) -> None:
    result = worker(
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
    assert result.exit_code == EXIT_CONFIGURATION
    assert "learner got 2 --replay-sample; allowed: 1, one for each of spec.replay.shards" in result.stderr


def test_shards_and_keys_are_checked(tmp_path: Path) -> None:
    both = {"weights": "inproc://w", "notice": "inproc://n"}
    check_options(Role.ACTOR, options(tmp_path, TWO_SHARDS, replay_ingest=("inproc://a", "inproc://b"), **both))
    with pytest.raises(UsageError, match="allowed: 2"):
        check_options(Role.ACTOR, options(tmp_path, TWO_SHARDS, replay_ingest=("inproc://a",), **both))
    check_options(
        Role.REPLAY, options(tmp_path, TWO_SHARDS, replay_ingest=("inproc://a",), replay_sample=("inproc://b",))
    )
    with pytest.raises(UsageError, match="exactly one"):
        check_options(
            Role.REPLAY,
            options(tmp_path, TWO_SHARDS, replay_ingest=("inproc://a", "inproc://b"), replay_sample=("inproc://b",)),
        )
    with pytest.raises(UsageError, match="no such file"):
        check_options(Role.EVALUATOR, options(tmp_path, keys=tmp_path / "none", **both))


def test_with_central_inference_actors_need_a_server_and_no_weights(tmp_path: Path) -> None:
    learners = EXAMPLES / "pong-central.yaml"
    own = tmp_path / "own.yaml"
    own.write_text(learners.read_text().replace("inference: {maxBatchSize", "inference: {replicas: 2, maxBatchSize"))
    both = {"weights": "inproc://w", "notice": "inproc://n"}
    ingest, sample = {"replay_ingest": ("inproc://i",)}, {"replay_sample": ("inproc://s",)}
    check_options(Role.ACTOR, options(tmp_path, learners, **ingest, inference=("inproc://a",)))
    check_options(Role.LEARNER, options(tmp_path, learners, **sample, **both, inference=("inproc://a",)))
    check_options(Role.LEARNER, options(tmp_path, own, **sample, **both))
    check_options(Role.ACTOR, options(tmp_path, own, **ingest, inference=("inproc://a", "inproc://b")))
    check_options(Role.INFERENCE, options(tmp_path, own, **both, inference=("inproc://b",)))
    with pytest.raises(UsageError, match="--inference"):
        check_options(Role.ACTOR, options(tmp_path, learners, **ingest, **both))
    with pytest.raises(UsageError, match="--inference"):
        check_options(Role.LEARNER, options(tmp_path, learners, **sample, **both))
    with pytest.raises(
        UsageError, match=r"got 1 --inference; allowed: 2, one for each server of spec\.inference\.replicas"
    ):
        check_options(Role.ACTOR, options(tmp_path, own, **ingest, inference=("inproc://a",)))
    with pytest.raises(UsageError, match="got 2 --inference; allowed: 1, the address that it binds"):
        check_options(Role.INFERENCE, options(tmp_path, own, **both, inference=("inproc://a", "inproc://b")))


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
    with pytest.raises(typer.Exit) as configuration, one_line_errors(configuration_exit=EXIT_CONFIGURATION):
        raise ManifestError([Problem("spec.a", 1, "allowed: 2"), Problem("spec.b", 1, "allowed: 2")])
    assert configuration.value.exit_code == EXIT_CONFIGURATION
    assert capsys.readouterr().err == "rljob: spec.a: got 1; allowed: 2\nrljob: spec.b: got 1; allowed: 2\n"
    with pytest.raises(typer.Exit) as failure, one_line_errors():
        raise OSError("disk full\nmore")
    assert failure.value.exit_code == 1
    assert capsys.readouterr().err == "rljob: disk full  (--debug shows where)\n"
    with pytest.raises(SystemExit) as left, one_line_errors():
        raise SystemExit(70)
    assert left.value.code == 70


def test_a_pod_s_program_imports_no_other_command() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "rljob_operator", "worker", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "rljob worker" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "rljob.roles.options" in imported
    ours = {name for name in imported if name.startswith("rljob_operator.")}
    assert ours == {"rljob_operator.cli"}
    assert not [name for name in imported if name.startswith(("torch", "kubernetes"))]


def test_a_module_that_takes_the_root_loggers_handlers_leaves_ours() -> None:
    code = (
        "import logging, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "from rljob.roles import command\n"
        "command.prepare_process(logging.INFO)\n"
        "logging.basicConfig(force=True, level=logging.ERROR)\n"
        "logging.getLogger('rljob.actor.loop').info('still told')\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("still told")) == (0, 1), done.stderr
