"""`rljob get`, `why`, `scale` and so on against a real API server: what they read and write there.

There are no nodes: the tests write the status, or take the operator's turns themselves.
"""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from rljob_operator.verbs.options import Meaning

from tests.cluster.reconciling import OneJob
from tests.cluster.terminal import User, changed_kubeconfig, five_minutes_ago, said, status


def test_get_shows_the_jobs_of_a_namespace_or_of_all(user: User, other_namespace: str) -> None:
    user.has("pong")
    user.has("breakout", known={})
    User(user.cluster, other_namespace, user.kubeconfig).has("pong")

    heading, breakout, pong = user.sees("get").splitlines()
    assert heading.split()[:4] == ["NAME", "STATE", "ACTORS", "DEPTH"]
    assert pong.split()[:8] == ["pong", "Running", "2/2", "40", "%", "-", "17.5", "12"]
    assert breakout.split()[:3] == ["breakout", "Starting", "0/0"]
    assert user.sees("get", "pong", "-o", "wide").splitlines()[1].split()[-1] == "cpu-1"
    everywhere = user.sees("get", where=("-A",))
    assert everywhere.startswith("NAMESPACE")
    assert {(user.namespace, "pong"), (other_namespace, "pong")} <= {
        tuple(line.split()[:2]) for line in everywhere.splitlines()
    }


def test_get_prints_what_is_stored(user: User) -> None:
    user.has("pong")
    one = json.loads(user.sees("get", "pong", "-o", "json"))
    stored = user.stored("pong")
    stored["metadata"].pop("managedFields")
    assert one == stored
    many = json.loads(user.sees("get", "-o", "json"))
    assert (many["kind"], [each["metadata"]["name"] for each in many["items"]]) == ("List", ["pong"])
    assert "queueFillPercent: 40" in user.sees("get", "pong", "-o", "yaml")


def test_an_empty_namespace(user: User) -> None:
    result = user.types("get")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"no RLJobs in namespace {user.namespace}\n"
    assert json.loads(user.types("get", "-o", "json").stdout)["items"] == []


def test_why_and_top_speak_as_on_one_machine(user: User) -> None:
    unsaved = said("CheckpointValid", "False", "StorageError", "no space left")
    user.has("pong", known=status(conditions=[*status()["conditions"], unsaved]))
    why = user.sees("why")  # the only job needs no name
    for words in (
        "pong is Running: the learner trains and every role is ready", "Last decision: 178 / 36 = 4.9 wanted",
        "CheckpointValid=False StorageError, for 5m: no space left",
    ):  # fmt: skip
        assert words in why
    screen = user.sees("top", "pong", "--once")
    for words in ("queue depth - of - batches (40 %)", "lag 12 updates", "2 ready of 2", "! CheckpointValid False"):
        assert words in screen


def test_verbs_write_spec_and_annotations_alone_in_the_name_of_rljob(user: User) -> None:
    user.has("pong", checkpoint={"storage": {"persistentVolumeClaim": {"claimName": "kept"}}})
    before = user.stored("pong")

    assert user.sees("scale", "pong", "5") == f"{user.namespace}/pong: 5 actors asked for\n"
    assert user.sees("suspend", "pong") == f"{user.namespace}/pong: suspension asked for\n"
    assert user.stored("pong")["spec"]["suspend"] is True
    assert user.sees("resume", "pong").startswith(f"{user.namespace}/pong: ")
    assert user.sees("checkpoint", "pong") == f"{user.namespace}/pong: checkpoint asked for\n"

    after = user.stored("pong")
    assert after["spec"] == {**before["spec"], "actors": {**before["spec"]["actors"], "replicas": 5}}
    assert after["status"] == before["status"]
    (annotation,) = after["metadata"]["annotations"]
    assert annotation == "rljob.dev/checkpoint-requested-at"
    assert "rljob" in {entry["manager"] for entry in after["metadata"]["managedFields"]}


def test_a_wait_that_is_in_vain_says_so(user: User) -> None:
    user.has("pong")
    result = user.types("suspend", "pong", "--wait", "--timeout", "1")
    assert result.exit_code == 1
    assert f"not suspended within 1 s; it is Running: see `rljob why -n {user.namespace} pong`" in result.stderr


