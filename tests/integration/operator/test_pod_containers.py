"""A job's pods as they would run on a cluster, their containers as processes here: nothing but what is rendered starts them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rljob.api import RLJob, load_manifest, parse_job
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.wire.keyfile import write_keys, write_role_keys
from rljob.wire.version import WIRE_VERSION
from rljob_operator.core.member import Role
from rljob_operator.kube.render.children import Secrets
from rljob_operator.kube.render.containers import environment
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings

from tests.integration.operator.pod_containers import PodContainers
from tests.support.paths import EXAMPLES
from tests.support.s3_server import BUCKET, S3Server

TOKEN = "the-token-of-this-job"


def small_job() -> RLJob:
    spec = {
        "preset": "CartPoleApeX",
        "replay": {"rateLimiter": {"minSize": 500, "errorBuffer": 8000}},
        "actors": {"replicas": 1, "inference": "Central"},
        "inference": {"replicas": 1},
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


@pytest.fixture
def pods(folder: Path, tmp_path: Path) -> Iterator[PodContainers]:
    secrets = Secrets(made_keys(tmp_path), TOKEN)
    with closing(
        PodContainers(Owned(small_job(), "uid"), secrets, Settings(image="rl:1", checkpoint_size="1Gi"), folder)
    ) as found:
        yield found


def test_pods_train_leave_and_come_back_where_they_were(pods: PodContainers) -> None:
    members = ["replay-0", "learner", "inference-0", "actor-0"]
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
        assert pods.end(member) == 143, member
    left = pods.last_words("learner")["checkpoint"]
    assert left["state"] == "Valid"
    assert left["step"] > 100

    for member in ("replay-0", "learner"):
        pods.start(member)
    pods.until(lambda: pods.status("replay-0").get("state") in ("filling", "serving"), "the shard is warm")
    assert pods.status("replay-0")["items"] >= 500, "from its volume"
    assert pods.status("replay-0")["durable"] is True
    pods.until(lambda: pods.status("learner").get("updates", 0) >= left["step"], "the learner goes on")


def test_a_learner_comes_back_from_its_bucket_with_nothing_on_a_disk(
    folder: Path, tmp_path: Path, s3: S3Server
) -> None:
    store = {"url": f"s3://{BUCKET}/pods", "endpoint": s3.url, "secretRef": {"name": "keys-of-the-bucket"}}
    spec = {
        "preset": "CartPoleIMPALA",
        "checkpoint": {"intervalSeconds": 3600, "storage": {"objectStore": store}},
        "successPolicy": {"targetReturn": None, "rawFrames": 1_000_000_000},
    }
    document = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "pods"}, "spec": spec}
    owned = Owned(parse_job(document), "uid")
    keys = {name: value for name, value in s3.environment.items() if name != "AWS_ENDPOINT_URL"}
    secrets, settings = Secrets(made_keys(tmp_path), TOKEN), Settings(image="rl:1")
    with closing(PodContainers(owned, secrets, settings, folder, {"keys-of-the-bucket": keys})) as pods:
        for member in ("learner", "actor-0"):
            pods.start(member)
        pods.until(lambda: pods.status("learner").get("updates", 0) > 50, "updates")
        assert pods.end("learner") == 0
        left = pods.last_words("learner")["checkpoint"]
        assert left["state"] == "Valid"
        assert left["path"].startswith(f"s3://{BUCKET}/pods/epoch-000001-step-")
        assert s3.path(left["path"].removeprefix(f"s3://{BUCKET}/")).is_dir()
        pods.start("learner")
        pods.until(lambda: pods.status("learner").get("updates", 0) > left["step"], "the learner goes on")
        assert pods.status("learner")["epoch"] == 2
        assert not list(folder.glob("*/checkpoints"))


JOB = EXAMPLES / "cartpole-apex.yaml"
NEXT_RELEASE = (
    f"from rljob.wire import version; version.WIRE_VERSION = {WIRE_VERSION + 1}; "
    "from rljob.cli.app import app; app(['worker', *__import__('sys').argv[1:]])"
)


def test_it_ends_at_once_with_what_it_speaks_and_what_was_wanted(tmp_path: Path) -> None:
    variables = {
        each["name"]: each["value"]
        for each in environment(Owned(load_manifest(JOB), "uid-1"), "learner", Settings(image="rl:1"))
    }
    variables |= {"RLJOB_JOB": str(JOB), "RLJOB_RUN_DIR": str(tmp_path), "RLJOB_METRICS_PORT": "0"}
    (tmp_path / "roles").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", NEXT_RELEASE, "learner"],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == EXIT_PROTOCOL
    assert done.stderr.splitlines()[-1].endswith(
        f"speaks protocol {WIRE_VERSION + 1}; the job speaks protocol {WIRE_VERSION}"
    )
