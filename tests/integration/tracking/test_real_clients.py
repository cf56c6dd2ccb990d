"""Trackers with their real clients, as processes beside a run: W&B's against a server of the test and into its offline directory,
MLflow's into a database of its own. They are killed, and their servers go away; every point is there once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rljob.api import load_manifest
from rljob.telemetry.recorder import METRICS_FILE, Recorder
from rljob.tracking.points import Follower
from rljob_operator.local.trackers import Trackers

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES
from tests.support.waiting import known
from tests.support.wandb_server import WandbServer


def installed(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


needs_wandb = pytest.mark.skipif(
    not installed("wandb"), reason="W&B's client is not installed: pip install 'rljob[wandb]'"
)
needs_mlflow = pytest.mark.skipif(
    not installed("mlflow"), reason="MLflow is not installed: pip install 'rljob[mlflow]'"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    found = WandbServer()
    monkeypatch.setenv("WANDB_BASE_URL", found.url)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    yield found
    found.close()


class Run:
    """A run folder, its learner as far as trackers see it, and the trackers beside it."""

    def __init__(self, folder: Path, tracking: dict[str, Any]) -> None:
        self.folder = folder
        (folder / "logs").mkdir(parents=True)
        spec = {
            "preset": "CartPoleIMPALA",
            "environment": {"kwargs": {"top speed (m/s)": 3}},
            "tracking": tracking,
            "learner": {"env": [{"name": "KEY", "value": "secret"}]},
        }
        job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "tracked"}, "spec": spec}
        (folder / "job-effective.yaml").write_text(json.dumps(job))
        self.tracking = load_manifest(folder / "job-effective.yaml").spec.tracking
        self.said: list[str] = []
        self.trackers = Trackers(folder, self.said.append)
        self.frames = 0

    def learn(self, points: int, behind: int = 0) -> None:
        """A learner that goes on from a checkpoint ``behind`` frames ago."""
        self.frames -= behind
        with Recorder(self.folder) as recorder:
            for _ in range(points):
                self.frames += 10
                recorder.record({"mean_return": float(self.frames), "loss": 0.5}, self.frames, self.frames)

    @property
    def times(self) -> list[float]:
        return [point.time_unix for point in Follower(self.folder / METRICS_FILE).read(10**6)]

    def until(self, done: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, (self.said, (self.folder / "logs").glob("*"))
            self.trackers.look(self.tracking)
            time.sleep(0.05)

    def state(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "tracking" / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def kill(self, name: str) -> None:
        os.kill(self.state(name)["pid"], signal.SIGKILL)


@needs_wandb
@pytest.mark.parametrize("outage", ["hang", "fail", "absent"])
def test_wandb_has_every_point_once_after_kills_and_an_outage(outage: str, server: WandbServer, tmp_path: Path) -> None:
    run = Run(tmp_path, {"wandb": {"entity": "team", "group": "g", "tags": ["a"]}})
    run.learn(20)
    run.until(lambda: run.state("wandb").get("points") == 20)
    run.kill("wandb")
    run.learn(20, behind=55)
    run.until(lambda: any(server.rows.values()))
    if outage == "absent":
        server.close()
    server.mode = outage
    run.learn(20)
    run.until(lambda: run.state("wandb").get("points") == 60)
    run.kill("wandb")
    run.learn(20, behind=30)
    run.until(lambda: bool(run.state("wandb").get("problem")), 90)
    run.until(lambda: run.said[-1].endswith("points are kept in the run folder and sent when it works"))
    if outage == "absent":
        again = WandbServer(server.port)
        again.rows, again.configs, again.summaries = server.rows, server.configs, server.summaries
    server.mode = "ok"
    run.until(lambda: run.said[-1] == "W&B takes points again")
    run.trackers.close(60)
    (rows,) = server.rows.values()
    assert [row["_timestamp"] for row in rows] == run.times
    assert [row["_step"] for row in rows] == list(range(80))
    assert rows[-1]["charts/episodic_return"] == rows[-1]["mean_return"] == rows[-1]["global_step"] == run.frames
    (config,) = server.configs.values()
    told = {name: config[name]["value"] for name in ("env_id", "exp_name", "seed", "algo")}
    assert told == {"env_id": "CartPole-v1", "exp_name": "tracked", "seed": 1, "algo": "IMPALA"}
    assert "secret" not in json.dumps(config)
    if outage == "absent":
        again.close()


@needs_wandb
@pytest.mark.parametrize(("state", "code"), [("Complete", 0), ("Failed", 1), ("Stopped", 255), (None, 255)])
def test_wandb_is_told_how_the_run_ended(state: str | None, code: int, server: WandbServer, tmp_path: Path) -> None:
    """None: its controller was killed, and left no outcome."""
    run = Run(tmp_path, {"wandb": {}})
    run.learn(5)
    run.until(lambda: run.state("wandb").get("points") == 5)
    run.until(lambda: run.trackers.untracked() == {})
    if state is not None:
        (tmp_path / "outcome.json").write_text(json.dumps({"state": state}))
    assert run.trackers.close(60) == {}
    assert list(server.exit_codes.values()) == [code]


@needs_mlflow
@pytest.mark.long
def test_the_status_of_a_run_says_whether_its_figures_arrive(tmp_path: Path) -> None:
    """A whole run whose tracker works, and one whose server is away; the first was stopped, and MLflow says so."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    wants = [word for at in ("there", "away") for word in (at, uri if at == "there" else "http://127.0.0.1:9")]
    for name, address in zip(wants[::2], wants[1::2], strict=True):
        run = LocalRun(
            EXAMPLES / "cartpole-ppo.yaml", tmp_path / name, *ENDLESS, "--set", f"tracking.mlflow.uri={address}"
        )
        expected = "Sending" if name == "there" else "NotSent"
        run.until(lambda run=run, expected=expected: run.reason("Tracked") == expected, 150, "the condition")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(120) == 130
        ended = known(run.job_status.condition("Tracked"))
        assert (ended.reason, "send the rest: rljob track" in ended.message) == (expected, name == "away")
        code, said = run.verb("why", str(run.run_dir))
        assert (code, "Tracked=False NotSent" in said) == (0, name == "away")
    from mlflow import MlflowClient

    (found,) = MlflowClient(uri).search_runs(["1"])
    assert found.info.status == "KILLED"


