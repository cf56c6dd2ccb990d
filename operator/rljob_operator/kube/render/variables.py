"""The environment of a role's container: every option of ``rljob worker`` that it needs, as RLJOB_*."""

from __future__ import annotations

from typing import Any, Final

from rljob.api import RLJob
from rljob.wire.version import WIRE_VERSION

from rljob_operator import surroundings
from rljob_operator.core.member import Role
from rljob_operator.kube.render import external_redis, names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.render.roles import external_redis_of, has_own_redis, section, section_name
from rljob_operator.kube.render.settings import Settings

_EVERY_INTERFACE: Final = "*"
"""Where a role listens: over IPv4 and IPv6, for ZeroMQ and for the metrics."""


def environment(owned: Owned, member: str, settings: Settings) -> list[dict[str, Any]]:
    """The container's variables: the operator's, then the role's own in the order of the manifest, so that these may refer to
    those. Raises `PodProblem` where the manifest sets one on which the pod depends."""
    job, role = owned.job, Role.of(member)
    fixed = _options(owned, member, settings)
    redis = external_redis_of(job) if role is Role.REPLAY else None
    hidden = external_redis.secret_variables(redis) if redis is not None else []
    defaults = {**surroundings.variables(role), "HOME": "/tmp", "USER": "rljob"}
    own = [entry.model_dump(mode="json", by_alias=True) for entry in section(job, role).env or ()]
    given = {entry["name"] for entry in own}
    for name in sorted(given & {*fixed, *(entry["name"] for entry in hidden)}):
        path = f"spec.{section_name(role)}.env[{name}]"
        value = repr(fixed[name]) if name in fixed else "a key of a Secret"
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
    if job.spec.network.encryption == "Curve":
        found["RLJOB_KEYS"] = f"{names.KEYS_DIR}/{names.KEYS_FILE}"
    if role is Role.LEARNER:
        found["RLJOB_TOKEN_FILE"] = f"{names.TOKEN_DIR}/{names.TOKEN_FILE}"
        found["RLJOB_RESUME"] = "latest"
        found["RLJOB_EPOCH"] = str(owned.learner_epoch)
        found["RLJOB_LAST_WORDS"] = names.TERMINATION_LOG
    if role is Role.REPLAY:
        redis = external_redis_of(job)
        found["RLJOB_REDIS"] = names.REDIS_SOCKET if has_own_redis(job) else "none"
        found |= external_redis.plain_variables(owned, member, redis) if redis is not None else {}
    return {**found, **_addresses(job, member, settings)}


def _addresses(job: RLJob, member: str, settings: Settings) -> dict[str, str]:
    """Where a member binds, and where its peers are. Without replay shards the learner takes the actors' unrolls; without
    servers of its own it computes their actions."""
    role = Role.of(member)
    serves = job.spec.actors.inference == "Central"

    def of(peers: list[str], port: int) -> str:
        return " ".join(
            f"tcp://{_EVERY_INTERFACE if peer == member else names.host(job, peer, settings.cluster_domain)}:{port}"
            for peer in peers
        )

    shards, servers = names.shards(job), names.inference_servers(job)
    ingest = of(shards or ["learner"], names.INGEST_PORT)
    weights = {
        "RLJOB_WEIGHTS": of(["learner"], names.WEIGHTS_PORT),
        "RLJOB_NOTICE": of(["learner"], names.NOTICE_PORT),
    }
    inference = {"RLJOB_INFERENCE": of(servers or ["learner"], names.INFERENCE_PORT)} if serves else {}
    if role is Role.REPLAY:
        return {
            "RLJOB_REPLAY_INGEST": of([member], names.INGEST_PORT),
            "RLJOB_REPLAY_SAMPLE": of([member], names.SAMPLE_PORT),
        }
    if role is Role.LEARNER:
        data = {"RLJOB_REPLAY_SAMPLE": of(shards, names.SAMPLE_PORT)} if shards else {"RLJOB_REPLAY_INGEST": ingest}
        return {**data, **weights, **({} if servers else inference)}
    if role is Role.INFERENCE:
        return {"RLJOB_INFERENCE": of([member], names.INFERENCE_PORT), **weights}
    if role is Role.ACTOR:
        return {"RLJOB_REPLAY_INGEST": ingest, **weights, **inference}
    return weights
