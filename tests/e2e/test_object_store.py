"""Checkpoints in a bucket: a job that moves to another node, a server that goes and comes, keys that only the learner sees."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, endless, pause, requests
from tests.e2e.operator_process import PREFIX
from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, program
from tests.support.waiting import eventually

ADDRESS = "RLJOB_E2E_S3"
"""host:port where pods reach a server that is started as the operator is; no other process may use it."""


@pytest.fixture(scope="module")
def server(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that pods reach."""
    address = os.environ.get(ADDRESS)
    if not address:
        pytest.skip(f"{ADDRESS} not set: host:port where pods reach a server (docs/testing-on-kubernetes.md)")
    program()
    started = S3Server(tmp_path_factory.mktemp("s3"), address, tuple(shlex.split(os.environ.get(PREFIX, ""))))
    started.start()
    try:
        yield started
    finally:
        started.stop()


def secret(name: str, key: str) -> dict[str, Any]:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": key}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": keys}


def checkpoint(server: S3Server, job: str, keys: str) -> dict[str, Any]:
    store = {"url": f"s3://{BUCKET}/{job}", "endpoint": server.url, "secretRef": {"name": keys}}
    return {"intervalSeconds": 2, "storage": {"objectStore": store}}


def place_elsewhere(namespace: Namespace, node: str) -> dict[str, Any]:
    """What brings a pod to another node, whatever taints it has."""
    other = next(each for each in namespace.list("nodes") if each["metadata"]["name"] != node)
    taints = other["spec"].get("taints") or ()
    return {
        "nodeSelector": {"kubernetes.io/hostname": other["metadata"]["name"]},
        "tolerations": [{"key": each["key"], "operator": "Exists"} for each in taints],
    }


def test_a_job_resumes_on_another_node_from_its_bucket(namespace: Namespace, server: S3Server) -> None:
    namespace.apply(secret("s3", SECRET_KEY), endless("moved", checkpoint=checkpoint(server, "moved", "s3")))
    namespace.wait_updates("moved")
    namespace.wait_for("moved", "CheckpointValid", "True", "Verified")
    learner = namespace.pods("moved")["learner"]
    assert not any("persistentVolumeClaim" in volume for volume in learner["spec"]["volumes"])

    server.stop()
    condition = namespace.wait_for("moved", "CheckpointValid", "False", "StorageError")
    assert f"{server.url} can't be reached" in condition["message"]
    namespace.wait_updates("moved", more_than=namespace.learner_figures("moved")["updates"] + 20)
    server.start()
    namespace.wait_for("moved", "CheckpointValid", "True", "Verified")
    assert namespace.pods("moved")["learner"]["metadata"]["uid"] == learner["metadata"]["uid"]

    said = namespace.log("moved", "learner")
    namespace.patch("moved", {"suspend": True})
    namespace.wait_for("moved", "Suspended", "True")
    kept = namespace.job_status("moved")["checkpoint"]
    assert kept["uri"].startswith(f"s3://{BUCKET}/moved/epoch-000001-step-")
    assert server.path(kept["uri"].removeprefix(f"s3://{BUCKET}/")).is_dir()
    namespace.patch("moved", {"learner": {**requests(), **place_elsewhere(namespace, learner["spec"]["nodeName"])}})
    namespace.patch("moved", {"suspend": False})
    resumed = eventually(
        lambda: re.search(r"resumed from (\S+): update (\d+), epoch (\d+)", namespace.log("moved", "learner")),
        lambda: namespace.log("moved", "learner"),
        LONG_SECONDS,
        pause,
    )
    assert (resumed[1], int(resumed[2]), int(resumed[3])) == (Path(kept["uri"]).name, kept["step"], 2)
    assert namespace.pods("moved")["learner"]["spec"]["nodeName"] != learner["spec"]["nodeName"]
    namespace.wait_updates("moved", more_than=kept["step"])
    namespace.wait_for("moved", "Ready", "True")

    shown = namespace.kubectl("get", "rljobs,configmaps,pods,events", "-o", "json")
    for text in (shown, said, namespace.log("moved", "learner")):
        assert SECRET_KEY not in text
        assert ACCESS_KEY not in text
    namespace.kubectl("delete", "rljob", "moved")
    assert any(server.path("moved").glob("epoch-000002-step-*/manifest.json")), "what is in the bucket stays"


def test_credentials_that_are_not_accepted_are_told(namespace: Namespace, server: S3Server) -> None:
    namespace.apply(
        secret("wrong", "of-somebody-else"), endless("refused", checkpoint=checkpoint(server, "a", "wrong"))
    )
    failure = eventually(
        lambda: next(iter(namespace.job_status("refused").get("failures", ())), None),
        lambda: namespace.job_status("refused"),
        LONG_SECONDS,
        pause,
    )
    assert "does not accept the credentials" in failure["message"]
    assert "of-somebody-else" not in namespace.kubectl("get", "rljobs,configmaps,pods,events", "-o", "json")
