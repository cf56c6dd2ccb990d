"""Everything that a job has besides its pods: volume claims that outlive them, the files that the pods get (the current job,
keys, the token), and how they find each other and who else may reach them.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api import dump_manifest
from rljob.api.local import log_gib

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import has_own_redis
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim


def service(owned: Owned) -> dict[str, Any]:
    """The headless Service: names for pods, also before they are ready, as roles wait for each other while they start."""
    ports = {**names.DATA_PORTS, names.METRICS: owned.job.spec.monitoring.metrics_port}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned.metadata(names.service(owned.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**names.labels(owned.name), names.REACHABLE_LABEL: "true"},
            "ports": [{"name": name, "port": number} for name, number in ports.items()],
        },
    }


def network_policies(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """Pods of the job reach each other; the operator and Prometheus reach the metrics, and nothing else is reached. What the pods
    themselves reach is not limited: an environment may need the world.

    The pods of a learner of several processes have a policy of their own: they reach each other on any port, in the clear, and
    nobody else reaches these ports, not even an actor.
    """
    name, everyone = owned.name, {"matchLabels": names.labels(owned.name)}
    if owned.job.spec.learner.processes == 1:
        return [_policy(owned, settings, names.network_policy(name), everyone, [{"from": [{"podSelector": everyone}]}])]
    others = {
        **everyone,
        "matchExpressions": [{"key": names.ROLE_LABEL, "operator": "NotIn", "values": [str(Role.LEARNER)]}],
    }
    learners = {"matchLabels": names.role_labels(name, Role.LEARNER)}
    ports = [{"protocol": "TCP", "port": port} for port in names.DATA_PORTS.values()]
    peers: list[dict[str, Any]] = [
        {"from": [{"podSelector": everyone}], "ports": ports},
        {"from": [{"podSelector": learners}]},
    ]
    return [
        _policy(owned, settings, names.network_policy(name), others, [{"from": [{"podSelector": everyone}]}]),
        _policy(owned, settings, names.learners_policy(name), learners, peers),
    ]


def _policy(
    owned: Owned, settings: Settings, name: str, of: dict[str, Any], peers: list[dict[str, Any]]
) -> dict[str, Any]:
    readers = [dict(settings.operator_namespaces)]
    if settings.prometheus_namespaces is not None:
        readers.append(dict(settings.prometheus_namespaces))
    metrics = [{"protocol": "TCP", "port": owned.job.spec.monitoring.metrics_port}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned.metadata(name),
        "spec": {
            "podSelector": of,
            "policyTypes": ["Ingress"],
            "ingress": [
                *peers,
                {"from": [{"namespaceSelector": {"matchLabels": each}} for each in readers], "ports": metrics},
            ],
        },
    }


def config_map(owned: Owned) -> dict[str, Any]:
    """The job in force, with every preset and default filled in, as roles read it when they start, and the next operator does
    (`job.children.recalled`)."""
    about = owned.metadata(names.config_map(owned.name))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**about, "annotations": {names.WRITTEN_ANNOTATION: owned.written}},
        "data": {names.JOB_FILE: dump_manifest(owned.job)},
    }


def _secret(owned: Owned, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Not immutable: a kubelet keeps such a Secret by its name, and would give it to pods of the next job that has the name."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": owned.metadata(name),
        "data": {file: base64.b64encode(text.encode()).decode() for file, text in files.items()},
    }


def claims(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """Every PersistentVolumeClaim of the job. They go with it: ``checkpoint.storage`` is for what is to outlive it."""
    job, found = owned.job, []
    if makes_checkpoint_claim(job, settings):
        found.append(checkpoint_claim_of(owned, settings))
    if has_own_redis(job):
        kept = job.spec.required_replay.redis.persistence
        replay, frame_size = job.spec.required_replay.resolved(), job.spec.environment.parameters.atari.frame_size
        size = kept.storage or f"{log_gib(replay, frame_size)}Gi"
        found += [_claim(owned, shard, size, kept.storage_class_name) for shard in names.shards(job)]
    return found


def checkpoint_claim_of(owned: Owned, settings: Settings) -> dict[str, Any]:
    """The claim for the checkpoints of a job that names no place for them."""
    return _claim(owned, "learner", settings.checkpoint_size, settings.checkpoint_class)


def _claim(owned: Owned, member: str, size: str, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": owned.metadata(owned.claim(member), {**names.labels(owned.name), names.MEMBER_LABEL: member}),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is made once for a job by chance and stays: the token, and the text of each role's file of keys as
    `rljob.wire.security` writes it, with its own private key and the public keys of all roles."""

    keys: Mapping[Role, str]
    token: str


def children(owned: Owned, secrets: Secrets, settings: Settings) -> list[dict[str, Any]]:
    """The objects, in the order in which they are made: before any pod that needs them."""
    return [*secret_objects(owned, secrets), *changing_children(owned, settings)]


def secret_objects(owned: Owned, secrets: Secrets) -> list[dict[str, Any]]:
    """The Secrets, which are made once. Every role has keys, whether the job has such pods now or not: the public keys of all are
    in the file of each, so that a role which comes later is known."""
    files = {names.keys_entry(role): text for role, text in secrets.keys.items()}
    core = _secret(owned, names.core_secret(owned.name), {**files, names.TOKEN_FILE: secrets.token})
    if owned.job.spec.network.encryption != "Curve":
        return [core]
    of_actors = names.keys_entry(Role.ACTOR)
    return [core, _secret(owned, names.actor_secret(owned.name), {of_actors: files[of_actors]})]


def changing_children(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The objects that follow from the job and the settings alone, and change with them."""
    return [
        config_map(owned),
        service(owned),
        *(network_policies(owned, settings) if owned.job.spec.network.policy == "Enabled" else []),
        *claims(owned, settings),
    ]


def unwanted(owned: Owned) -> list[tuple[str, str]]:
    """(kind, name) of the objects that the job could have and does not want: to be deleted where an earlier manifest did."""
    job, name = owned.job, owned.name
    policies = [names.network_policy(name), names.learners_policy(name)][: 1 + (job.spec.learner.processes > 1)]
    return [] if job.spec.network.policy == "Enabled" else [("NetworkPolicy", each) for each in policies]
