"""`rljob report` of a cluster's jobs that are gone: the operator's notes outlive them, the bucket has their recordings."""

import asyncio
from pathlib import Path

import pytest
from rljob.checkpoints.location import location
from rljob.checkpoints.recording import METRICS, Recording
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import ALL, CONFIG_MAPS, RLJOBS
from rljob_operator.kube.render import names

from tests.cluster.reconciling import Kubelet, Run, children_of, started, take_down, written
from tests.cluster.terminal import User
from tests.support.s3_server import BUCKET, S3Server

URL = f"s3://{BUCKET}/pong"


async def lived(run: Run, viewer: Client, kubelet: Kubelet, folder: Path, steps: float) -> str:
    """A job that has recorded a rate of ``steps``, has failed, and was deleted; its uid."""
    spec = {
        "checkpoint": {"storage": {"objectStore": {"url": URL}}},
        "replay": {"redis": {"persistence": {"mode": "None"}}},
        "backoffLimit": 0,
    }
    await started(run, viewer, kubelet, written(run.namespace, "pong", **spec))
    stored = await viewer.get(RLJOBS, run.namespace, "pong")
    uid = str(stored["metadata"]["uid"])
    folder.mkdir()
    (folder / METRICS).write_text(f'{{"elapsed_seconds": 1, "raw_frames": 1, "steps_per_second": {steps}}}\n')
    Recording("kind: RLJob\n", uid, folder, location(URL)).keep(lambda: None)
    await kubelet.end(await kubelet.pod("pong", "learner"), 1)
    await take_down(run, viewer, kubelet, "pong")
    await viewer.delete(RLJOBS, run.namespace, "pong")
    for child in await children_of(viewer, run.namespace, "pong"):  # no controller collects them here
        (resource,) = [each for each in ALL if each.kind == child["kind"]]
        await viewer.delete(resource, run.namespace, child["metadata"]["name"], grace_seconds=0)
    await run.settle(viewer, "pong")
    return uid


async def test_each_job_of_a_name_is_found_when_all_are_gone(
    user: User,
    viewer: Client,
    kubelet: Kubelet,
    run: Run,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = await asyncio.to_thread(user.refused, 2, "report", "pong")
    assert "there is no job pong in namespace" in refused
    assert "a recording outlives its job where checkpoint.storage names a bucket or a claim" in refused
    uids = [await lived(run, viewer, kubelet, tmp_path / str(steps), steps) for steps in (111.0, 222.0)]
    seen = await asyncio.to_thread(user.types, "report", "pong")
    assert seen.exit_code == 0, seen.output
    assert "2 have the name pong: 20" in seen.stderr
    page = Path(seen.stdout.strip())
    assert page == Path(f"runs/pong-{uids[1][:8]}/report.html")
    assert "BackoffLimitExceeded" in page.read_text(), "how it ended"
    first = Path((await asyncio.to_thread(user.sees, "report", "pong", "--uid", uids[0])).strip())
    assert [b"111.0" in (each.parent / METRICS).read_bytes() for each in (first, page)] == [True, False]
    assert "--uid none: there are 20" in await asyncio.to_thread(user.refused, 2, "report", "pong", "--uid", "none")
    left = [each["metadata"]["name"] for each in (await viewer.list(CONFIG_MAPS, run.namespace)).items]
    assert left == [names.history("pong")]
