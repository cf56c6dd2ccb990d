"""The trackers of a job: native sidecars of its learner's pod, which read what the learner writes and send it on.

They start before the learner and end after it, may fail as they like, and alone have the credentials.
"""

from typing import Any, Final

from rljob.tracking.tracker import IDENTITY_VARIABLE, trackers_of

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.containers import restricted
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import image
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import mounts

LAST_SECONDS: Final = 15
"""For the last points, once the learner has ended."""
_REQUESTS: Final = {"cpu": "50m", "memory": "256Mi"}
_MOUNTED: Final = frozenset({names.RUN_DIR, names.JOB_DIR, "/tmp"})


def sidecars(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The init containers ``tracker-<name>``, of the learner's own image."""
    job, tracking = owned.job, owned.job.spec.tracking
    secret = tracking.secret_ref if tracking is not None else None
    credentials = {"envFrom": [{"secretRef": {"name": secret.name}}]} if secret is not None else {}
    plain = {IDENTITY_VARIABLE: owned.uid, "HOME": "/tmp", "USER": "rljob"}
    job_file = f"{names.JOB_DIR}/{names.JOB_FILE}"
    return [
        {
            "name": f"tracker-{name}",
            "image": image(job, Role.LEARNER, settings),
            "command": ["python", "-m", "rljob.tracking.sender", names.RUN_DIR, name, "--job", job_file],
            "restartPolicy": "Always",
            "env": [{"name": each, "value": value} for each, value in plain.items()],
            **credentials,
            "resources": {"requests": _REQUESTS},
            "volumeMounts": [each for each in mounts(job, "learner", settings) if each["mountPath"] in _MOUNTED],
            "securityContext": restricted(),
        }
        for name in trackers_of(tracking)
    ]
