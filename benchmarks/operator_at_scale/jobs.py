"""Jobs, and an experiment, whose pods land on nodes that kwok plays, and ask for so little that thousands fit."""

from __future__ import annotations

from typing import Any

from rljob_operator.kube.apiserver.resources import RLEXPERIMENTS, RLJOBS, Object

METRICS_PORT = 9090
PODS_BESIDE_ACTORS = 2
"""A learner and a replay shard."""

_FAKE_NODES: dict[str, Any] = {
    "nodeSelector": {"type": "kwok"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
}
_LITTLE: dict[str, Any] = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}


def job(namespace: str, name: str, actors: int) -> Object:
    """Ape-X with one learner, one replay shard with its volume claim, and ``actors`` actors; it has no end of its own."""
    role = {**_FAKE_NODES, **_LITTLE}
    return {
        "apiVersion": RLJOBS.api_version,
        "kind": RLJOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "preset": "CartPoleApeX",
            "learner": role,
            "replay": {
                "shards": 1,
                "capacity": 1_000_000,
                "redis": {**_LITTLE, "persistence": {"storage": "1Gi"}},
                **role,
            },
            "actors": {"replicas": actors, **role},
            "evaluator": {"enabled": False},
            "successPolicy": {"rawFrames": 1_000_000_000_000},
            "activeDeadlineSeconds": 1_000_000_000,  # the preset's is a quarter of an hour
            "monitoring": {"metricsPort": METRICS_PORT},
        },
    }


def experiment(namespace: str, name: str, runs: int, actors: int) -> Object:
    """So many of these jobs, all at the same time, each with a discount of its own."""
    spec = job(namespace, name, actors)["spec"]
    del spec["successPolicy"]
    parameters = {"algorithm.gamma": {"uniform": {"min": 0.9, "max": 0.999}}}
    return {
        "apiVersion": RLEXPERIMENTS.api_version,
        "kind": RLEXPERIMENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "template": {"spec": spec},
            "search": {"random": {"trials": runs}, "parameters": parameters},
            "budget": {"rawFrames": 1_000_000_000},
            "parallelism": runs,
        },
    }
