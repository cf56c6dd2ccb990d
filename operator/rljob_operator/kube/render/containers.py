"""The container that runs a role: its command, its probes, what it asks for, and what it may not do.

The environment of a role's container: every option of ``rljob worker`` that it needs, as RLJOB_*.
"""

from collections.abc import Mapping
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.roles import Resources
from rljob.archive import VARIABLE
from rljob.wire.version import WIRE_VERSION

from rljob_operator import surroundings
from rljob_operator.core.member import Role
from rljob_operator.kube.render import external_redis, names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.render.roles import device, external_redis_of, has_own_redis, image, section, section_name
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import mounts

_EVERY_INTERFACE: Final = "*"
"""Where a role listens: over IPv4 and IPv6, for ZeroMQ and for the metrics."""


_PLACE: Final[list[dict[str, Any]]] = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    for name, path in (("RLJOB_NODE", "spec.nodeName"), ("RLJOB_ADDRESS", "status.podIP"))
]
"""Actors of one node pass weights on to one another."""


def environment(owned: Owned, member: str, settings: Settings) -> list[dict[str, Any]]:
    """The container's variables: the operator's, then the role's own in the order of the manifest, so that these may refer to
    those. Raises `PodProblem` where the manifest sets one on which the pod depends."""
    job, role = owned.job, Role.of(member)
    fixed = _options(owned, member, settings)
    redis = external_redis_of(job) if role is Role.REPLAY else None
    has_weights = role is Role.ACTOR and job.spec.actors.inference == "Local"
    hidden = external_redis.secret_variables(redis) if redis is not None else _PLACE if has_weights else []
    defaults = {**surroundings.variables(role), "HOME": "/tmp", "USER": "rljob"}
    own = [entry.model_dump(mode="json", by_alias=True) for entry in section(job, role).env or ()]
    given = {entry["name"] for entry in own}
    for name in sorted(given & {*fixed, *(entry["name"] for entry in hidden)}):
        path = f"spec.{section_name(role)}.env[{name}]"
        value = repr(fixed[name]) if name in fixed else "a key of a Secret, or the pod's own place"
        raise PodProblem(f"{path}: the operator sets it, to {value}; remove it")
    plain = {**fixed, **{name: value for name, value in defaults.items() if name not in given}}
    return [*({"name": name, "value": value} for name, value in plain.items()), *hidden, *own]


def _options(owned: Owned, member: str, settings: Settings) -> dict[str, str]:
    """As `rljob worker` reads them; a list is one text, separated by spaces."""
    job, role = owned.job, Role.of(member)
    found = {
        "RLJOB_ON_CLUSTER": "1",
        "RLJOB_PROTOCOL": str(WIRE_VERSION),
        "RLJOB_NAME": member,
        "RLJOB_JOB": f"{names.JOB_DIR}/{names.JOB_FILE}",
        "RLJOB_RUN_DIR": names.RUN_DIR,
        "RLJOB_METRICS_HOST": _EVERY_INTERFACE,
        "RLJOB_METRICS_PORT": str(job.spec.monitoring.metrics_port),
    }
    if job.spec.code is not None:
        found[VARIABLE] = f"{names.CODE_DIR}/{names.code_file(job)}"
    if job.spec.network.encryption == "Curve":
        found["RLJOB_KEYS"] = f"{names.KEYS_DIR}/{names.KEYS_FILE}"
    if role is Role.LEARNER:
        leader = names.host(job, job.spec.learner.members[0], settings.cluster_domain)
        found |= {
            "RLJOB_TOKEN_FILE": f"{names.KEYS_DIR}/{names.TOKEN_FILE}",
            "RLJOB_RESUME": "latest",
            "RLJOB_EPOCH": str(owned.learner_epoch),
            "RLJOB_LAST_WORDS": names.TERMINATION_LOG,
            "RLJOB_UID": owned.uid,
            **surroundings.rank_variables(job, member, leader, names.MEETING_PORT),
        }
    if role is Role.REPLAY:
        redis = external_redis_of(job)
        found["RLJOB_REDIS"] = names.REDIS_SOCKET if has_own_redis(job) else "none"
        found |= external_redis.plain_variables(owned, member, redis) if redis is not None else {}
    return {**found, **_addresses(job, member, settings)}


_VARIABLES: Final = {
    "ingest": "RLJOB_REPLAY_INGEST",
    "sample": "RLJOB_REPLAY_SAMPLE",
    "weights": "RLJOB_WEIGHTS",
    "notice": "RLJOB_NOTICE",
    "inference": "RLJOB_INFERENCE",
}
"""Name of a port -> the variable with the addresses of those who have it."""


