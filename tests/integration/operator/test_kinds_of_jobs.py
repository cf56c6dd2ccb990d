"""`rljob run` of jobs that see, act, learn and end in other ways than CartPole does, each from its manifest to its report."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import rljob
from rljob.loading import loaded
from rljob.policy.export import export
from rljob.telemetry.recorder import read_records

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import ENVIRONMENTS, EXAMPLES, IMPORTABLE, ROOT
from tests.support.untrained import untrained
from tests.support.waiting import eventually, known


def test_it_trains_to_its_target(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(job=ROOT / "tests" / "support" / "matching.yaml", environment=IMPORTABLE)
    assert run.finish(480) == 0, run.output + run.logs()
    outcome = json.loads((run.run_dir / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "TargetReturnReached")
    assert "observation board.mode: index int64 [] of 3" in (run.run_dir / "report.html").read_text()


PICTURES = "spec.environment.id=tests.support.toys:Pictures"


@pytest.mark.parametrize("job", ["cartpole-ppo", "cartpole-apex"])
def test_features_are_recorded_learned_from_and_judged(
    job: str, local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    of_pixels = rljob.load_policy(untrained(tmp_path / "pixels", "cartpole-ppo.yaml", PICTURES))
    file = tmp_path / "encoder.safetensors"
    shutil.copy(export(of_pixels, "safetensors", tmp_path).file, file)
    sets = [PICTURES, f"spec.environment.encoder.file={file}", "spec.evaluator={episodes: 2, intervalSeconds: 1}"]
    sets += ["spec.successPolicy={rawFrames: 1000000}", "spec.checkpoint.intervalSeconds=1"]
    run = local_run(*(word for each in sets for word in ("--set", each)), job=EXAMPLES / f"{job}.yaml")
    run.until_learning(2)
    run.until((run.run_dir / "checkpoints" / "best" / "manifest.json").exists, 120, "a judged policy")
    run.interrupt()
    policy = rljob.load_policy(run.run_dir)
    observation, _ = policy.environment().reset(seed=1)
    assert (observation.dtype, observation.shape) == (np.float16, policy.observation_shape)
    assert policy.act(observation[None]).shape == (1,)
    file.write_bytes(file.read_bytes()[:-4] + b"\x00\x00\x80\x3f")  # one weight is another
    run.answer(
        "run",
        str(run.run_dir / "job.yaml"),
        "--run-dir",
        str(run.run_dir),
        "--resume",
        code=1,
        said="was learned behind the encoder with sha256",
    )
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "FailurePolicyRule"


pytestmark = [pytest.mark.timeout(540), pytest.mark.long]
STEPS, AT_RANDOM, BATCH = 12_000, 500, 32
JOB = EXAMPLES / "pendulum-sac.yaml"
SMALL = {
    "algorithm.batchSize": str(BATCH),
    "algorithm.hiddenUnits": "16",
    "replay.rateLimiter": f"{{minSize: {AT_RANDOM}, errorBuffer: {2 * BATCH * 10}}}",  # as narrow as it may be
    "successPolicy.rawFrames": str(STEPS),
    "checkpoint.intervalSeconds": "5",
}
OPTIONS = [word for path, value in SMALL.items() for word in ("--set", f"spec.{path}={value}")]


def updates_a_step(run: LocalRun) -> float:
    """What the replay has given for each step that it took, beyond those before the first update."""
    shard = run.status("replay-0")
    drawn, stored = shard["sampled_total"], shard["inserted_total"]
    return float(drawn / BATCH / max(1, stored - AT_RANDOM))


def test_an_update_a_step_whoever_is_killed(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, *OPTIONS, job=JOB)
    run.until_learning(1000)
    for name in ("learner", "actor-0", "replay-0"):
        before = run.status("learner").get("updates", 0)
        run.kill(name)
        run.until(lambda before=before: run.status("learner").get("updates", 0) > before + 1000, 120, f"{name} again")
        assert updates_a_step(run) == pytest.approx(1.0, rel=0.01)
    assert run.finish(200) == 0, run.output + run.logs()
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "StepBudgetReached"


def test_a_policy_is_loaded_played_and_scored_without_critics(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(
        *OPTIONS, "--set", "spec.successPolicy.targetReturn=", "--set", "spec.evaluator.episodes=3", job=JOB
    )
    run.until((run.run_dir / "checkpoints" / "best" / "manifest.json").exists, 120, "a judged policy")
    run.interrupt()
    policy = rljob.load_policy(run.run_dir)
    assert not any("critic" in name or "temperature" in name for name in policy.stored.module.state_dict())
    actions = policy.act(np.zeros((3, *policy.observation_shape), np.float32))
    assert actions.shape == (3, 1)
    assert np.abs(actions).max() <= 2.0
    run.answer("eval", str(run.run_dir), "--episodes", "2", said="mean return")


REPORTING = ROOT / "tests" / "support" / "reporting.yaml"


def test_what_the_environment_reports_completes_the_job_and_stands_in_its_report(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(job=REPORTING, environment=IMPORTABLE)
    assert run.finish(120) == 0, run.output + run.logs()
    outcome = json.loads((run.run_dir / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "MetricReached")
    assert outcome["message"].startswith("is_success 1, as the environment reports it, over 8 games in each of 2 eval")
    records = read_records(run.run_dir / "metrics.jsonl")
    judged = [record for record in records if record.get("kind") == "evaluation"]
    assert [(one["episode/is_success"], one["episode/distance"]) for one in judged[:2]] == [(1.0, 0.25)] * 2
    last = [record for record in records if "episode/is_success" in record and "kind" not in record][-1]
    assert last["episode/distance"] == 0.25
    # Four copies end their games together, and every fourth game of a copy is lost.
    played = int(last["episodes_total"]) // 4
    of_the_last_20 = [game % 4 != 3 for game in range(max(0, played - 5), played)]
    assert last["episode/is_success"] == pytest.approx(sum(of_the_last_20) / len(of_the_last_20))
    report = (run.run_dir / "report.html").read_text()
    assert "is_success, as the environment reports it" in report
    assert "distance, as the environment reports it" in report


def test_a_metric_that_never_comes_is_said(local_run: Callable[..., LocalRun]) -> None:
    sets = ("--set", "spec.successPolicy.metric.name=success", "--set", "spec.successPolicy.rawFrames=100000000")
    run = local_run(*sets, job=REPORTING, environment=IMPORTABLE)
    said = "successPolicy.metric waits for 'success', which the environment does not report as a finite number"
    run.until(lambda: said in run.output, 60, "a warning of the run")
    assert said in Path(run.run_dir / "logs" / "evaluator.log").read_text()
    ready = known(run.job_status.condition("Ready"))
    assert ready.reason == "Degraded"
    assert said in ready.message
    assert "distance" in ready.message
    run.until(lambda: "episode/distance 0.25" in run.output, 60, "a line of figures")
    assert run.interrupt() == 130


def failing(crash: float, stall: float) -> list[str]:
    settings = {
        "id": "benchmarks.failing_cart_pole:make",
        "kwargs": json.dumps({"crash": crash, "stall": stall}),
    }
    return [word for key, value in settings.items() for word in ("--set", f"spec.environment.{key}={value}")]


def test_training_goes_on_around_failing_environments(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(
        *ENDLESS, *failing(crash=3e-4, stall=2e-5), "--set", "spec.successPolicy.rawFrames=20000",
        job=EXAMPLES / "cartpole-impala.yaml", environment=IMPORTABLE,
    )  # fmt: skip
    assert run.finish(150) == 0, run.output + run.logs()
    final = run.final("actor-0")
    assert final["environment_failures"] >= 1, "6 are expected, and 10 are allowed within half of the frames"
    assert final["steps"] == final["produced"] + final["cut_steps"]
    assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
    # An unroll is lost with a failure in it, and what was under way at the end; no more.
    assert final["cut_steps"] <= 20 * (final["environment_failures"] + 16)
    assert run.job_status.restarts.counted == run.job_status.restarts.ignored == 0, "no process ended for it"
    words = (run.run_dir / "logs" / "actor-0.log").read_text()
    assert "failed in step(): failing_cart_pole.py:" in words
    assert ", in step: RuntimeError: the simulator has lost its licence, in step " in words
    assert " of the episode; restarted (failure 1 " in words


# The example of an environment behind a server that speaks OpenEnv, with an interpreter of its own and nothing installed.


FOLDER = ENVIRONMENTS / "openenv"
BARE = [sys.executable, "-I", "-S", "maze_server.py", "--while-stdin-is-open", "--port"]
"""Starts the server at the port that comes last, without site-packages and whatever else this interpreter has."""
MAZE = {
    "observation": {"place": {"Box": {"low": 0, "high": 1, "shape": [2]}}, "free": {"MultiBinary": 4}},
    "action": {"direction": {"Discrete": 4}},
}
make = loaded(f"{FOLDER / 'openenv_client.py'}:make")


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that was started by itself; it is seen to end with this process's hold on it."""
    process = subprocess.Popen(
        [*BARE, "0"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().split()[-1].removesuffix("/ws")
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "")


def far_from_the_exit(env: gymnasium.Env[Any, Any]) -> tuple[Any, int]:
    """An episode that begins more than one step away, and its seed."""
    for seed in range(100):
        seen, _ = env.reset(seed=seed)
        if seen["place"].sum() < 1.0:
            return seen, seed
    raise AssertionError("every episode begins at the exit")


def test_every_connection_has_a_maze_of_its_own_that_repeats_itself_with_its_seed(server: str) -> None:
    with closing(make(**MAZE, url=server, max_steps=5)) as one, closing(make(**MAZE, url=server)) as other:
        seen, seed = far_from_the_exit(one)
        assert one.observation_space.contains(seen)
        again, _ = other.reset(seed=seed)
        assert all(np.array_equal(seen[name], again[name]) for name in seen)
        way = int(np.flatnonzero(seen["free"])[0])
        after, reward, terminated, truncated, _ = one.step(way)
        assert not np.array_equal(after["place"], seen["place"])
        assert -1.0 < reward < 0.0
        assert not terminated
        assert (one.unwrapped.state()["step_count"], other.unwrapped.state()["step_count"]) == (1, 0)
        for _ in range(4):
            *_, truncated, _ = one.step(way)
        assert truncated, "after max_steps"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"observation": {"place": {"Box": {"low": 0, "high": 1, "shape": [3]}}}},
            r"place: expected Box\(.*, \(3,\), .*, got {",
        ),
        ({"observation": {"plan": {"Discrete": 3}}}, r"observation plan: expected Discrete\(3\), got {'place': "),
        ({"action": {"way": {"Discrete": 4}}}, r"step: KeyError\('direction'\) \(EXECUTION_ERROR\)"),
    ],
)
def test_what_the_server_has_otherwise_is_named(server: str, changed: dict[str, Any], said: str) -> None:
    def play() -> None:
        env.reset(seed=1)
        env.step(0)

    with closing(make(**MAZE | changed, url=server)) as env, pytest.raises((ValueError, RuntimeError), match=said):
        play()


