"""A job's policy from where its checkpoints are, with the rights of the user who asks: through its learner while that runs, else
through a pod that mounts the claim, reads it and goes."""

import asyncio
import secrets
import time
from collections.abc import Callable
from posixpath import normpath
from typing import Any, BinaryIO, Final

from rljob.api.job import API_VERSION, KIND

from rljob_operator.core.member import Phase, Role
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import PODS, VOLUME_CLAIMS, Object
from rljob_operator.kube.job.members import Pod, current, shown
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned, handed_on
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.rendering import started_with
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoint_claim, checkpoints_are
from rljob_operator.kube.view.job_view import find_pods

SEND: Final = ("python", "-m", "rljob.checkpoints.send", f"{names.RUN_DIR}/checkpoints")
LOOK_SECONDS: Final = 0.5
_TAKEN_OVER: Final = ("nodeSelector", "affinity", "tolerations", "imagePullSecrets", "securityContext", "serviceAccountName",
                      "runtimeClassName")  # fmt: skip
"""What a reader has from the learner's pod: where its volume can be had, and what a namespace's policies have let in before."""


class NoPolicy(Exception):
    """There is none to be had; ``str()`` says why, in a sentence."""


async def fetch(
    client: Client, stored: StoredJob, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float
) -> None:
    """Write the policy into ``out``, a tar archive of its checkpoint's files. Raises `NoPolicy`, and what `Client` raises."""
    settings = _checkpoints_of(stored)
    namespace, name = stored.key
    learner = current(await find_pods(client, namespace, name)).get("learner")
    if learner is not None and shown(learner, "learner", time.time()).phase is Phase.READY:
        await _send(client, learner, out, timeout_seconds)
        return
    claim, where = checkpoint_claim(stored.desired.job, settings), checkpoints_are(stored.desired.job, settings)
    if not where:
        raise NoPolicy("its checkpoints were in its learner's pod, and what was trained went with it")
    if claim is not None:
        try:
            await client.get(VOLUME_CLAIMS, namespace, claim.claim_name)
        except NotFound:
            raise NoPolicy(
                f"claim {claim.claim_name} does not exist any more, and what was trained went with it"
            ) from None
    made = await client.create(PODS, reader(stored.owned(), settings, timeout_seconds))
    say(f"pod {made['metadata']['name']} reads the checkpoints {where}")
    try:
        await _runs(client, made, timeout_seconds)
        await _send(client, made, out, timeout_seconds)
    finally:
        await client.delete(PODS, namespace, made["metadata"]["name"], grace_seconds=0)


def reader(owned: Owned, settings: Settings, longest_seconds: float) -> Object:
    """The pod that reads: with the image, the place, the claim, and the cores and memory of the learner's, which quotas and a
    LimitRange have let in, and nothing else. It ends by itself, and goes with its job where it is not deleted before."""
    learner: dict[str, Any] = pod(owned, "learner", "policy", "", settings)["spec"]
    (worker,) = [each for each in learner["containers"] if each["name"] == names.WORKER]
    mount = next(each for each in worker["volumeMounts"] if normpath(each["mountPath"]) == names.RUN_DIR)
    seconds = int(2 * longest_seconds) + 30
    container = {
        "name": names.WORKER,
        "image": worker["image"],
        "command": ["python", "-c", f"import time; time.sleep({seconds})"],
        "resources": {
            kind: {name: amounts[name] for name in ("cpu", "memory") if name in amounts}
            for kind, amounts in worker["resources"].items()
        },
        "securityContext": worker["securityContext"],
        "volumeMounts": [{**mount, "readOnly": True}],
        **({"imagePullPolicy": worker["imagePullPolicy"]} if "imagePullPolicy" in worker else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod(owned.name, "policy", secrets.token_hex(3)),
            "namespace": owned.job.metadata.namespace,
            # Without the operator's: it is none of the job's members.
            "labels": {**handed_on(owned.job.metadata.labels), names.JOB_LABEL: owned.name},
            "ownerReferences": [{"apiVersion": API_VERSION, "kind": KIND, "name": owned.name, "uid": owned.uid}],
        },
        "spec": {
            **{field: learner[field] for field in _TAKEN_OVER if field in learner},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [each for each in learner["volumes"] if each["name"] == mount["name"]],
        },
    }


def _checkpoints_of(stored: StoredJob) -> Settings:
    """What the job's pods were last made with. Raises `NoPolicy` for one without checkpoints that a pod could read."""
    storage, fixed = stored.desired.job.spec.checkpoint.storage, stored.status.controller.rendering
    bucket = storage.object_store if storage is not None else None
    if bucket is not None:
        at = f" with AWS_ENDPOINT_URL={bucket.endpoint}" if bucket.endpoint else ""
        raise NoPolicy(
            f'its checkpoints are in {bucket.url}: rljob.load_policy("{bucket.url}") and `rljob eval {bucket.url}` read them '
            f"there{at}"
        )
    if fixed is None or stored.status.start_time is None:
        raise NoPolicy("it has not been started yet, so it has no checkpoint")
    return started_with(fixed, Settings(image="of no release"))


async def _runs(client: Client, made: Object, timeout_seconds: float) -> None:
    """Wait until the reader does. Raises `NoPolicy` with what the pod that it waits for reports."""
    about, found = made["metadata"], made
    try:
        async with asyncio.timeout(timeout_seconds):
            while (found.get("status") or {}).get("phase") != "Running":
                await asyncio.sleep(LOOK_SECONDS)
                found = await client.get(PODS, about["namespace"], about["name"])
    except TimeoutError:
        waits_for = shown(found, Role.LEARNER, time.time()).waiting_message
        why = f": {waits_for}" if waits_for else ""
        raise NoPolicy(f"pod {about['name']} did not come up within {timeout_seconds:g} s{why}") from None


async def _send(client: Client, source: Pod, out: BinaryIO, timeout_seconds: float) -> None:
    about = source["metadata"]
    problem = await client.execute(about["namespace"], about["name"], names.WORKER, SEND, _whole(out), timeout_seconds)
    if problem:
        raise NoPolicy(problem)


def _whole(out: BinaryIO) -> Callable[[bytes], bool]:
    """Takes what `rljob.checkpoints.send` prints, writes the archive into ``out``, and answers whether all of it has come."""
    head, left = b"", -1

    def take(piece: bytes) -> bool:
        nonlocal head, left
        if left < 0:
            line, ended, piece = (head + piece).partition(b"\n")
            if not ended:
                head = line
                return False
            left = int(line)
        out.write(piece)
        left -= len(piece)
        return bool(piece) and left <= 0

    return take
