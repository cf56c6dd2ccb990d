"""`rljob.run` and `rljob.attach` with a namespace, at the seam to the API server: real HTTP, with made-up answers.

No cluster was seen by these tests; what the verbs do on one is tested in ``tests/cluster``.

An `Experiment` of the files that one leaves: how it stands, its trials, its best; without any process.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rljob
from aiohttp import web
from rljob.api.status_model import rfc3339
from rljob_operator.local.run_folder import ControllerLock
from rljob_operator.verbs import local_jobs

from tests.support.experiment_runs import RATE, document, experiment_folder
from tests.support.paths import EXAMPLES
from tests.unit.operator.kube.fake_api_server import listening
from tests.unit.operator.kube.test_client_faults import kubeconfig


def condition(type: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(time.time()),
    }


class Cluster:
    """Stores RLJobs as an API server does, and nothing else; an operator is played by ``becomes``."""

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.away = 0
        self.kubeconfig, self._folder = str(folder / "config"), folder

    def becomes(self, name: str, state: str, *conditions: dict[str, Any], **status: Any) -> None:
        ready = condition("Ready", "False", state)
        self.jobs[name]["status"] = {"observedGeneration": 1, "conditions": [ready, *conditions], **status}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if self.away:
            self.away -= 1
            return self.refuses(503, "ServiceUnavailable")
        if "pods" in parts:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        assert parts[:5] == ["apis", "rljob.dev", "v1alpha1", "namespaces", "team"], request.path
        name = parts[6] if len(parts) > 6 else ""
        if request.method == "POST":
            job = await request.json()
            if job["metadata"]["name"] in self.jobs:
                return self.refuses(409, "AlreadyExists")
            about = {**job["metadata"], "generation": 1, "uid": "1", "creationTimestamp": rfc3339(time.time())}
            self.jobs[about["name"]] = {**job, "metadata": about}
            return web.json_response(self.jobs[about["name"]], status=201)
        if name and name not in self.jobs:
            return self.refuses(404, "NotFound", {"name": name})
        if request.method == "PATCH":
            self.jobs[name]["metadata"]["annotations"] = json.loads(await request.read())["metadata"]["annotations"]
            self.becomes(name, "SessionEnded")
        return web.json_response(self.jobs[name] if name else {"metadata": {}, "items": [*self.jobs.values()]})

    def refuses(self, code: int, reason: str, details: dict[str, str] | None = None) -> web.Response:
        return web.json_response(
            {"kind": "Status", "reason": reason, "message": reason, "details": details}, status=code
        )

    async def serve(self, up: threading.Event) -> None:
        async with listening(web.route("*", "/{path:.*}", self.answer)) as url:
            kubeconfig(self._folder, url, "t")
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            up.set()
            await self._over.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made, up = Cluster(tmp_path), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(made.serve(up)), name="api-server")
    thread.start()
    assert up.wait(10)
    yield made
    made.end()
    thread.join(10)


@pytest.fixture
def run(cluster: Cluster) -> rljob.Run:
    return rljob.run("CartPoleIMPALA", set={"metadata.name": "pong"}, namespace="team", kubeconfig=cluster.kubeconfig)


def attached(cluster: Cluster) -> rljob.Run:
    return rljob.attach("pong", namespace="team", kubeconfig=cluster.kubeconfig)


def test_a_job_is_created_and_found_again(cluster: Cluster, run: rljob.Run) -> None:
    assert cluster.jobs["pong"]["spec"] == {"preset": "CartPoleIMPALA"}
    assert cluster.jobs["pong"]["metadata"]["namespace"] == "team"
    assert (run.folder, run.status.state) == (None, "Starting")
    cluster.becomes("pong", "Running", progress={"evalReturn": "312.5"})
    again = attached(cluster)
    assert (again.status.state, again.verdict and again.verdict.mean) == ("Running", 312.5)
    assert "pong is Running" in again.why()
    assert "verdict: 312.50" in again._repr_html_()
    with pytest.raises(rljob.UsageError, match=r"there is a job team/pong; give this one another name"):
        rljob.run("CartPoleIMPALA", set={"metadata.name": "pong"}, namespace="team", kubeconfig=cluster.kubeconfig)
    with pytest.raises(rljob.UsageError, match="there is no job none in namespace team; there are: pong"):
        rljob.attach("none", namespace="team", kubeconfig=cluster.kubeconfig)
    with pytest.raises(rljob.UsageError, match="has no folder here"):
        Path(run)
    with pytest.raises(rljob.UsageError, match="Prometheus"):
        run.metrics()
    with pytest.raises(rljob.UsageError, match="has no pods now"):
        run.logs()
    with pytest.raises(rljob.UsageError, match="no checkpoint"):
        run.policy()


def test_a_manifest_of_another_namespace_is_not_moved(cluster: Cluster) -> None:
    elsewhere = {"metadata.name": "pong", "metadata.namespace": "other"}
    with pytest.raises(rljob.UsageError, match="is of namespace other, and team was named"):
        rljob.run("CartPoleIMPALA", set=elsewhere, namespace="team", kubeconfig=cluster.kubeconfig)
    assert not cluster.jobs


def test_its_end_is_waited_for_although_the_server_is_away_meanwhile(cluster: Cluster, run: rljob.Run) -> None:
    with pytest.raises(TimeoutError):
        run.wait(0.1)
    threading.Timer(0.5, lambda: setattr(cluster, "away", 2)).start()
    ended = condition("Failed", "True", "BackoffLimitExceeded", "learner failed 7 times")
    threading.Timer(1.5, lambda: cluster.becomes("pong", "Failed", ended)).start()
    assert run.wait(60) is run
    assert run.status == ("Failed", "learner failed 7 times")
    assert not cluster.away


def test_stopping_asks_its_operator(cluster: Cluster, run: rljob.Run) -> None:
    run.stop()
    assert cluster.jobs["pong"]["metadata"]["annotations"]
    assert run.wait(5).status.state == "SessionEnded"


async def test_a_program_with_an_event_loop_may_ask(cluster: Cluster, run: rljob.Run) -> None:
    """A notebook's cells run within one."""
    assert attached(cluster).status.state == run.status.state == "Starting"