def test_a_server_that_is_not_there_is_named_and_so_is_a_command_that_ends() -> None:
    with pytest.raises(ConnectionError, match=r"^the OpenEnv server at 127.0.0.1:9: state: .*Connection refused"):
        make(**MAZE, url="ws://127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"'exit\(4\)'\] ended with exit code 4$"):
        make(**MAZE, command=[sys.executable, "-c", "exit(4)"])


def test_a_server_that_dies_costs_its_episode_and_is_started_again() -> None:
    with closing(make(**MAZE, command=[*BARE, "{port}"])) as env:
        env.reset(seed=1)
        process = env.unwrapped._server
        process.kill()
        process.wait()
        with pytest.raises(ConnectionError, match=r"step: "):
            env.step(0)
        with pytest.raises(ConnectionError, match=r"lost in this episode; reset\(\) connects again$"):
            env.step(0)
        env.reset(seed=1)
        env.step(0)
        last = env.unwrapped._server
    assert last.returncode is not None, "it ends with the environment"


@pytest.mark.long
def test_the_example_trains_and_leaves_no_server(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    shutil.copytree(ENVIRONMENTS, tmp_path / "environments")
    folder = tmp_path / "environments" / "openenv"

    def servers() -> set[int]:
        return {each.pid for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder)}

    command = json.dumps([*BARE, "{port}"])
    changes = (f"environment.kwargs.command={command}", "successPolicy.rawFrames=1000000", "actors.envsPerActor=4")
    options = [word for change in changes for word in ("--set", f"spec.{change}")]
    run = local_run(*ENDLESS, *options, job=tmp_path / "environments" / "openenv.yaml")
    run.until(lambda: run.status("actor-0").get("steps", 0) >= 300, 60, "300 steps")
    first = servers()
    assert len(first) == 4
    run.kill("actor-0")
    run.until(lambda: not first & servers(), 20, "the end of the servers of an actor that was killed")
    assert run.interrupt() == 130
    eventually(lambda: not servers(), lambda: f"servers that are left: {servers()}", 20)
