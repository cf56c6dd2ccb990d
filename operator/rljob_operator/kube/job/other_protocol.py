"""A member whose image speaks another protocol than its job: it has ended with that reason, and is not started again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from rljob.api.conditions import Reason
from rljob.api.exit_codes import EXIT_PROTOCOL

from rljob_operator.core.desired import Refusal
from rljob_operator.core.member import Role
from rljob_operator.kube.job.members import Pod, current, shown
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render import names
from rljob_operator.kube.render.rendering import settings_for
from rljob_operator.kube.render.revision import revision
from rljob_operator.kube.render.roles import image
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.pods import is_gone


def another_protocol(stored: StoredJob, pods: Sequence[Pod], settings: Settings) -> Refusal | None:
    """Why nothing more of the job is started: an image of it was tried, and speaks another protocol than its other pods.

    It holds until that image would no longer be tried next: the job or the operator was changed, or the pod was
    deleted.
    """
    if stored.desired.suspends or stored.stopped or stored.status.finished:
        return None
    if not any(map(_ended_so, pods)):
        return None
    used = settings_for(stored.status, settings)
    for name, pod in current(pods).items():
        about, role = pod["metadata"], Role.of(name)
        if not _ended_so(pod) or about.get("deletionTimestamp") or is_gone(pod):
            continue
        noted = about.get("annotations") or {}
        made_as_now = noted.get(names.REVISION_ANNOTATION) == revision(stored.document, role)
        if made_as_now and noted.get(names.PROTOCOL_ANNOTATION) == str(used.protocol):
            words = _words(image(stored.desired.job, role, used), name, shown(pod, name, 0.0).last_words)
            return Refusal(Reason.IMAGE_SCHEMA_MISMATCH, words)
    return None


def _ended_so(pod: Pod) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = ((each.get("state") or {}).get("terminated") or {} for each in statuses if each.get("name") == names.WORKER)
    return any(end.get("exitCode") == EXIT_PROTOCOL for end in ends)


def _words(image: str, member: str, last_words: str) -> str:
    told = last_words.removeprefix("rljob: ") or "it speaks another protocol than the job"
    return (
        f"image {image} of {member}: {told}; use an image of release {version('rljob')}, which is changed in suspension. The "
        f"same image is tried again when the pod of {member} is deleted"
    )