SEARCH = EXAMPLES / "experiments" / "cartpole-search.yaml"


def rising(rate: float, seed: int, frames: int) -> float:
    return 100 * rate + seed / 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return experiment_folder(tmp_path / "e", document([1e-3, 1e-2], seeds=2), rising)


def test_its_trials_and_its_best(folder: Path) -> None:
    sweep = rljob.attach(folder)
    assert isinstance(sweep, rljob.Experiment)
    assert [trial.number for trial in sweep.trials] == [1, 0]
    first = sweep.trials[0]
    assert (first.settings, first.state, first.mean) == ({RATE: 0.01}, "Done", pytest.approx(1.15))
    assert first.scores == ((9000, pytest.approx(1.1), 0.5),)
    best = sweep.best
    assert (best.number, best.mean) == (1, pytest.approx(0.15)), "in games that it was not chosen by"
    assert [run.name for run in best.runs] == ["rates-1-s2", "rates-1"], "the best run first"
    assert [run.folder for run in sweep.runs][:2] == [folder / "rates-1", folder / "rates-1-s2"]
    assert sweep.runs[0].metrics()["mean_return"]
    assert (sweep.status.state, sweep.folder, sweep.wait(0)) == ("Completed", folder, sweep)
    assert sweep.status.message.startswith("trial 1, 0.15 +- 0.05")
    assert "trial 1, 0.15" in sweep._repr_html_()
    assert [len(group.runs) for group in rljob.compare([sweep]).groups] == [2, 2]
    assert sweep.why().startswith("rates is Completed\n\nComplete (Completed): trial 1, 0.15")


def test_how_it_stands_before_its_end(tmp_path: Path) -> None:
    folder = experiment_folder(tmp_path / "e", document([1e-3, 1e-2, 1e-1]), rising, until_scores=1)
    sweep = rljob.attach(folder)
    assert (sweep.best, sweep.status) == (None, ("SessionEnded", "1 of 3 trials judged"))
    with ControllerLock(folder):
        assert sweep.status.state == "Running"
        with pytest.raises(TimeoutError, match=r"is Running after 0\.2 s, and goes on"):
            sweep.wait(0.2)
    (folder / "journal.jsonl").unlink()
    (folder / "logs").mkdir(exist_ok=True)
    said = "rljob: environment 'X' is not known"
    (folder / "logs" / "controller.log").write_text(f"{said}\n")
    assert sweep.status == ("Failed", said)


def test_one_that_was_stopped_before_its_best_was_judged_anew_has_not_ended(folder: Path) -> None:
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:-1]))  # one of two seeds has been judged
    (folder / "outcome.json").unlink()
    assert rljob.attach(folder).status == ("SessionEnded", "2 of 2 trials judged")


def test_waiting_does_not_read_its_journal_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, looks = rljob.attach(folder), list[Path]()
    read = local_jobs.look_at_experiment
    monkeypatch.setattr(local_jobs, "look_at_experiment", lambda of: looks.append(of) or read(of))
    with ControllerLock(folder), pytest.raises(TimeoutError, match="is Running"):
        sweep.wait(0.2)
    assert len(looks) == 1, "for what is said at the end"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": {"parallelism": 0}}, r"spec\.parallelism: got 0"),
        ({"namespace": "team", "max_seconds": 5}, "max_seconds and max_actors are for a run on this machine"),
        ({"max_seconds": 0}, "max_seconds is 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((rljob.ManifestError, rljob.UsageError), match=said):
        rljob.run(SEARCH, **options)
    assert not any(tmp_path.iterdir())
