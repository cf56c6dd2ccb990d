"""A job's policy, and its recording, from where its checkpoints are, with the rights of the user who asks: through its learner
while that runs, else through a pod that mounts the claim, reads it and goes. And of which jobs there are recordings."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

from rljob_operator.core.member import Phase, Role, leader
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, PODS, RLJOBS, VOLUME_CLAIMS, Object
from rljob_operator.kube.job.children import stored_job
from rljob_operator.kube.job.members import Pod, current, shown
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render import names
from rljob_operator.kube.render.others import READ_SECONDS, note, only_reads, reader
from rljob_operator.kube.render.rendering import started_with
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoint_claim, checkpoints_are
from rljob_operator.kube.view.job_view import find_pods

SEND: Final = ("python", "-m", "rljob.checkpoints.send", f"{names.RUN_DIR}/checkpoints")
LOOK_SECONDS: Final = 0.5
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""Names and uids: they become folders of the user who asks."""


class NoPolicy(Exception):
    """There is none to be had; ``str()`` says why, in a sentence."""


async def fetch(
    client: Client, document: Object, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float
) -> None:
    """Write the policy into ``out``, a tar archive of its checkpoint's files. Raises `NoPolicy`, and what `Client` raises."""
    stored = await stored_job(client, document)
    settings = _checkpoints_of(stored)
    namespace, name = stored.key
    learner = await _learner(client, namespace, name)
    if learner is not None:
        await _printed(client, learner, SEND, out, timeout_seconds)
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
    pod = reader(stored.owned(), settings, timeout_seconds)
    await _by_pod(
        client, pod, SEND, out, lambda name: say(f"pod {name} reads the checkpoints {where}"), timeout_seconds
    )


async def fetch_recording(
    client: Client, namespace: str, note: Object, out: BinaryIO, say: Callable[[str], None]
) -> bool:
    """Write the recording of a noted job into ``out``: by its learner, as it is now, or by a pod that reads its claim; False
    where it is in a bucket. Raises `NoPolicy`, and what `Client` raises."""
    command = (*SEND, note["uid"])
    learner = await _learner(client, namespace, note["name"]) if note["there"] else None
    if learner is not None:
        await _printed(client, learner, (*command, f"{names.JOB_DIR}/{names.JOB_FILE}"), out, READ_SECONDS)
    elif "pod" in note:
        if not only_reads(note["pod"], namespace):
            raise NoPolicy(
                "its note asks for a pod that may do more than read its claim; see who may write ConfigMaps there"
            )
        # Where the owner of a pod is gone, the pod goes, too.
        about = {
            name: each for name, each in note["pod"]["metadata"].items() if note["there"] or name != "ownerReferences"
        }
        await _by_pod(
            client,
            {**note["pod"], "metadata": about},
            command,
            out,
            lambda pod: say(f"pod {pod} reads the recording of {note['name']} of {note['created']}"),
            READ_SECONDS,
        )
    elif "url" not in note:
        raise NoPolicy(
            "its recording was in its learner's pod and went with it; checkpoint.storage says where one is kept"
        )
    return "url" not in note or learner is not None


async def noted(client: Client, namespace: str, name: str) -> list[Object]:
    """The notes (`render.others.note`) of the jobs of a name, or of the runs of an experiment, that have begun, newest first;
    ``there`` is false for those that are gone."""
    documents = (await client.list(RLJOBS, namespace, label_selector=f"{names.EXPERIMENT_LABEL}={name}")).items
    found = dict[str, Object]()
    with suppress(NotFound):
        kept = await client.get(CONFIG_MAPS, namespace, names.history(name))
        found = {
            each["uid"]: {
                "there": False,
                "outcome": {"state": "Deleted", "message": "The job was deleted before it ended."},
                **each,
            }
            for each in map(_read_note, (kept.get("data") or {}).values())
            if each is not None
        }
    with suppress(NotFound):
        documents.append(await client.get(RLJOBS, namespace, name))
    for document in documents:
        stored = await stored_job(client, document)
        if (fixed := stored.status.controller.rendering) is not None:
            settings = started_with(fixed, Settings(image="of no release"))
            found[stored.uid] = {**note(stored.document, stored.owned(), settings, stored.status), "there": True}
    return sorted(found.values(), key=lambda each: (each["there"], each["created"]), reverse=True)


def _read_note(text: str) -> Object | None:
    """A note; None where no operator can have written it."""
    with suppress(ValueError, LookupError, TypeError):
        found: Object = json.loads(text)
        if all(_PLAIN.fullmatch(found[name]) for name in ("name", "uid", "of")) and isinstance(found["created"], str):
            return found
    return None


async def _learner(client: Client, namespace: str, name: str) -> Pod | None:
    """The pod of a job's learner, where it answers."""
    learner = leader(current(await find_pods(client, namespace, name)))
    return learner if learner is not None and shown(learner, "learner", time.time()).phase is Phase.READY else None


async def _by_pod(
    client: Client, pod: Object, command: Sequence[str], out: BinaryIO, say: Callable[[str], None], seconds: float
) -> None:
    """Have a pod that is made for it print into ``out``; ``say`` is told its name."""
    made = await client.create(PODS, pod)
    say(made["metadata"]["name"])
    try:
        await _runs(client, made, seconds)
        await _printed(client, made, command, out, seconds)
    finally:
        await client.delete(PODS, pod["metadata"]["namespace"], made["metadata"]["name"], grace_seconds=0)


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


async def _printed(client: Client, source: Pod, command: Sequence[str], out: BinaryIO, timeout_seconds: float) -> None:
    """Write into ``out`` what a command in a pod prints, a line with its length before it. Raises `NoPolicy`."""
    about = source["metadata"]
    problem = await client.execute(
        about["namespace"], about["name"], names.WORKER, command, _whole(out), timeout_seconds
    )
    if problem:
        raise NoPolicy(problem)


def _whole(out: BinaryIO) -> Callable[[bytes], bool]:
    """Takes what is printed, writes all behind the first line into ``out``, and answers whether all of it has come."""
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