def test_a_wait_ends_with_what_was_waited_for(user: User) -> None:
    user.has("pong")

    def play_operator() -> None:
        while user.stored("pong")["spec"].get("suspend") is not True:
            time.sleep(0.05)
        checkpoint = {"step": 1234, "time": five_minutes_ago()}
        suspended = said("Suspended", "True", "UserRequested")
        answer = status(observedGeneration=2, conditions=[suspended], checkpoint=checkpoint)
        user.cluster.change(f"{user.path('pong')}/status", {"status": answer})

    operator = threading.Thread(target=play_operator)
    operator.start()
    told = user.sees("suspend", "pong", "--wait", "--timeout", "60")
    operator.join()
    assert told.splitlines()[-1] == f"{user.namespace}/pong: suspended at update 1,234"


def test_no_pods(user: User) -> None:
    user.has("pong")
    assert "has no pods now" in user.refused(2, "logs", "pong")
    assert "has no pods now" in user.refused(2, "logs", "learner"), "a role's name, and the only job"


@pytest.fixture
def brought_up(runner: asyncio.Runner, pong: OneJob) -> OneJob:
    """The job ``pong`` runs, with one actor."""
    runner.run(pong.start(actors={"replicas": 1}))
    return pong


@pytest.mark.usefixtures("brought_up")
def test_logs_name_the_members_that_there_are(user: User) -> None:
    refused = user.refused(2, "logs", "pong", "lerner")
    assert "lerner: no role or member of this name" in refused
    assert "there are: actor-0, learner, replay-0" in refused
    shown = user.sees("top", "pong", "--once")  # the learner's pod is none: its status is shown, and said to be
    assert "! learner: " in shown
    assert "is shown" in " ".join(shown.split())


async def test_a_stopped_job_leaves_in_order_stays_so_and_comes_back(user: User, brought_up: OneJob) -> None:
    async def sees(*words: str) -> str:
        return await asyncio.to_thread(user.sees, *words)

    result = await asyncio.to_thread(user.types, "stop", "pong", "--timeout", "1")
    assert result.exit_code == 1, "no operator has followed the wish yet"
    leaving = []
    for _ in range(8):
        await brought_up.settle()
        pods = await brought_up.pods()
        leaving.append(sorted(m for m, each in pods.items() if "deletionTimestamp" in each[0]["metadata"]))
        await brought_up.finish_deleted()
    assert leaving[:3] == [["actor-0"], ["learner"], ["replay-0"]]
    assert await brought_up.pods() == {}
    assert await brought_up.turn() is None, "no timer is set"
    stopped = await sees("stop", "pong", "--timeout", "20")
    assert f"stopped; `rljob resume -n {user.namespace} pong` continues from the saved state" in stopped
    assert "pong is SessionEnded: the run was stopped" in await sees("why", "pong")
    assert "pong is stopped, and saved itself then" in (await asyncio.to_thread(user.refused, 2, "checkpoint", "pong"))
    await sees("resume", "pong")
    await brought_up.bring_up()
    assert set(await brought_up.pods()) == {"replay-0", "learner", "actor-0"}
    found = user.stored("pong")
    assert "annotations" not in found["metadata"]
    assert found["status"]["restarts"] == {"counted": 0, "ignored": 0}


def test_kubectl_finds_the_plugin(user: User, tmp_path: Path) -> None:
    user.has("pong")
    script = tmp_path / "kubectl-rljob"
    script.write_text(f"#!{sys.executable}\nfrom rljob_operator.cli import kubectl_plugin\nkubectl_plugin()\n")
    script.chmod(0o755)
    kubeconfig = changed_kubeconfig(user, tmp_path, namespace=user.namespace)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
    told = user.cluster.plugin(environment, "rljob", "get")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[1].split()[:2] == ["pong", "Running"]
    told = user.cluster.plugin(environment, "rljob", "suspend", "pnog")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "did you mean pong?" in told.stderr


def test_the_plugin_means_the_namespace_of_the_context(
    user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Meaning, "cluster", True)
    user.has("pong")
    here = User(user.cluster, user.namespace, changed_kubeconfig(user, tmp_path, namespace=user.namespace))
    assert here.sees("get", where=()).splitlines()[1].startswith("pong")
    result = here.types("suspend", "pong", "--wait", "--timeout", "1", where=())
    assert f"see `kubectl rljob why -n {user.namespace} pong`" in result.stderr


def test_an_operator_that_is_not_there_is_suspected(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.has("pong", known={})
    monkeypatch.setattr("rljob_operator.kube.view.job_view.UNSEEN_SECONDS", -1.0)
    result = user.types("get", "pong")
    assert result.exit_code == 0
    assert f"does one run that looks after namespace {user.namespace}?" in result.stderr