def _peers(job: RLJob, member: str) -> Mapping[str, list[str]]:
    """Name of a port -> the members that have it and that ``member`` asks there, or which it is itself. Without replay shards the
    learner takes the actors' unrolls; without servers of its own it computes their actions."""
    shards, servers, learners = names.shards(job), names.inference_servers(job), job.spec.learner.members
    computing = (servers or learners[:1]) if job.spec.actors.inference == "Central" else []
    weights = {"weights": learners[:1], "notice": learners[:1]}
    data = {"sample": shards} if shards else {"ingest": learners}
    return {
        Role.REPLAY: {"ingest": [member], "sample": [member]},
        Role.LEARNER: {**data, **weights, "inference": [] if servers else computing},
        Role.INFERENCE: {"inference": [member], **weights},
        Role.ACTOR: {"ingest": shards or learners, **weights, "inference": computing},
        Role.EVALUATOR: weights,
    }[Role.of(member)]


def _addresses(job: RLJob, member: str, settings: Settings) -> dict[str, str]:
    """Where a member binds, and where its peers are."""

    def address(peer: str, port: str) -> str:
        host = _EVERY_INTERFACE if peer == member else names.host(job, peer, settings.cluster_domain)
        return f"tcp://{host}:{names.DATA_PORTS[port]}"

    of_port = _peers(job, member).items()
    return {_VARIABLES[port]: " ".join(address(peer, port) for peer in of) for port, of in of_port if of}


PROBE_SECONDS: Final = 2
"""Between two questions of the kubelet, and for an answer: as a run on one machine asks."""
NOT_READY_SECONDS: Final = 4
HUNG_SECONDS: Final = 60
"""After so much silence a container is killed (docs/lifecycle.md)."""
_KILL_SECONDS: Final = 5
"""Time to leave for a container that does not answer: it hangs, so it gets no time to drain."""


def worker(owned: Owned, member: str, settings: Settings) -> dict[str, Any]:
    """The container ``worker`` of a member's pod. Raises `PodProblem`."""
    job, role = owned.job, Role.of(member)
    return {
        "name": names.WORKER,
        "image": image(job, role, settings),
        "args": ["worker", str(role)],  # the image's entry point is an init that runs `rljob`
        "env": environment(owned, member, settings),
        **_credentials(job, role),
        "ports": _ports(job, member),
        "resources": resources(section(job, role).resources, settings.requests[role], device(job, role)),
        "volumeMounts": mounts(job, member, settings),
        **_probes(job),
        "securityContext": restricted(),
    }


def restricted() -> dict[str, Any]:
    """A container's part of what Pod Security `restricted` demands, and a root filesystem that can't be written."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def resources(
    written: Resources, otherwise: Mapping[str, str], devices: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a container asks for. A resource of ``otherwise`` counts where the manifest gives neither a request nor a limit, from
    which Kubernetes would take the request; devices are limits, as Kubernetes has them."""
    missing = {name: value for name, value in otherwise.items() if name not in {**written.requests, **written.limits}}
    found = {"requests": {**written.requests, **missing}, "limits": {**written.limits, **(devices or {})}}
    for name in devices or {}:
        found["requests"].pop(name, None)
    return {kind: values for kind, values in found.items() if values}


def _ports(job: RLJob, member: str) -> list[dict[str, Any]]:
    bound = {port: names.DATA_PORTS[port] for port, of in _peers(job, member).items() if member in of}
    numbers = {**bound, names.METRICS: job.spec.monitoring.metrics_port}
    return [{"name": name, "containerPort": number} for name, number in numbers.items()]


def _credentials(job: RLJob, role: Role) -> dict[str, Any]:
    """The variables of an object store's Secret, for the learner alone."""
    storage = job.spec.checkpoint.storage
    store = storage.object_store if storage is not None else None
    if role is not Role.LEARNER or store is None or store.secret_ref is None:
        return {}
    return {"envFrom": [{"secretRef": {"name": store.secret_ref.name}}]}


def _probes(job: RLJob) -> dict[str, Any]:
    """Started: it answers at all, which may take as long as the job may take to come up. Live: its loop goes on. Ready: it does
    its work. A learner is ready with its first experience, which actors bring: a controller that starts one role after the other
    has to go by what is started, as a run on one machine does."""

    def asked(page: str, seconds: int, every: int = PROBE_SECONDS) -> dict[str, Any]:
        return {
            "httpGet": {"path": page, "port": names.METRICS},
            "periodSeconds": every,
            "timeoutSeconds": PROBE_SECONDS,
            "failureThreshold": max(1, seconds // every),
        }

    return {
        "startupProbe": asked("/healthz", job.spec.startup_deadline_seconds, every=1),
        "livenessProbe": {**asked("/healthz", HUNG_SECONDS), "terminationGracePeriodSeconds": _KILL_SECONDS},
        "readinessProbe": asked("/readyz", NOT_READY_SECONDS),
    }
