"""A job's pods as they would run on a cluster, their containers as processes here: nothing but what is rendered starts them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.api import RLJob, parse_job
from rljob.wire.keyfile import write_keys, write_role_keys
from rljob_operator.core.member import Role
from rljob_operator.kube.render.children import Secrets
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings

from tests.integration.operator.pod_containers import PodContainers

TOKEN = "the-token-of-this-job"


def small_job(*, central: bool) -> RLJob:
    spec = {
        "preset": "CartPoleApeX",
        "replay": {"rateLimiter": {"minSize": 500, "errorBuffer": 8000}},
        "actors": {"replicas": 1, **({"inference": "Central"} if central else {})},
        "inference": {"replicas": int(central)},
        "checkpoint": {"intervalSeconds": 3600},
        "successPolicy": {"targetReturn": None, "rawFrames": 10_000_000},
    }
    return parse_job({"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "pods"}, "spec": spec})


def made_keys(folder: Path) -> dict[Role, str]:
    write_keys(folder / "all.json")
    for role in Role:
        write_role_keys(folder / "all.json", folder / f"{role}.json", str(role))
    return {role: (folder / f"{role}.json").read_text() for role in Role}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sake of unix sockets."""
    with tempfile.TemporaryDirectory(prefix="rljob-") as name:
        yield Path(name)


@pytest.fixture(params=[False, True], ids=["local inference", "central inference"])
def pods(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[PodContainers]:
    secrets = Secrets(made_keys(tmp_path), TOKEN)
    settings = Settings(image="rl:1", checkpoint_size="1Gi")
    found = PodContainers(Owned(small_job(central=request.param), "uid"), secrets, settings, folder)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.timeout(400)
def test_pods_train_leave_and_come_back_where_they_were(pods: PodContainers) -> None:
    members = ["replay-0", "learner", *(["inference-0"] if pods.owned.job.spec.inference.replicas else []), "actor-0"]
    for member in (*members, "evaluator"):
        pods.start(member)
    pods.until(lambda: pods.status("learner").get("updates", 0) > 100, "updates")
    for member in members:
        pods.until(lambda member=member: pods.get(member, "/readyz")[0] == 200, f"{member} is ready")
        assert pods.get(member, "/metrics")[0] == 200
    assert pods.post("learner", "/checkpoint", {"sinceUnix": 5.5}, "wrong") == 401
    assert pods.post("learner", "/checkpoint", {"sinceUnix": 5.5}, TOKEN) == 202
    pods.until(lambda: pods.status("learner")["checkpoint"]["requested_unix"] == 5.5, "the checkpoint asked for")

    for member in reversed((*members, "evaluator")):
        assert pods.end(member) == 0, member
    left = pods.last_words("learner")["checkpoint"]
    assert left["state"] == "Valid"
    assert left["step"] > 100

    for member in ("replay-0", "learner"):
        pods.start(member)
    pods.until(lambda: pods.status("replay-0").get("state") in ("filling", "serving"), "the shard is warm")
    assert pods.status("replay-0")["items"] >= 500, "from its volume"
    assert pods.status("replay-0")["durable"] is True
    pods.until(lambda: pods.status("learner").get("updates", 0) >= left["step"], "the learner goes on")