@needs_wandb
@pytest.mark.parametrize("said_by", ["dryrun", "settings"])
def test_wandb_is_offline_however_that_was_said(said_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """settings: the file that `wandb offline` writes where it is called."""
    monkeypatch.chdir(tmp_path)
    if said_by == "settings":
        (tmp_path / "wandb").mkdir()
        (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    else:
        monkeypatch.setenv("WANDB_MODE", said_by)
    run = Run(tmp_path / "run", {"wandb": {}})
    run.learn(5)
    run.until(lambda: run.state("wandb").get("points") == 5)
    run.trackers.close(60)
    assert len(list((tmp_path / "run" / "tracking" / "wandb").glob("offline-run-*"))) == 1


@needs_wandb
def test_disabled_wandb_gets_no_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = Run(tmp_path, {"wandb": {}})
    run.learn(5)
    run.until(lambda: "disabled by WANDB_MODE" in str(run.state("wandb").get("problem")))
    assert run.state("wandb")["points"] == 0
    run.trackers.close(0)


@needs_wandb
def test_wandbs_offline_directory_is_whole_after_a_kill_and_its_own_library_reads_it(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = Run(tmp_path, {"wandb": {}})
    run.learn(15)
    run.until(lambda: run.state("wandb").get("points") == 15)
    run.kill("wandb")
    run.learn(15, behind=40)
    run.until(lambda: run.state("wandb").get("points") == 30)
    run.trackers.close(60)
    (directory,) = (tmp_path / "tracking" / "wandb").glob("offline-run-*")
    environment = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    sync = [sys.executable, "-m", "wandb", "sync", "--entity", "team", "--project", "p", str(directory)]
    done = subprocess.run(sync, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (rows,) = server.rows.values()
    assert [row["_timestamp"] for row in rows] == run.times


@needs_mlflow
def test_mlflow_has_every_point_once_after_kills(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = Run(tmp_path / "run", {"mlflow": {"uri": uri}})
    run.learn(40)
    run.until(lambda: run.state("mlflow").get("points") == 40, 120)
    run.kill("mlflow")
    # As if it had been killed before it could write what the server has.
    (run.folder / "tracking" / "mlflow.json").write_text(json.dumps({"points": 10, "last": run.times[9]}))
    run.learn(40, behind=105)
    run.until(lambda: run.state("mlflow").get("points") == 80, 120)
    (run.folder / "outcome.json").write_text('{"state": "Complete"}')
    run.trackers.close(60)
    run.trackers = Trackers(run.folder, run.said.append, ["--once"])  # as `rljob track` after the end
    run.until(lambda: not run.trackers.look(run.tracking), 120)
    run.trackers.close(0)
    assert [line for line in run.said if "has not got" in line] == []
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = known(client.get_experiment_by_name("rljob"))
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.status, found.data.params["env_id"]) == ("FINISHED", "CartPole-v1")
    assert found.data.params["environment.kwargs.top speed _m/s_"] == "3"
    history = client.get_metric_history(found.info.run_id, "mean_return")
    assert sorted((each.timestamp, each.step) for each in history) == sorted(
        (round(point.time_unix * 1000), point.raw_frames) for point in Follower(run.folder / METRICS_FILE).read(1000)
    )
    client.delete_run(found.info.run_id)
    run.trackers = Trackers(run.folder, run.said.append, ["--once"])
    run.until(lambda: not run.trackers.look(run.tracking), 120)
    (again,) = client.search_runs([experiment.experiment_id])
    assert len(client.get_metric_history(again.info.run_id, "mean_return")) == 80


def test_a_tracker_that_can_not_work_is_told_once_and_tried_again(tmp_path: Path) -> None:
    run = Run(tmp_path, {"mlflow": {"uri": "http://127.0.0.1:9"}})
    (tmp_path / "tracking").write_text("a file where the folder should be")
    assert run.trackers.untracked() is None, "nothing is known yet"
    run.until(lambda: bool(run.said))
    (line,) = run.said
    assert known(run.trackers.untracked())["MLflow"] in line
    assert line.startswith("MLflow: ")
    assert "points are kept" in line
    assert run.trackers.close(1)["MLflow"].startswith("it lacks some points; send them with: rljob track ")
