"""Checkpoints in a bucket: a job that moves to another node, a server that goes and comes, keys that only the learner sees.

The replay's log in a Redis that the user runs: a login from a Secret, a shard that comes again, nothing left in the end.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, apex, checkpoint_claim, endless, pause, requests
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


PASSWORD = "none-of-your-business"
SERVER = (
    "import os; from rljob.replay.embedded_redis import find_server; program = str(find_server()); "
    "os.execv(program, [program, '--bind', '0.0.0.0', '--dir', '/tmp', '--save', '', '--requirepass', os.environ['PASSWORD']])"
)
KEYS = (
    "import os; from rljob.replay.redis_client import Login, connect; "
    "client = connect('redis://localhost:6379', login=Login(password=os.environ['PASSWORD'])); "
    "print(*sorted(key.decode() for key in client.scan_iter('run:*') if b':actor:' not in key))"
)


@pytest.fixture
def redis(namespace: Namespace) -> Namespace:
    """A Redis that no operator has made: the namespace with Secret, Service and pod."""
    secret = {"secretKeyRef": {"name": "redis-login", "key": "password"}}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "redis",
        "image": os.environ["RLJOB_E2E_IMAGE"],
        "command": ["python", "-c", SERVER],
        "env": [{"name": "PASSWORD", "valueFrom": secret}],
        "securityContext": restricted,
        **requests("20m", "64Mi"),
    }
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "redis-login"},
            "stringData": {"password": PASSWORD},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "redis"},
            "spec": {"selector": {"app": "redis"}, "ports": [{"port": 6379}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "redis", "labels": {"app": "redis"}},
            "spec": {
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 10001,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
            },
        },
    )
    namespace.kubectl("wait", "--for=condition=Ready", "pod/redis", "--timeout=180s")
    return namespace


def job(name: str, namespace: Namespace, secret: str = "redis-login") -> dict[str, Any]:
    external = {"url": f"redis://redis.{namespace.name}.svc:6379", "secretRef": {"name": secret}}
    return apex(name, replay={"shards": 2, "redis": {"external": external}, **requests()})


def keys(namespace: Namespace, uid: str) -> list[str]:
    return [key for key in namespace.kubectl("exec", "redis", "--", "python", "-c", KEYS).split() if uid in key]


def test_a_job_keeps_its_experience_there_until_it_is_deleted(redis: Namespace) -> None:
    redis.apply(checkpoint_claim(), job("shared", redis))
    redis.wait_updates("shared")
    uid = str((redis.get("rljob", "shared") or {})["metadata"]["uid"])
    shard = redis.pods("shared")["replay-0"]
    assert "initContainers" not in shard["spec"]
    assert [each["metadata"]["name"] for each in redis.list("pvc")] == ["checkpoints"]
    for number in (0, 1):
        assert [key for key in keys(redis, uid) if f"/{uid}/replay-{number}:" in key and ":chunk:" in key]

    redis.kubectl("delete", "pod", shard["metadata"]["name"])
    redis.wait_for("shared", "ReplayReady", "True")

    def said() -> str:
        return redis.log("shared", "replay-0")

    eventually(lambda: "restored in" in said(), said, LONG_SECONDS, pause)
    assert not redis.list("jobs"), "a shard that comes again keeps its log"

    redis.kubectl("delete", "rljob", "shared")
    eventually(lambda: len(redis.list("jobs")) == 2, lambda: str(redis.list("jobs")), LONG_SECONDS, pause)
    redis.kubectl("wait", "--for=condition=Complete", "jobs", "--all", "--timeout=180s")
    assert len(redis.list("jobs")) == 2, "one a shard"
    assert {key.rsplit(":", 1)[1] for key in keys(redis, uid)} <= {"owner"}
    assert PASSWORD not in redis.kubectl("get", "rljobs,configmaps,pods,jobs,events", "-o", "json")


def test_a_secret_without_a_password_is_told(namespace: Namespace) -> None:
    namespace.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keyless"}, "stringData": {"pass": "word"}}
    )
    namespace.apply(job("keyless", namespace, "keyless"))

    def said() -> str:
        return str(namespace.condition("keyless", "ReplayReady").get("message", ""))

    eventually(lambda: "couldn't find key password" in said(), said, LONG_SECONDS, pause)
