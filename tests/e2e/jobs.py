"""Jobs for a small cluster: their requests let several pods share a core."""

from __future__ import annotations

import os
from typing import Any

import yaml

from tests.support.paths import EXAMPLES

Object = dict[str, Any]
CHECKPOINTS = "checkpoints"
"""The claim that `checkpoint_claim` makes and `apex` writes to."""
SHARED = os.environ.get("RLJOB_E2E_SHARED_CLASS", "shared")
"""The StorageClass whose volumes are not bound to a node."""


def job(name: str, **spec: Any) -> Object:
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": spec}


def requests(cpu: str = "50m", memory: str = "256Mi") -> Object:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


def example(name: str, **spec: Any) -> Object:
    """One of ``manifests/examples``, with requests that a small cluster has room for, and what else is given."""
    found = dict(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()))
    for role in ("actors", "learner", "evaluator"):
        found["spec"][role] = {**found["spec"].get(role, {}), **requests(), **spec.pop(role, {})}
    found["spec"] |= spec
    return found


def cartpole(name: str = "cartpole", **spec: Any) -> Object:
    """IMPALA with one actor: solved within a minute."""
    roles = {"actors": {"replicas": 1, **requests()}, "learner": requests(), "evaluator": requests()}
    return job(name, **{"preset": "CartPoleIMPALA", **roles, **spec})


def endless(name: str, **spec: Any) -> Object:
    """IMPALA that has no end of its own."""
    forever = {
        "evaluator": {"enabled": False},
        "successPolicy": {"rawFrames": 1_000_000_000},
        "activeDeadlineSeconds": 86_400,  # the preset's is a quarter of an hour
    }
    return cartpole(name, **{**forever, **spec})


def apex(name: str = "apex", **spec: Any) -> Object:
    """Ape-X without an end: two shards with claims of their own, spot actors, and checkpoints on a claim that outlives pods."""
    return job(
        name,
        **{
            "preset": "CartPoleApeX",
            "actors": {"replicas": 2, "spot": True, **requests()},
            "learner": requests(),
            "replay": {
                "shards": 2,
                "redis": {**requests("20m", "64Mi"), "persistence": {"storage": "1Gi"}},
                **requests(),
            },
            "evaluator": {"enabled": False},
            "successPolicy": {"rawFrames": 1_000_000_000},
            "checkpoint": {"intervalSeconds": 5, "storage": {"persistentVolumeClaim": {"claimName": CHECKPOINTS}}},
            **spec,
        },
    )


def checkpoint_claim() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CHECKPOINTS},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def shared_claim(name: str = CHECKPOINTS) -> Object:
    """A claim that pods of several nodes may have at the same time; the cluster's class for such is named by `SHARED`."""
    found = checkpoint_claim()
    spec = {**found["spec"], "accessModes": ["ReadWriteMany"], "storageClassName": SHARED}
    return {**found, "metadata": {"name": name}, "spec": spec}
