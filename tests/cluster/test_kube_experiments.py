"""Experiments on a real API server, turn by turn: the test is the watch, the operator's part for jobs, and the kubelet, too."""

import asyncio
import json
from typing import Any

import pytest
import rljob
import yaml
from rljob.api.conditions import ConditionType
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import read_document
from rljob.api.status import RLJobStatus
from rljob_operator.experiments.journal import replayed
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, PODS, RLEXPERIMENTS, RLJOBS, Object
from rljob_operator.kube.experiment.reconcile import ExperimentReconciler
from rljob_operator.kube.experiment.runs import Sources
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.events import EventRecorder
from rljob_operator.kube.watch.kept import Kept

from tests.cluster.reconciling import BreakingClient
from tests.cluster.terminal import User
from tests.support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "experiments" / "cartpole-search.yaml"
NAME = "cartpole-search"
NOW = "2026-11-27T12:00:00Z"


class Stage:
    """A namespace with experiments in it, and operators that live one after the other."""

    def __init__(self, user: User, runner: asyncio.Runner, client: BreakingClient) -> None:
        self.user, self.runner, self.client = user, runner, client
        self.statuses: dict[str, RLJobStatus] = {}
        self.begin()

    def begin(self) -> None:
        """Another life of the operator."""
        self.copies = {each: Kept(lambda found: None) for each in (RLEXPERIMENTS, RLJOBS, PODS)}
        self.events = EventRecorder(self.client, "operator-1")
        status = lambda key, uid: self.statuses.get(key[1])  # noqa: E731
        sources = Sources(self.client, self.copies[RLJOBS].get, status, self.copies[PODS], Settings(image="rl:1"))
        self.reconciler = ExperimentReconciler(sources, self.copies[RLEXPERIMENTS], self.events)

    def turn(self, name: str = NAME) -> dict[str, int]:
        """Look, and reconcile once; what was written, by verb and kind."""

        async def story() -> None:
            for resource, kept in self.copies.items():
                kept.replace(self.user.namespace, (await self.client.list(resource, self.user.namespace)).items)
            self.client.reset()
            await self.reconciler.reconcile((self.user.namespace, name))

        self.runner.run(story())
        return {" ".join(call): count for call, count in self.client.writes.items()}

    def of(self, resource: Any) -> dict[str, Object]:
        items = self.user.cluster.request("GET", resource.path(self.user.namespace))[1]["items"]
        return {each["metadata"]["name"]: each for each in items}

    def job_is(self, name: str, frames: int, **conditions: str) -> None:
        """What the operator's part for jobs knows of one."""
        found = [
            {"type": type, "status": "True", "reason": reason, "lastTransitionTime": NOW}
            for type, reason in conditions.items()
        ]
        self.statuses[name] = RLJobStatus.model_validate({"conditions": found, "progress": {"rawFrames": frames}})

    def judge_says(self, name: str, mean: float) -> None:
        """The kubelet tells how a judge has ended."""
        words = json.dumps({"mean": mean, "standard_error": 1.5, "episodes": 100})
        ended = {"exitCode": 0, "reason": "Completed", "message": words, "startedAt": NOW, "finishedAt": NOW}
        worker = {
            "name": "worker",
            "image": "rl:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        status = {"status": {"phase": "Succeeded", "containerStatuses": [worker]}}
        path = f"{PODS.path(self.user.namespace, name)}/status"
        self.user.cluster.change(path, status)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.user.cluster.told("-n", self.user.namespace, *words, stdin=stdin)

    def status(self) -> Object:
        return dict(self.of(RLEXPERIMENTS)[NAME].get("status") or {})


@pytest.fixture
def stage(user: User, runner: asyncio.Runner, client: BreakingClient) -> Stage:
    """In a namespace with Pod Security ``restricted``."""
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    user.cluster.change(f"/api/v1/namespaces/{user.namespace}", level)
    return Stage(user, runner, client)


def test_the_example_goes_its_way(stage: Stage) -> None:
    stage.kubectl("apply", "-f", str(EXAMPLE))
    stored = stage.of(RLEXPERIMENTS)[NAME]
    assert parse_experiment(stored).settings(4) == parse_experiment(read_document(EXAMPLE)).settings(4)
    assert stage.turn() == {"create configmaps": 1, "create rljobs": 2, "patch rlexperiments/status": 1}
    (made, other) = stage.of(RLJOBS).values()
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == stored["metadata"]["uid"]
    assert (made["metadata"]["name"], other["metadata"]["name"]) == (f"{NAME}-0", f"{NAME}-1")
    assert stage.turn().keys() <= {"patch rlexperiments/status"}

    for name in (f"{NAME}-0", f"{NAME}-1"):
        stage.job_is(name, 12_000, Ready="Running")
    assert stage.turn()["patch rljobs"] == 2
    assert all(each["spec"]["suspend"] for each in stage.of(RLJOBS).values())
    for name in (f"{NAME}-0", f"{NAME}-1"):
        stage.job_is(name, 12_000, Suspended="UserRequested")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        stage.user.cluster.request("POST", f"/api/v1/namespaces/{stage.user.namespace}/serviceaccounts", account)
    assert stage.turn()["create pods"] == 2, "pods that Pod Security admits"
    judge = stage.of(PODS)[f"{NAME}-1-judge-0-0"]
    assert judge["spec"]["containers"][0]["command"][3:] == [
        "judge", "/var/lib/rljob/checkpoints", "--episodes", "100", "--seed", "1000000",
        "--keep-from", "-inf",
    ]  # fmt: skip
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in judge["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == [f"{NAME}-1-learner"]
    stage.judge_says(f"{NAME}-1-judge-0-0", 33.5)

    # The operator is killed, and another one goes on.
    stage.begin()
    written = stage.turn()
    assert (written["patch configmaps"], written["create rljobs"]) == (1, 1)
    assert "create pods" not in written
    stage.turn()
    assert f"{NAME}-1-judge-0-0" not in stage.of(PODS), "its figures are in the journal"
    stage.begin()
    assert stage.turn() == {}, "nothing twice"
    (journal,) = stage.of(CONFIG_MAPS).values()
    lines = journal["data"]["journal.jsonl"].encode().splitlines(keepends=True)
    state = replayed(lines)
    assert [run.trial for run in state.active] == [0, 2]
    status = stage.status()
    assert (status["best"]["mean"], status["best"]["trial"], status["journalLines"]) == ("33.5", 1, len(lines))
    assert stage.kubectl("get", "rlx").splitlines()[1].split()[:7] == [NAME, "Running", "9", "0", "2", "0", "33.5"]
    assert "rlexperiment.rljob.dev/cartpole-search" in stage.kubectl("get", "all", "-o", "name")


def test_what_the_server_and_the_operator_refuse(stage: Stage) -> None:
    written: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())

    def refused(**spec: Any) -> str:
        document = {**written, "spec": {**written["spec"], **spec}}
        done = stage.user.cluster.kubectl("-n", stage.user.namespace, "apply", "-f", "-", stdin=json.dumps(document))
        return done.stderr

    assert 'unknown field "spec.paralellism"' in refused(paralellism=2)
    assert "spec.seeds" in refused(seeds=0)
    template = {"spec": {**written["spec"]["template"]["spec"], "backoffLimit": -1}}
    assert "spec.template.spec.backoffLimit" in refused(template=template)
    rate = {"algorithm.learningRate": {"values": [0.1, 0.2]}}
    population = {"size": 2, "readyRawFrames": 9, "parameters": rate}
    assert "template.spec.checkpoint.storage: required of a population" in refused(population=population)
    assert refused(prune={"halving": {"firstRawFrames": 90_000}}) == ""
    stage.turn()
    accepted = next(each for each in stage.status()["conditions"] if each["type"] == ConditionType.ACCEPTED)
    assert accepted["message"] == (
        "spec.prune.halving.firstRawFrames: got 90000; allowed: at most one less than budget.rawFrames (here 89,999); no run "
        "would be judged before its end"
    )
    assert stage.of(RLJOBS) == {}
    assert stage.kubectl("get", "rlexperiments").splitlines()[1].split()[:2] == [NAME, "InvalidSpec"]


def test_the_verbs_of_rljob_take_experiments(stage: Stage) -> None:
    user = stage.user
    stage.kubectl("apply", "-f", str(EXAMPLE))
    stage.turn()
    assert [line.split()[0] for line in user.sees("get", NAME).splitlines()[1:]] == [f"{NAME}-0", f"{NAME}-1"]
    said = user.sees("why", NAME)
    assert "Trials: 0 of 9 are over; 2 runs play, 0 have failed." in said
    assert "Actors" not in said
    assert "not stopped within 1 s" in user.types("stop", NAME, "--timeout", "1").stderr
    assert stage.of(RLEXPERIMENTS)[NAME]["spec"]["suspend"] is True
    for name in (f"{NAME}-0", f"{NAME}-1"):
        stage.job_is(name, 0, Ready="Running")
    stage.turn()
    assert all(each["spec"]["suspend"] for each in stage.of(RLJOBS).values())
    for name in (f"{NAME}-0", f"{NAME}-1"):
        stage.job_is(name, 0, Suspended="UserRequested")
    stage.turn()
    assert "stopped" in user.sees("stop", NAME)
    assert "asked to go on" in user.sees("resume", NAME)
    stage.turn()
    assert not any(each["spec"]["suspend"] for each in stage.of(RLJOBS).values())
    assert "there is no job nothing in namespace" in user.refused(2, "why", "nothing")


def test_from_python_it_is_started_watched_and_found_again(stage: Stage) -> None:
    user = stage.user
    place = {"namespace": user.namespace, "kubeconfig": str(user.kubeconfig)}
    sweep = rljob.run(EXAMPLE, set={"search.grid": None, "search.random.trials": 2, "prune": None}, **place)
    assert isinstance(sweep, rljob.Experiment)
    assert (sweep.folder, sweep.trials, sweep.best) == (None, [], None)
    with pytest.raises(
        rljob.UsageError, match=f"there is an experiment {user.namespace}/{NAME}; give this one another"
    ):
        rljob.run(EXAMPLE, **place)
    stage.turn()
    assert sweep.status.state == "Running"
    with pytest.raises(TimeoutError, match=f"{NAME} is Running after"):
        sweep.wait(0.1)
    for name, mean in ((f"{NAME}-0", 20.0), (f"{NAME}-1", 30.0)):
        stage.job_is(name, 90_000, Suspended="UserRequested")
        stage.turn()
        stage.turn()
        stage.judge_says(f"{name}-judge-0-0", mean)
    stage.turn()
    again = rljob.attach(NAME, **place)
    assert isinstance(again, rljob.Experiment)
    assert [(trial.number, trial.mean, trial.runs) for trial in again.trials] == [
        (1, 30.0, (f"{NAME}-1",)),
        (0, 20.0, (f"{NAME}-0",)),
    ]
    assert again.best is None, "it was not judged anew yet"
    assert again.runs[0].status.state != ""
    stage.turn()
    stage.judge_says(f"{NAME}-1-judge-1-0", 25.0)
    stage.turn()
    best = sweep.wait(60).best
    assert best is not None
    assert (best.number, best.mean, best.runs) == (1, 25.0, (f"{NAME}-1",))
    assert sweep.status.message.startswith("the best is trial 1, 25.00")
    with pytest.raises(rljob.UsageError, match="has no folder here"):
        rljob.compare([sweep])

    # With more trials it goes on.
    stage.kubectl("patch", "rlx", NAME, "--type=merge", "-p", '{"spec": {"search": {"random": {"trials": 3}}}}')
    assert stage.turn()["create rljobs"] == 1
    assert sweep.status.state == "Running"
    assert [trial.number for trial in sweep.trials] == [1, 0, 2]


def test_a_part_of_the_journal_that_another_has_written_is_not_written_over(stage: Stage) -> None:
    stage.kubectl("apply", "-f", str(EXAMPLE))
    stage.turn()
    path = CONFIG_MAPS.path(stage.user.namespace, f"{NAME}-journal-0")
    stage.user.cluster.change(path, {"metadata": {"annotations": {"another": "writer"}}})
    stage.kubectl("patch", "rlx", NAME, "--type=merge", "-p", '{"spec": {"parallelism": 3}}')
    with pytest.raises(Exception, match="modified"):
        stage.turn()
    assert "create rljobs" not in {" ".join(call) for call in stage.client.writes}
    assert stage.turn()["create rljobs"] == 1, "it has read it anew"
