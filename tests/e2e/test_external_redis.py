"""The replay's log in a Redis that the user runs: a login from a Secret, a shard that comes again, nothing left in the end."""

import os
from typing import Any

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, apex, checkpoint_claim, pause, requests
from tests.support.waiting import eventually

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
