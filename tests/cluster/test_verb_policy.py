"""`rljob export` of a cluster's job, as far as an API server without nodes goes: what can't be had is said in a sentence, and
the pod that reads a claim passes Pod Security and is gone afterwards, whatever came of it.

`rljob report` of a cluster's jobs that are gone: the operator's notes outlive them, the bucket has their recordings.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rljob.api.status import RLJobStatus
from rljob.checkpoints.location import location
from rljob.checkpoints.recording import METRICS, Recording
from rljob_operator.kube.apiserver.resources import ALL, CONFIG_MAPS, PODS, RLJOBS, VOLUME_CLAIMS
from rljob_operator.kube.render import names
from rljob_operator.kube.render.rendering import offered
from rljob_operator.kube.render.settings import Settings

from tests.cluster.reconciling import OneJob, children_of
from tests.cluster.terminal import User, said, status
from tests.support.s3_server import BUCKET, S3Server


def ended(**settings: Any) -> dict[str, Any]:
    """The status of a job that is Complete, and was started with these settings."""
    rendering = offered(RLJobStatus(), Settings(image="rl:1", **settings)).model_dump(mode="json", by_alias=True)
    return status(conditions=[said("Complete", "True", "TargetReturnReached")], controller={"rendering": rendering})


def test_what_can_not_be_had_is_said_in_a_sentence(user: User, tmp_path: Path) -> None:
    out = ("--format", "policy", "-o", str(tmp_path / "policy"))
    assert "there is no job none in namespace" in user.refused(2, "export", "none", *out)
    user.has("new", known={})
    assert "it has not been started yet" in user.refused(2, "export", "new", *out)
    user.has("lost", known=ended(checkpoint_size=""))
    assert "went with it" in user.refused(2, "export", "lost", *out)
    user.has("gone", known=ended())
    assert "claim gone-learner does not exist any more" in user.refused(2, "export", "gone", *out)
    bucket = {"storage": {"objectStore": {"url": "s3://mine/pong", "endpoint": "https://minio:9000"}}}
    user.has("bucket", known=ended(), checkpoint=bucket)
    assert "`rljob eval s3://mine/pong` read them there with AWS_ENDPOINT_URL=https://minio:9000" in user.refused(
        2, "export", "bucket", *out
    )
    assert not list(tmp_path.iterdir())


def test_the_pod_that_reads_is_let_in_and_gone_afterwards(user: User, tmp_path: Path) -> None:
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    user.cluster.change(f"/api/v1/namespaces/{user.namespace}", level)
    least = {"type": "Container", "min": {"cpu": "900m", "memory": "1Gi"}}  # the learner asks for more
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "least"}, "spec": {"limits": [least]}}
    user.cluster.create(f"/api/v1/namespaces/{user.namespace}/limitranges", limits)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "pong-learner"}, "spec": spec}
    user.cluster.create(VOLUME_CLAIMS.path(user.namespace), claim)
    user.has("pong", known=ended())
    result = user.types("export", "pong", "--format", "policy", "-o", str(tmp_path / "policy"), "--timeout", "1")
    assert result.exit_code == 2, result.output
    assert "reads the checkpoints on claim pong-learner" in result.stderr
    assert "did not come up within 1 s" in result.stderr
    assert user.cluster.request("GET", PODS.path(user.namespace))[1]["items"] == []


URL = f"s3://{BUCKET}/pong"


async def lived(pong: OneJob, folder: Path, steps: float) -> str:
    """A job that has recorded a rate of ``steps``, has failed, and was deleted; its uid."""
    spec = {
        "checkpoint": {"storage": {"objectStore": {"url": URL}}},
        "replay": {"redis": {"persistence": {"mode": "None"}}},
        "backoffLimit": 0,
    }
    uid = str((await pong.start(**spec))["metadata"]["uid"])
    folder.mkdir()
    (folder / METRICS).write_text(f'{{"elapsed_seconds": 1, "raw_frames": 1, "steps_per_second": {steps}}}\n')
    Recording("kind: RLJob\n", uid, folder, location(URL)).keep(lambda: None)
    await pong.end("learner")
    await pong.take_down()
    await pong.viewer.delete(RLJOBS, *pong.key)
    for child in await children_of(pong.viewer, *pong.key):  # no controller collects them here
        (resource,) = [each for each in ALL if each.kind == child["kind"]]
        await pong.viewer.delete(resource, pong.namespace, child["metadata"]["name"], grace_seconds=0)
    await pong.settle()
    return uid


async def test_each_job_of_a_name_is_found_when_all_are_gone(
    user: User, pong: OneJob, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = await asyncio.to_thread(user.refused, 2, "report", "pong")
    assert "there is no job pong in namespace" in refused
    assert "a recording outlives its job where checkpoint.storage names a bucket or a claim" in refused
    uids = [await lived(pong, tmp_path / str(steps), steps) for steps in (111.0, 222.0)]
    seen = await asyncio.to_thread(user.types, "report", "pong")
    assert seen.exit_code == 0, seen.output
    assert "2 have the name pong: 20" in seen.stderr
    page = Path(seen.stdout.strip())
    assert page == Path(f"runs/pong-{uids[1][:8]}/report.html")
    assert "BackoffLimitExceeded" in page.read_text(), "how it ended"
    first = Path((await asyncio.to_thread(user.sees, "report", "pong", "--uid", uids[0])).strip())
    assert [b"111.0" in (each.parent / METRICS).read_bytes() for each in (first, page)] == [True, False]
    assert "--uid none: there are 20" in await asyncio.to_thread(user.refused, 2, "report", "pong", "--uid", "none")
    left = [each["metadata"]["name"] for each in (await pong.viewer.list(CONFIG_MAPS, pong.namespace)).items]
    assert left == [names.history("pong")]
